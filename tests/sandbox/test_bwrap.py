"""Bubblewrap for a daemon that is not root: a system user with control groups handed over, made for the test."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sandbox.bubblewrap.backend import BwrapBackend
from sandbox.bubblewrap.seccomp import compile_filter
from sandbox.config import SandboxConfig
from sandbox.errors import SandboxUnavailableError
from sandbox.owner import owner_of
from sandbox.types import Command, SandboxSpec

ROOT = Path(__file__).parents[2]
CHILD = """
import asyncio, json, os, sys
from pathlib import Path
from sandbox.config import SandboxConfig
from sandbox.errors import SandboxUnavailableError
from sandbox.factory import choose_backend
from sandbox.types import MIB, Command, Limits, SandboxSpec

SPEC = SandboxSpec(limits=Limits(memory=96 * MIB, processes=40, disk=8 * MIB, wall=20))

async def main():
    config = SandboxConfig(backend="bwrap", cgroup=sys.argv[1])
    try:
        backend = await choose_backend(config, state=Path(sys.argv[2]))
    except SandboxUnavailableError as error:
        return {"refused": str(error)}
    said = {"test": (await backend.self_test()).model_dump(), "uid": os.getuid()}
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
    said["left"] = [path for path in os.listdir(backend.machine().parent.folders[0]) if path.startswith("swarm-")]
    return said

print(json.dumps(asyncio.run(main())))
"""


@pytest.fixture
def user() -> Iterator[str]:
    name = f"swarmt{os.getpid()}"
    subprocess.run(["useradd", "--system", "--no-create-home", "--shell", "/usr/sbin/nologin", name], check=True)
    try:
        yield name
    finally:
        subprocess.run(["userdel", name], check=False, capture_output=True)


def prepare(group: str, *words: str) -> subprocess.CompletedProcess[str]:
    env = {"PATH": os.environ["PATH"], "AGENT_SWARM_CGROUP": group}
    argv = [str(ROOT / "scripts/prepare-sandbox"), *words]
    return subprocess.run(argv, env=env, check=True, capture_output=True, text=True)


@pytest.fixture
def group(user: str) -> Iterator[str]:
    name = f"agent-swarm-test-{os.getpid()}"
    prepare(name, "user", user)
    yield name
    prepare(name, "undo")


def as_user(python: str, user: str, group: str, state: Path) -> dict[str, object]:
    env = {"PATH": os.environ["PATH"], "AGENT_SWARM_CGROUP": group, "LANG": "C.UTF-8"}
    argv = [str(ROOT / "scripts/prepare-sandbox"), "enter", user, python, "-c", CHILD, group, str(state)]
    done = subprocess.run(argv, env=env, cwd="/", check=False, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.root
def test_an_unprivileged_user_with_a_control_group_keeps_every_claim(
    python_of_all: str, user: str, group: str, tmp_path: Path
) -> None:
    said = as_user(python_of_all, user, group, tmp_path)
    assert "refused" not in said, said
    assert said["uid"] != 0
    assert said["test"]["failed"] == []
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
def test_a_user_without_a_control_group_is_refused_with_the_mend(python_of_all: str, user: str, tmp_path: Path) -> None:
    said = as_user(python_of_all, user, f"agent-swarm-none-{os.getpid()}", tmp_path)
    assert "scripts/prepare-sandbox user" in said["refused"]


@pytest.mark.root
async def test_a_filter_that_lets_everything_through_is_found_out(tmp_path: Path) -> None:
    backend = BwrapBackend(SandboxConfig(), owner_of(tmp_path))
    hole = os.memfd_create("hole")
    os.write(hole, compile_filter(()))
    backend._machine = replace(backend.machine(), filter=hole)
    with pytest.raises(SandboxUnavailableError, match="does not keep") as caught:
        await backend.self_test()
    for claim in ("no io_uring", "no ptrace", "no socket family but unix and inet"):
        assert claim in str(caught.value)
    os.close(hole)


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def mounted() -> str:
    return Path("/proc/self/mounts").read_text()


@pytest.mark.root
async def test_every_sandbox_has_a_uid_of_its_own_and_leaves_nothing(tmp_path: Path) -> None:
    backend = BwrapBackend(SandboxConfig(), owner_of(tmp_path))
    before, mounts = open_files(), mounted()
    backend.machine()
    kept = open_files()
    async with backend.open(SandboxSpec()) as one, backend.open(SandboxSpec()) as two:
        assert one._place.uid != two._place.uid
        await one.run(Command(argv=("true",)))
        assert mounted() == mounts
        groups = [*one._place.group.folders, *two._place.group.folders]
        assert all(folder.is_dir() for folder in groups)
    assert not any(folder.exists() for folder in groups)
    assert open_files() == kept == before + 1  # the compiled filter
