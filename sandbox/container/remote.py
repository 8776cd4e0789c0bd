"""Brings an engine, wherever it is, to one unix socket on this machine; all else speaks to that socket.

A far engine's socket lies in a folder that only this user can enter. What goes wrong on the way is told by `why`, since
those who speak to the socket see no more than a connection that ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import socket
import ssl
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from sandbox.container.address import Address, address_of
from sandbox.errors import SandboxLostError

_PATIENCE = 30.0  # seconds that a way may take to open
_LAST_WORDS = 0.3
_CONNECTIONS = 256
_CHUNK = 64 * 1024
_PASSED_ON = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "SSH_AUTH_SOCK")
_SSH = {
    "BatchMode": "yes",  # nobody is there to be asked
    "ExitOnForwardFailure": "yes",
    "StreamLocalBindMask": "0177",
    "ConnectTimeout": "15",
    "ServerAliveInterval": "15",
    "ServerAliveCountMax": "3",
    "ControlMaster": "no",
    "ControlPath": "none",
    "ForwardAgent": "no",
    "ForwardX11": "no",
    "PermitLocalCommand": "no",
    "LogLevel": "INFO",  # tells of far sockets that could not be opened
}
_SSH_MENDS = (
    ("Host key verification failed", "its host key is not known here: connect once by hand and check it"),
    ("REMOTE HOST IDENTIFICATION", "its host key has changed: find out why before you trust the new one"),
    ("Permission denied", "no key of this user is let in: ssh-copy-id, or load the key into the agent"),
    ("Could not resolve", "the name is not known: mend DOCKER_HOST"),
    ("Connection refused", "no ssh server listens there: start it, or mend the port in DOCKER_HOST"),
    ("timed out", "nothing answers there: is the machine up, and let through by its firewall?"),
    ("open failed", "the engine's socket is not there, or the user may not open it: add the user to its group"),
)


class Way(Protocol):
    """A way to one engine. ``local`` tells whether it is an engine of this machine."""

    @property
    def local(self) -> bool: ...

    @property
    def told(self) -> str: ...

    async def path(self) -> str:
        """The socket to speak to, the way opened or reopened. Raises SandboxLostError with reason and mend."""

    async def why(self) -> str:
        """What last went wrong on the way, or nothing."""

    async def close(self) -> None: ...


def way_to(environment: Mapping[str, str]) -> Way:
    """The way to the engine that the environment names; nothing is opened yet. Raises SandboxUnavailableError."""
    address = address_of(environment)
    if address.kind == "unix":
        return LocalSocket(address)
    if address.kind == "ssh":
        return SshForward(address, environment)
    return TcpRelay(address)


class LocalSocket:
    """An engine's own socket."""

    def __init__(self, address: Address) -> None:
        self.local = True
        self.told = address.told
        self._path = address.path

    async def path(self) -> str:
        """Connects once by hand: where no engine listens, the SDK would leave its socket open."""
        _knock(self._path)
        return self._path

    async def why(self) -> str:
        """Nothing lies in between."""
        return ""

    async def close(self) -> None:
        """Nothing is held."""


