"""The doctor's judgement, and its report on a good and on a bare installation."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sandbox.bubblewrap.binary import candidates
from swarm.cli import examine, judge
from swarm.config import RepositoryConfig
from swarm.config_file import SYSTEM
from swarm.shown import EndpointView, SandboxView

GIB = 1024**3


@pytest.mark.parametrize(
    ("said", "level"),
    [
        ("git version 2.39.5\n", "ok"),
        ("git version 2.30.0.windows.1", "ok"),
        ("git version 2.25.1", "warn"),
        ("git version 1.9", "warn"),
        ("?\x1b[31m", "warn"),
    ],
)
def test_old_gits_are_warned_of(said: str, level: str) -> None:
    finding = judge.git(said)
    assert finding.level == level
    assert bool(finding.mend) == (level != "ok")


@pytest.mark.parametrize(("free", "level"), [(GIB // 4, "fail"), (2 * GIB, "warn"), (50 * GIB, "ok")])
def test_little_room_is_told(free: int, level: str) -> None:
    assert judge.disk(free, Path("/x")).level == level


def test_one_user_for_broker_and_daemon_is_warned_of() -> None:
    assert judge.users(5, 5, 9).level == "warn"
    assert judge.users(5, 0, 9).level == "warn"
    assert judge.users(5, 6, 5).level == "ok"
    assert judge.users(5, None, 5).level == "warn"
    assert judge.users(5, None, 0).level == "ok"


def test_repositories_that_the_broker_does_not_know_are_named() -> None:
    (finding,) = judge.names(["web"], ["web", "wbe"])
    assert "wbe" in finding.text
    assert judge.names(["web"], ["web"]) == []


def test_repositories_whose_tests_nobody_named_are_named() -> None:
    tested, untested = RepositoryConfig(test_command="true"), RepositoryConfig()
    (finding,) = judge.untested(["web", "api", "new"], {"web": tested, "api": untested})
    assert "for api, new:" in finding.text
    assert judge.untested(["web"], {"web": tested}) == []


def test_a_server_that_is_down_matters_when_it_is_the_last_of_its_tier() -> None:
    up, down = EndpointView(name="a", tier="t", up=True), EndpointView(name="b", tier="t", up=False, detail="gone")
    assert [f.level for f in judge.endpoints([up, down])] == ["ok", "warn"]
    (finding,) = judge.endpoints([down])
    assert (finding.level, bool(finding.mend)) == ("fail", True)


def test_a_sandbox_that_breaks_a_claim_fails() -> None:
    assert judge.sandbox(SandboxView(backend="bwrap", proved=("a",))).level == "ok"
    assert judge.sandbox(SandboxView(backend="bwrap", failed=("memory",))).level == "fail"


def stat_of(mode: int, uid: int, gid: int) -> os.stat_result:
    return os.stat_result((mode, 0, 0, 1, uid, gid, 0, 0, 0, 0))


@pytest.mark.parametrize(
    ("mode", "uid", "groups", "may"),
    [
        (0o140660, 0, [], True),
        (0o140660, 7, [44], True),
        (0o140660, 7, [45], False),
        (0o140666, 7, [], True),
        (0o140600, 7, [44], False),
    ],
)
def test_who_may_command_docker(mode: int, uid: int, groups: list[int], may: bool) -> None:
    assert judge.may_write(stat_of(mode, 0, 44), uid, groups) is may


def test_a_docker_socket_that_is_not_there_is_no_danger(tmp_path: Path) -> None:
    assert examine.docker_socket(0, tmp_path / "none") is None


def report(ran: Any) -> dict[str, dict[str, str]]:
    return {line["subject"]: line for line in json.loads(ran.out)}


@pytest.mark.slow
def test_a_working_installation(swarm) -> None:
    ran = swarm("doctor", "--json")
    found = report(ran)
    assert ran.code == 0, ran.out + ran.err
    assert {found[name]["level"] for name in ("python", "config", "daemon", "broker", "endpoint box", "sandbox")} == {
        "ok"
    }
    assert found["users"]["level"] == "warn"
    assert "takes you for: person, coordinator" in found["broker"]["text"]


@pytest.mark.root
def test_the_broker_s_user_is_the_one_who_listens_and_not_the_one_who_asks(swarm, installation) -> None:
    socket = installation.folder / "broker.sock"
    os.chown(socket, 4242, -1)
    try:
        found = report(swarm("doctor", "--json"))
    finally:
        os.chown(socket, os.getuid(), -1)
    assert "same user" not in found["users"]["text"]
    assert "runs as uid 4242" in found["broker"]["text"]


def test_a_socket_for_people_that_is_out_of_reach_is_told_with_its_setting(swarm, installation) -> None:
    people = installation.folder / "person.sock"
    people.rename(aside := people.with_suffix(".aside"))
    try:
        found = report(swarm("doctor", "--json"))
    finally:
        aside.rename(people)
    assert found["broker"]["level"] == "ok"
    assert found["grants"]["level"] == "warn"
    assert "broker.person_socket" in found["grants"]["mend"]


def test_each_line_says_its_level_and_the_mend(swarm) -> None:
    ran = swarm("doctor")
    assert ran.code == 0
    assert "\x1b" not in ran.out
    assert "warn  users: the broker runs as the same user" in ran.out
    assert "      mend: run the broker as a user of its own" in ran.out


@pytest.mark.skipif(SYSTEM.exists(), reason=f"this machine has a {SYSTEM}")
def test_no_settings_is_a_finding_and_not_an_end(installation, swarm, tmp_path: Path) -> None:
    ran = swarm("doctor", "--json", cwd=tmp_path)
    assert ran.code == 1
    found = report(ran)
    assert found["config"]["level"] == "fail"
    assert "swarm init" in found["config"]["mend"]
    assert {"python", "git", "disk"} <= set(found)


BARE = """
[daemon]
state = "state"
socket = "daemon.sock"
[broker]
socket = "broker.sock"
[[pool.endpoints]]
name = "box"
url = "http://127.0.0.1:9"
"""


def without_docker(installation, folder: Path) -> Any:
    """The same installation, where no engine answers and nothing else is on PATH."""
    env = installation.env | {"PATH": str(folder), "DOCKER_HOST": f"unix://{folder}/none.sock"}
    return type(installation)(installation.folder, env)


def test_nothing_is_there(installation, tmp_path: Path) -> None:
    (tmp_path / "swarm.toml").write_text(BARE + '[sandbox]\nbackend = "docker"\n')
    # In a process of its own: Docker's SDK leaves a socket open when no engine answers.
    ran = without_docker(installation, tmp_path).run("doctor", "--json", cwd=tmp_path)
    found = report(ran)
    assert ran.code == 1
    bad = ("git", "daemon", "broker", "endpoint box", "sandbox")
    assert {found[name]["level"] for name in bad} == {"fail"}
    assert all(found[name]["mend"] for name in bad)
    assert "docker" in found["sandbox"]["text"]
    assert "swarm daemon" in found["daemon"]["mend"]


def refused_for_lack_of_a_sandbox(code: int, err: str) -> None:
    assert code == 9, err
    assert "docker: " in err
    assert "mend: " in err
    assert "Traceback" not in err


@pytest.mark.slow
def test_the_daemon_refuses_to_start_without_docker(installation, tmp_path: Path) -> None:
    (tmp_path / "swarm.toml").write_text(BARE + '[sandbox]\nbackend = "docker"\n')
    ran = without_docker(installation, tmp_path).run("daemon", cwd=tmp_path)
    refused_for_lack_of_a_sandbox(ran.code, ran.err)


@pytest.mark.root
def test_the_daemon_refuses_to_start_with_neither_docker_nor_bubblewrap(installation, tmp_path: Path) -> None:
    (tmp_path / "swarm.toml").write_text(BARE)
    # In a mount namespace of its own, every bubblewrap is covered by a file that cannot be run.
    there = [str(path) for path, _ in candidates()]
    assert there
    hidden = " && ".join(
        [*(f"mount --bind /dev/null {path}" for path in there), f"exec {sys.executable} -m swarm daemon"]
    )
    done = subprocess.run(
        ["/usr/bin/unshare", "--mount", "/bin/sh", "-c", hidden],
        env=installation.env | {"DOCKER_HOST": f"unix://{tmp_path}/none.sock"},
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    refused_for_lack_of_a_sandbox(done.returncode, done.stderr)
    assert "bwrap: " in done.stderr


@pytest.mark.slow
def test_the_daemon_refuses_to_start_without_its_keys(installation, tmp_path: Path) -> None:
    (tmp_path / "swarm.toml").write_text(BARE + 'api_key_env = "NO_SUCH_KEY"\n')
    ran = installation.run("daemon", cwd=tmp_path)
    assert ran.code == 3
    assert "the environment variable NO_SUCH_KEY is not set" in ran.err
