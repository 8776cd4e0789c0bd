"""DOCKER_HOST is read as Docker's own client reads it, and nothing unsafe is taken."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox.container.address import address_of
from sandbox.container.remote import way_to
from sandbox.container.ssh import SshForward, ssh_argv
from sandbox.errors import SandboxUnavailableError


def test_without_a_word_it_is_the_local_socket() -> None:
    for environment in ({}, {"DOCKER_HOST": ""}):
        address = address_of(environment)
        assert (address.kind, address.path, address.local) == ("unix", "/var/run/docker.sock", True)
    assert address_of({"DOCKER_HOST": "unix:///run/user/1000/docker.sock"}).path == "/run/user/1000/docker.sock"


def test_ssh_takes_user_port_and_the_far_sockets_path() -> None:
    address = address_of({"DOCKER_HOST": "ssh://me@far.example:2222"})
    assert (address.user, address.host, address.port, address.local) == ("me", "far.example", 2222, False)
    argv = ssh_argv(address, "ssh", Path("/x/engine.sock"))
    assert argv[argv.index("-L") + 1] == "/x/engine.sock:/var/run/docker.sock"
    assert argv[-6:] == ["-l", "me", "-p", "2222", "--", "far.example"]
    assert "BatchMode=yes" in argv
    assert "ExitOnForwardFailure=yes" in argv
    assert address_of({"DOCKER_HOST": "ssh://far/run/user/7/docker.sock"}).path == "/run/user/7/docker.sock"
    assert isinstance(way_to({"DOCKER_HOST": "ssh://far"}), SshForward)


def test_tcp_without_tls_is_for_this_machine_alone() -> None:
    for host in ("127.0.0.1", "localhost", "[::1]", "127.8.8.8"):
        assert address_of({"DOCKER_HOST": f"tcp://{host}:2375"}).kind == "tcp"
    for host in ("10.0.0.1:2375", "far.example", "127.0.0.1.far.example:2375", "0.0.0.0:2375", "localhost.evil"):
        with pytest.raises(SandboxUnavailableError, match=r"plain TCP to another machine.*mend: DOCKER_TLS_VERIFY"):
            address_of({"DOCKER_HOST": f"tcp://{host}"})
        with pytest.raises(SandboxUnavailableError, match="plain TCP"):  # that would check nobody
            address_of({"DOCKER_HOST": f"tcp://{host}", "DOCKER_TLS": "1", "DOCKER_TLS_VERIFY": ""})


def test_tls_takes_the_folder_of_certificates_as_dockers_client_does() -> None:
    environment = {"DOCKER_HOST": "tcp://far.example", "DOCKER_TLS_VERIFY": "1", "HOME": "/home/me"}
    address = address_of(environment)
    assert (address.kind, address.port, address.certificates) == ("tls", 2376, "/home/me/.docker")
    assert address_of(environment | {"DOCKER_CERT_PATH": "/certs"}).certificates == "/certs"


@pytest.mark.parametrize(
    "told",
    [
        "far.example:2375",
        "http://far.example",
        "npipe:////./pipe/docker_engine",
        "unix://relative/docker.sock",
        "ssh://",
        "ssh://-oProxyCommand=touch%20x@far",
        "ssh://-oProxyCommand=touch",
        "ssh://far/a:b",
        "ssh://me:secret@far",
        "tcp://127.0.0.1:port",
        "tcp://127.0.0.1:2375/path",
    ],
)
def test_what_is_no_engine_is_refused_with_what_to_do(told: str) -> None:
    """An option for a name is CVE-2017-1000117's trick."""
    with pytest.raises(SandboxUnavailableError, match="mend: ") as caught:
        address_of({"DOCKER_HOST": told})
    assert "secret" not in str(caught.value)
