"""The recipes for a real machine: the systemd unit, judged by systemd itself and lived under, and the container."""

from __future__ import annotations

import configparser
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from broker.wire import Receipt
from tests.broker.test_server import Running

ROOT = Path(__file__).parents[2]
UNIT = ROOT / "examples" / "systemd" / "swarm-broker.service"
CONTAINER = ROOT / "examples" / "container"
needs_systemd = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")

MUST = {
    "Type": "notify",
    "User": "swarm-broker",
    "NoNewPrivileges": "yes",
    "ProtectSystem": "strict",
    "ProtectHome": "yes",
    "ProtectProc": "invisible",
    "ProcSubset": "pid",
    "PrivateTmp": "yes",
    "PrivateDevices": "yes",
    "MemoryDenyWriteExecute": "yes",
    "RestrictNamespaces": "yes",
    "RestrictAddressFamilies": "AF_UNIX AF_INET AF_INET6",
    "CapabilityBoundingSet": "",
    "AmbientCapabilities": "",
    "LimitCORE": "0",
    "UMask": "0077",
    "StateDirectory": "swarm-broker",
    "StateDirectoryMode": "0700",
    "RuntimeDirectory": "swarm-broker",
    "SystemCallArchitectures": "native",
}


def service() -> list[tuple[str, str]]:
    """The unit's settings, repeated ones too."""
    lines = UNIT.read_text().partition("[Service]")[2].partition("[Install]")[0].splitlines()
    return [
        (key, value) for key, _, value in (line.partition("=") for line in lines) if key and not key.startswith("#")
    ]


def test_the_unit_shuts_what_it_says_it_shuts():
    assert dict(service()).items() >= MUST.items()
    assert "PrivateUsers" not in dict(service())  # every caller would be "nobody" to the kernel
    parsed = configparser.ConfigParser(strict=False, interpolation=None)
    parsed.read(UNIT)
    assert set(parsed.sections()) == {"Unit", "Service", "Install"}


@needs_systemd
def test_systemd_itself_finds_no_fault_and_little_exposure(tmp_path):
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace("/opt/swarm-broker/bin/swarm-broker", sys.executable))
    found = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False)
    assert (found.returncode, found.stdout + found.stderr) == (0, "")
    command = ["systemd-analyze", "security", "--offline=true", "--threshold=20", "--no-pager", str(unit)]
    judged = subprocess.run(command, capture_output=True, text=True, check=False)
    assert judged.returncode == 0, judged.stdout


_FILTERED = """
import ctypes, os, sys
import pyseccomp
allowed = sys.argv[1].split(",")
libc = ctypes.CDLL(None, use_errno=True)
filter = pyseccomp.SyscallFilter(pyseccomp.ERRNO(1))
for name in allowed:
    try:
        filter.add_rule(pyseccomp.ALLOW, name)
    except (OSError, ValueError):
        pass  # a call of another kernel or machine
filter.load()
libc.prctl(65, 1, 0, 0, 0)  # PR_SET_MDWE: no memory is writable and executable, here and in every child
os.execv(sys.executable, [sys.executable, "-m", "broker", "serve", "--config", sys.argv[2]])
"""


def expanded(names: str) -> set[str]:
    """The calls that a filter's words mean, groups opened."""
    found: set[str] = set()
    for name in names.split():
        if not name.startswith("@"):
            found.add(name)
            continue
        command = ["systemd-analyze", "syscall-filter", "--no-pager", name]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        inside = [line.strip() for line in said.splitlines() if re.match(r"\s+[@a-z0-9_-]+$", line)]
        found |= expanded(" ".join(inside))
    return found


def allowed_calls() -> set[str]:
    """What the unit's lines leave, in their order."""
    left: set[str] = set()
    for key, value in service():
        if key == "SystemCallFilter":
            left = left - expanded(value[1:]) if value.startswith("~") else left | expanded(value)
    return left


class Filtered(Running):
    """A broker that lives under the unit's filter of system calls and without writable, executable memory."""

    def command(self) -> list[str]:
        return [sys.executable, "-c", _FILTERED, ",".join(sorted(allowed_calls())), str(self.config)]


@needs_systemd
@pytest.mark.slow
def test_the_broker_lives_and_delivers_under_the_unit_s_filter_of_system_calls(tmp_path, agent):
    calls = allowed_calls()
    assert {"ptrace", "mount", "setuid", "keyctl", "bpf", "sched_setscheduler", "mlock", "io_uring_setup"}.isdisjoint(
        calls
    )
    assert {"openat", "socket", "execve", "prlimit64", "fchownat"} <= calls
    running = Filtered(tmp_path, agent, more='socket_group = "root"')
    try:
        running.start()
        assert isinstance(
            Receipt.model_validate_json(running.call("POST", "/v1/propose", running.proposal()).content), Receipt
        )
        assert running.call("GET", "/v1/pulls/demo/1", people=True).status_code == 200
    finally:
        said = running.end()
    assert running.process is not None
    assert running.process.returncode == 0, said


def test_the_container_keeps_what_its_page_says():
    words = " ".join((CONTAINER / "run-broker").read_text().replace("\\\n", " ").split())
    for option in (
        "--user 964:964",
        "--read-only",
        "--cap-drop ALL",
        "--security-opt no-new-privileges",
        "--tmpfs /tmp:rw,noexec,nosuid,nodev",
        "--ulimit core=0",
        "--pids-limit 512",
        '"$root"/etc/swarm-broker:/etc/swarm-broker:ro',
    ):
        assert option in words
    assert not re.search(r"--privileged|--network|--pid |docker\.sock|--env|-e ", words)
    recipe = (CONTAINER / "broker.Dockerfile").read_text()
    assert "\nUSER 964:964\n" in recipe
    assert not re.search(r"^(ARG|ENV) .*(TOKEN|SECRET|KEY)", recipe, re.MULTILINE | re.IGNORECASE)
    assert subprocess.run(["/bin/sh", "-n", str(CONTAINER / "run-broker")], check=False).returncode == 0
