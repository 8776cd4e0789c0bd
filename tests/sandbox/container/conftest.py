"""A far machine on the loopback: an ssh server with keys of its own, and an engine that asks for certificates."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import docker
import pytest
import trustme

from sandbox.config import SandboxConfig

ROOT = Path(__file__).resolve().parents[3]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def engine_socket() -> str:
    """The socket of the engine that tests with the marker docker use."""
    return os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock").removeprefix("unix://")


def script(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


@dataclass
class FarMachine:
    """An ssh server on ``port``. ``environment`` is that of a client whose ssh knows it and whose key it takes."""

    folder: Path
    port: int
    server: subprocess.Popen[bytes]

    @property
    def environment(self) -> dict[str, str]:
        host = f"ssh://root@127.0.0.1:{self.port}{engine_socket()}"
        return {"PATH": f"{self.folder}/bin:{os.environ['PATH']}", "DOCKER_HOST": host}

    def client(self, *, known: str = "known_hosts", key: str = "client") -> None:
        """Settle which hosts and which key the client's ssh has."""
        words = f"-o UserKnownHostsFile={self.folder / known} -o GlobalKnownHostsFile=/dev/null -o IdentitiesOnly=yes"
        program = shutil.which("ssh", path=os.environ["PATH"])
        script(self.folder / "bin" / "ssh", f'exec {program} -F none {words} -i {self.folder / key} "$@"')


def _wait(port: int) -> None:
    until = time.monotonic() + 10
    while time.monotonic() < until:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    pytest.fail(f"nothing listens on port {port}")


@pytest.fixture
def far_machine(tmp_path: Path) -> Iterator[FarMachine]:
    """A real sshd, in the foreground, from a temporary folder."""
    sshd = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin")
    if sshd is None or os.geteuid() != 0:
        pytest.skip("needs root and sshd: apt-get install openssh-server openssh-client")
    folder = tmp_path / "far"
    (folder / "bin").mkdir(parents=True)
    Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # its own privilege separation insists
    for name in ("host", "other_host", "client", "stranger"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
    port = free_port()
    shutil.copy(folder / "client.pub", folder / "authorized_keys")
    for file, key in (("known_hosts", "host"), ("wrong_hosts", "other_host")):
        (folder / file).write_text(f"[127.0.0.1]:{port} {(folder / f'{key}.pub').read_text()}")
    (folder / "no_hosts").write_text("")
    (folder / "sshd_config").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {folder}/host\nPidFile none\nUsePAM no\nStrictModes no\n"
        f"AuthorizedKeysFile {folder}/authorized_keys\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n"
        "PermitRootLogin prohibit-password\n"
    )
    log = (folder / "sshd.log").open("wb")
    with log, subprocess.Popen([sshd, "-D", "-e", "-f", folder / "sshd_config"], stderr=log) as server:
        _wait(port)
        machine = FarMachine(folder, port, server)
        machine.client()
        yield machine
        server.terminate()


@dataclass(frozen=True)
class Certified:
    """An engine on a TCP port that talks to those alone who show a certificate of its authority."""

    port: int
    folder: Path

    def environment(self, certificates: str = "client", host: str = "127.0.0.1") -> dict[str, str]:
        """The environment of a client with one of the folders of certificates."""
        return {
            "DOCKER_HOST": f"tcp://{host}:{self.port}",
            "DOCKER_TLS_VERIFY": "1",
            "DOCKER_CERT_PATH": str(self.folder / certificates),
        }


def certificates(folder: Path, authority: trustme.CA, trusted: trustme.CA, *names: str) -> None:
    """The three files of Docker's own: a certificate of ``authority``, and trust in ``trusted``."""
    folder.mkdir()
    leaf = authority.issue_cert(*names)
    leaf.private_key_pem.write_to_path(str(folder / "key.pem"))
    for blob in leaf.cert_chain_pems:
        blob.write_to_path(str(folder / "cert.pem"), append=True)
    trusted.cert_pem.write_to_path(str(folder / "ca.pem"))


@pytest.fixture(scope="session")
def certified() -> Iterator[Certified]:
    """A real engine of its own with --tlsverify, and a runtime ``stuck`` that never answers; it holds no image."""
    folder = Path(tempfile.mkdtemp(prefix="certified-"))  # short: an engine's sockets have names of limited length
    ours, theirs = trustme.CA(), trustme.CA()
    certificates(folder / "server", ours, ours, "127.0.0.1")
    certificates(folder / "client", ours, ours, "client@example.org")
    certificates(folder / "stranger", theirs, ours, "client@example.org")
    certificates(folder / "distrustful", ours, theirs, "client@example.org")
    script(folder / "stuck", f"echo $$ >>{folder}/stuck.pids; exec sleep 600")
    port, files = free_port(), folder / "server"
    options = ["-H", f"tcp://127.0.0.1:{port}", "--tlsverify", "--tlscacert", files / "ca.pem"]
    options += [
        "--tlscert",
        files / "cert.pem",
        "--tlskey",
        files / "key.pem",
        "--add-runtime",
        f"stuck={folder}/stuck",
    ]
    engine = folder / "engine"
    subprocess.run([ROOT / "scripts/start-docker", "start", engine, "--", *options], check=True, stdout=subprocess.PIPE)
    try:
        yield Certified(port, folder)
    finally:
        for pid in (folder / "stuck.pids").read_text().split() if (folder / "stuck.pids").exists() else ():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        subprocess.run([ROOT / "scripts/start-docker", "stop", engine], check=True, capture_output=True)
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def furnished(certified: Certified) -> Certified:
    """The same engine with the base image, taken over from the engine of the other tests."""
    archive = certified.folder / "image.tar"
    here = docker.from_env(timeout=120)
    there = docker.DockerClient(base_url=f"unix://{certified.folder}/engine/docker.sock", timeout=120)
    with archive.open("wb") as file:
        for piece in here.images.get(SandboxConfig().image).save(named=True):
            file.write(piece)
    with archive.open("rb") as file:
        there.images.load(file)
    archive.unlink()
    for client in (here, there):
        client.close()
    return certified
