"""What an operator may show to sandboxes, and what is refused."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from pydantic import ValidationError

from sandbox.config import SandboxConfig
from sandbox.errors import SandboxUnavailableError
from sandbox.mounts import refusal, resolved


@pytest.mark.parametrize(
    ("inside", "host"),
    [
        *((place, "/srv/tools") for place in ("/", "/work", "/work/x", "/home", "/home/agent/x", "/proc/x", "/dev")),
        *(
            (place, "/srv/tools")
            for place in ("/tmp/x", "/etc", "/run/x", "/.swarm/usr", "opt/x", "/opt/../work", "/opt/")
        ),
        *(("/opt/x", host) for host in ("/", "/proc", "/dev/shm", "/run/docker.sock", "/var/run", "/var", "/etc/x")),
        *(("/opt/x", host) for host in ("/root/x", "/var/lib/swarm-broker", "/var/lib/agent-swarm/x", "/home/me/.ssh")),
        *(("/opt/x", host) for host in ("/home/me/.config/gh", "/srv/x/docker.sock", "relative", "/srv/../root")),
    ],
)
def test_places_of_the_sandboxes_and_places_of_secrets_are_refused(inside: str, host: str) -> None:
    assert refusal(inside, host)
    with pytest.raises(ValidationError, match=r"sandbox\.mounts"):
        SandboxConfig(mounts={inside: host})


def test_a_folder_of_tools_may_be_shown(tmp_path: Path) -> None:
    assert refusal("/opt/tools", "/srv/tools") is None
    (tmp_path / "link").symlink_to(tmp_path)
    config = SandboxConfig(mounts={"/opt/tools": str(tmp_path / "link")})
    assert resolved(config.mounts) == {"/opt/tools": str(tmp_path.resolve())}


def test_a_link_to_secrets_and_a_folder_that_holds_some_are_refused(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/proc/self")
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / ".netrc").touch()
    (tmp_path / "sockets").mkdir()
    for name in ("link", "home", "none"):
        with pytest.raises(SandboxUnavailableError, match="mend: "):
            resolved({"/opt/x": str(tmp_path / name)})
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "sockets" / "any"))
        for path in ("sockets", "sockets/any"):
            with pytest.raises(SandboxUnavailableError, match="any"):
                resolved({"/opt/x": str(tmp_path / path)})
