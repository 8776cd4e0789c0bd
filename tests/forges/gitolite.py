"""Gitolite behind an sshd of its own on a loopback port: an independent judge of who may push which branch.

The agent's key may read everything and write below refs/heads/swarm/, without force; that is the broker's own rule.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.forges.bare import Bare
from tests.forges.parts import free_port, running

_NEEDS = {"gitolite": "gitolite3", "sshd": "openssh-server", "ssh": "openssh-client"}
_STARTING = 20.0  # seconds
_RULES = """repo proj
    RW+                 = admin
    RW refs/heads/swarm/ = agent
    R                   = agent
"""
_SSHD = """
Port {port}
ListenAddress 127.0.0.1
HostKey {folder}/host
PidFile none
AuthorizedKeysFile {folder}/.ssh/authorized_keys
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
PermitRootLogin prohibit-password
StrictModes no
SetEnv HOME={folder}
"""


@dataclass(frozen=True)
class Gitolite:
    """A running one with one empty repository."""

    address: str
    repository: Bare
    folder: Path

    def ssh(self, who: str) -> str:
        """The command that git reaches it by as somebody: admin or agent."""
        known = (
            f"-o UserKnownHostsFile={self.folder}/known -o StrictHostKeyChecking=yes -o GlobalKnownHostsFile=/dev/null"
        )
        return f"ssh -F /dev/null -i {self.folder}/{who} -o IdentitiesOnly=yes -o BatchMode=yes {known}"


@pytest.fixture(scope="session")
def gitolite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gitolite]:
    """Skips with the reason where a part is missing."""
    path = f"{os.environ['PATH']}:/usr/sbin"
    missing = [package for program, package in _NEEDS.items() if shutil.which(program, path=path) is None]
    if missing or os.geteuid() != 0:
        pytest.skip(f"needs root and {', '.join(_NEEDS.values())}: apt-get install -y --no-install-recommends")
    folder, port = tmp_path_factory.mktemp("gitolite"), free_port()
    _prepare(folder, port)
    Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # its own privilege separation insists
    sshd = shutil.which("sshd", path=path)
    assert sshd is not None
    with running(folder / "sshd.log", sshd, "-D", "-e", "-f", folder / "sshd_config"):
        _await(port, folder)
        user = subprocess.run(["id", "-un"], capture_output=True, text=True, check=True).stdout.strip()
        repository = Bare(folder / "repositories" / "proj.git")
        yield Gitolite(f"ssh://{user}@127.0.0.1:{port}/proj", repository, folder)


def _prepare(folder: Path, port: int) -> None:
    env = {"PATH": os.environ["PATH"], "HOME": str(folder), "USER": "root", "LOGNAME": "root", "LC_ALL": "C"}

    def run(*command: str) -> None:
        subprocess.run(command, env=env, cwd=folder, check=True, capture_output=True, timeout=60)

    for name in ("host", "admin", "agent"):
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", name)
    run("git", "config", "--global", "user.email", "admin@example.org")
    run("git", "config", "--global", "user.name", "admin")
    run("gitolite", "setup", "-pk", "admin.pub")
    keys = folder / ".gitolite" / "keydir"
    keys.mkdir(parents=True, exist_ok=True)
    for name in ("admin", "agent"):
        shutil.copy(folder / f"{name}.pub", keys / f"{name}.pub")
    (folder / ".gitolite" / "conf" / "gitolite.conf").write_text(_RULES)
    run("gitolite", "compile")
    run("gitolite", "trigger", "POST_COMPILE")
    (folder / "sshd_config").write_text(_SSHD.format(folder=folder, port=port))
    host = " ".join((folder / "host.pub").read_text().split()[:2])
    (folder / "known").write_text(f"[127.0.0.1]:{port} {host}\n")


def _await(port: int, folder: Path) -> None:
    until = time.monotonic() + _STARTING
    while time.monotonic() < until:
        with socket.socket() as probe:
            probe.settimeout(1)
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    pytest.fail(f"sshd did not start:\n{(folder / 'sshd.log').read_text()}")
