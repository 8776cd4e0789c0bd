"""Bubblewrap for a daemon that is not root: a system user with control groups handed over, made for the test."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest

from house import CHECKOUT, others_can_read

CHILD = """
import asyncio, json, os, sys
from pathlib import Path
from sandbox.bubblewrap.backend import BwrapBackend
from sandbox.config import SandboxConfig
from sandbox.errors import SandboxUnavailableError
from sandbox.owner import owner_of
from sandbox.types import MIB, Command, Limits, SandboxSpec

SPEC = SandboxSpec(limits=Limits(memory=96 * MIB, processes=40, disk=8 * MIB, wall=20))

async def main():
    backend = BwrapBackend(SandboxConfig(cgroup=sys.argv[1]), owner_of(Path(sys.argv[2])))
    try:
        test = await backend.self_test()
    except SandboxUnavailableError as error:
        return {"refused": str(error)}
    said = {"test": test.model_dump(), "uid": os.getuid()}
    async with backend.open(SPEC) as box:
        await box.write("kept", b"1")
        hog = await box.run(Command(argv=("python3", "-c", "x = bytearray(300 << 20)")))
        said["memory"] = [hog.exit_code, hog.out_of_memory]
        bomb = "import os\\nwhile True:\\n    try:\\n        os.fork()\\n    except OSError:\\n        pass"
        said["bomb"] = (await box.run(Command(argv=("python3", "-c", bomb), timeout=1.5))).timed_out
        hog = "cat /dev/zero >a; cat /dev/zero >b; du -m . | cut -f1; rm a b"
        disk = await box.run(Command(argv=("sh", "-c", hog)))
        said["disk"] = int(disk.text.split()[-1])
        outside = await box.run(Command(argv=("sh", "-c", "ls -a " + sys.argv[2] + "; echo x >/etc/x; id -u")))
        said["outside"] = outside.text
        async with box.fork() as fork:
            said["fork"] = (await fork.read("kept")).decode()
    said["swept"] = await backend.sweep()
    parent = (await backend.machine()).parent
    await backend.close()
    said["left"] = [path for path in os.listdir(parent.folders[0]) if path.startswith("swarm-")]
    return said

print(json.dumps(asyncio.run(main())))
"""
SUITES = ("test_sandbox*.py", "test_attack_*.py", "test_prepared.py")
HANDED_ON = ("AGENT_SWARM_CONFORMANCE",)


@pytest.mark.root
def test_an_unprivileged_user_with_a_control_group_keeps_every_claim(
    python_of_all: str, as_user, group: str, tmp_path: Path
) -> None:
    done = as_user(group, [python_of_all, "-c", CHILD, group, str(tmp_path)], {}, 100)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert "refused" not in said, said
    assert said["uid"] != 0
    assert said["test"]["failed"] == []
    assert said["test"]["detail"]["uid"] == f"uid {said['uid']} for all sandboxes"
    assert said["memory"] == [137, True]
    assert said["bomb"] is True
    assert said["disk"] <= 9
    assert "70000" in said["outside"]
    assert "No such file" in said["outside"]
    assert "Read-only" in said["outside"]
    assert said["fork"] == "1"
    assert said["swept"] == 0
    assert said["left"] == []


@pytest.mark.root
def test_a_user_without_a_control_group_is_refused_with_the_mend(python_of_all: str, as_user, tmp_path: Path) -> None:
    group = f"agent-swarm-none-{os.getpid()}"
    done = as_user(group, [python_of_all, "-c", CHILD, group, str(tmp_path)], {}, 100)
    assert "scripts/prepare-sandbox user" in json.loads(done.stdout)["refused"]


@pytest.fixture
def checkout(python_of_all: str, tmp_path: Path) -> tuple[str, Path, dict[str, str]]:
    """A Python, a folder with the tests and an environment that the user can run them with."""
    if others_can_read(CHECKOUT / "pyproject.toml") and others_can_read(CHECKOUT / "tests" / "conftest.py"):
        return python_of_all, CHECKOUT, {}
    copy = Path(python_of_all).parents[2] / "checkout"
    copy.mkdir(mode=0o755)
    for name in ("tests", "scripts"):
        shutil.copytree(CHECKOUT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(CHECKOUT / "pyproject.toml", copy)
    libraries = copy / "libraries"
    shutil.copytree(sysconfig.get_paths()["purelib"], libraries, ignore=shutil.ignore_patterns("*agent_swarm*"))
    for path in (copy, *copy.rglob("*")):
        if not path.is_symlink():
            path.chmod(path.stat().st_mode | (0o755 if path.is_dir() else 0o644))
    return python_of_all, copy, {"PYTHONPATH": str(libraries)}


@pytest.mark.root
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_contract_suites_hold_for_an_unprivileged_user(checkout, as_user, group: str) -> None:
    python, folder, env = checkout
    suites = sorted(str(path) for name in SUITES for path in (folder / "tests/contract").glob(name))
    env |= {name: os.environ[name] for name in HANDED_ON if name in os.environ}
    env["AGENT_SWARM_CONFORMANCE_AS"] = "bwrap-user"
    words = [
        python,
        "-B",
        "-m",
        "pytest",
        "-q",
        "-n3",
        "--dist",
        "worksteal",
        "-m",
        "root",
        "-k",
        "bwrap",
        "-p",
        "no:cacheprovider",
    ]
    done = as_user(
        group, [*words, f"--rootdir={folder}", f"--config-file={folder / 'pyproject.toml'}", *suites], env, 580
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-1000:]
    assert " passed" in done.stdout
    assert "skipped" not in done.stdout


@pytest.mark.root
def test_a_plain_user_is_not_told_that_a_library_is_missing_which_is_there() -> None:
    """A newcomer's make setup: ldconfig is not on the PATH of a plain user."""
    ctypes.CDLL("libseccomp.so.2")
    nobody = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "sh", "-s", "install"]
    done = subprocess.run(
        nobody,
        input=(CHECKOUT / "scripts/prepare-sandbox").read_text(),
        env={"PATH": "/usr/bin:/bin"},
        cwd="/",
        check=False,
        capture_output=True,
        text=True,
    )
    assert "libseccomp2" not in done.stderr
    assert done.returncode == 0 or "missing:" in done.stderr