def _knock(path: str) -> None:
    """Never waits: a unix socket is connected at once, or its queue is full and someone listens."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(0)
        try:
            probe.connect(path)
        except BlockingIOError:
            return
        except OSError as error:
            raise SandboxLostError(
                f'no Docker engine listens at {path} ({error.strerror or error}); mend: as root, eval "$(scripts/'
                'start-docker)", or set DOCKER_HOST'
            ) from error


class SshForward:
    """OpenSSH forwards the far engine's socket to one of ours, with the keys, names and jumps of the user's own ssh."""

    def __init__(self, address: Address, environment: Mapping[str, str]) -> None:
        self.local = False
        self.told = address.told
        self._address = address
        self._environment = {name: environment[name] for name in _PASSED_ON if name in environment}
        self._opening = asyncio.Lock()
        self._folder: str | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._listening: asyncio.Task[None] | None = None
        self._said = b""

    async def path(self) -> str:
        """As the protocol says."""
        async with self._opening:
            self._folder = self._folder or tempfile.mkdtemp(prefix="swarm-engine-")
            target = Path(self._folder, "engine.sock")
            if self._process is None or self._process.returncode is not None:
                await self._end()
                await asyncio.to_thread(target.unlink, missing_ok=True)
                await self._open(target)
            return str(target)

    async def why(self) -> str:
        """The last words of ssh, with what to do about them. They may come after the connection broke."""
        if not self._said:
            await asyncio.sleep(_LAST_WORDS)
        words = self._said.decode("utf-8", "replace").strip()
        mends = [mend for sign, mend in _SSH_MENDS if sign in words]
        return " ".join(words.split())[-400:] + (f"; mend: {mends[0]}" if mends else "")

    async def close(self) -> None:
        """End ssh and remove the folder."""
        async with self._opening:
            await self._end()
            if self._folder is not None:
                await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)
                self._folder = None

    async def _open(self, target: Path) -> None:
        path = self._environment.get("PATH")
        program = shutil.which("ssh", path=path)
        if program is None:
            raise SandboxLostError(f"{self.told} needs OpenSSH; mend: apt-get install openssh-client")
        # The far socket must not outlive us, not even when we are killed.
        guard = shutil.which("setpriv", path=path)
        self._said = b""
        self._process = await asyncio.create_subprocess_exec(
            *((guard, "--pdeathsig", "TERM") if guard else ()),
            *ssh_argv(self._address, program, target),
            env=self._environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        self._listening = asyncio.create_task(self._listen(self._process))
        until = asyncio.get_running_loop().time() + _PATIENCE
        while not os.path.exists(target):  # noqa: ASYNC240, PTH110 - ssh makes it without a word
            late = asyncio.get_running_loop().time() > until
            if self._process.returncode is not None or late:
                await self._end()
                reason = await self.why() or ("it took longer than 30 s" if late else "ssh ended without a word")
                raise SandboxLostError(f"the Docker engine at {self.told} cannot be reached: {reason}")
            await asyncio.sleep(0.02)

    async def _listen(self, process: asyncio.subprocess.Process) -> None:
        while process.stderr is not None and (words := await process.stderr.read(4096)):
            self._said = (self._said + words)[-4096:]

    async def _end(self) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.terminate()
            try:
                await asyncio.wait_for(self._process.wait(), 5)
            except TimeoutError:
                self._process.kill()
                await self._process.wait()
        if self._listening is not None:
            await asyncio.gather(self._listening, return_exceptions=True)
        self._process = self._listening = None


def ssh_argv(address: Address, program: str, target: Path) -> list[str]:
    """What forwards the far socket to ``target``, and does nothing else."""
    options = [word for name, value in _SSH.items() for word in ("-o", f"{name}={value}")]
    user = ["-l", address.user] if address.user else []
    port = ["-p", str(address.port)] if address.port else []
    return [program, "-nNT", *options, "-L", f"{target}:{address.path}", *user, *port, "--", address.host]


class TcpRelay:
    """Relays our socket's connections to an engine's TCP port, over TLS in which both sides prove who they are."""

    def __init__(self, address: Address) -> None:
        self.local = False
        self.told = address.told
        self._address = address
        self._opening = asyncio.Lock()
        self._folder: str | None = None
        self._server: asyncio.Server | None = None
        self._open = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._why = ""

    async def path(self) -> str:
        """As the protocol says."""
        async with self._opening:
            if self._server is None:
                context = await asyncio.to_thread(_tls, self._address) if self._address.kind == "tls" else None
                self._folder = tempfile.mkdtemp(prefix="swarm-engine-")

                def begin(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                    task = asyncio.create_task(self._relay(reader, writer, context))
                    self._tasks.add(task)
                    task.add_done_callback(self._tasks.discard)

                self._server = await asyncio.start_unix_server(begin, os.path.join(self._folder, "engine.sock"))  # noqa: PTH118
            return os.path.join(self._folder or "", "engine.sock")  # noqa: PTH118

    async def why(self) -> str:
        """What ended the last connection that failed."""
        return self._why

    async def close(self) -> None:
        """End all connections and remove the folder."""
        async with self._opening:
            if self._server is not None:
                self._server.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            if self._folder is not None:
                await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)
            self._server = self._folder = None

    async def _relay(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, context: ssl.SSLContext | None
    ) -> None:
        """One connection to its end. TLS has no half-close here, so the end of either direction is the end of both."""
        far: asyncio.StreamWriter | None = None
        try:
            if len(self._tasks) > _CONNECTIONS:
                self._why = f"more than {_CONNECTIONS} connections at a time"
                return
            async with asyncio.timeout(_PATIENCE):
                name = self._address.host if context else None
                back, far = await asyncio.open_connection(
                    self._address.host, self._address.port, ssl=context, server_hostname=name
                )
            pumps = [asyncio.create_task(_pump(reader, far)), asyncio.create_task(_pump(back, writer))]
            try:
                done, _ = await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
                for pump in done:
                    pump.result()
            finally:
                for pump in pumps:
                    pump.cancel()
                await asyncio.gather(*pumps, return_exceptions=True)
            self._why = ""
        except (OSError, ssl.SSLError, TimeoutError) as error:
            self._why = explained(error, self._address)
        finally:
            for side in (writer, far):
                if side is not None:
                    side.close()
                    with contextlib.suppress(OSError, ssl.SSLError):
                        await asyncio.wait_for(asyncio.shield(side.wait_closed()), 2)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(_CHUNK):
        writer.write(data)
        await writer.drain()


def _tls(address: Address) -> ssl.SSLContext:
    """A context that trusts the folder's ca.pem alone and shows its cert.pem. Raises SandboxLostError."""
    folder = Path(address.certificates)
    for name in ("ca.pem", "cert.pem", "key.pem"):
        if not os.access(folder / name, os.R_OK):
            raise SandboxLostError(
                f"the Docker engine at {address.told} needs {folder / name}, which cannot be read; "
                "mend: put ca.pem, cert.pem and key.pem there, or set DOCKER_CERT_PATH"
            )
    try:
        context = ssl.create_default_context(cafile=str(folder / "ca.pem"))
        context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    except (OSError, ssl.SSLError) as error:
        raise SandboxLostError(
            f"the certificates in {folder} cannot be used ({error}); mend: make them anew"
        ) from error
    return context


def explained(error: Exception, address: Address) -> str:
    """Why a connection failed, and what to do."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"its certificate is not trusted ({error.verify_message}); mend: the engine's certificate must name "
            f"{address.host} and be signed by {address.certificates}/ca.pem"
        )
    if isinstance(error, ssl.SSLError):
        return (
            f"TLS failed ({error.reason or error}); mend: the engine must speak TLS on port {address.port} and trust "
            f"the authority that signed {address.certificates}/cert.pem"
        )
    if isinstance(error, TimeoutError):
        return f"port {address.port} of {address.host} does not answer; mend: is the machine up, and let through?"
    return f"{error.strerror if isinstance(error, OSError) and error.strerror else error}; mend: is its engine up?"
