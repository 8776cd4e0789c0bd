"""Brings an engine's TCP port to a socket here, over TLS in which both sides prove who they are."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import ssl
import tempfile
from collections.abc import Callable
from pathlib import Path

from sandbox.container.address import Address
from sandbox.errors import SandboxLostError

_PATIENCE = 30.0  # seconds that a connection may take
_CONNECTIONS = 256
_CHUNK = 64 * 1024


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
        answered = False

        def hear() -> None:
            nonlocal answered
            if not answered:
                answered, self._why = True, ""

        try:
            if len(self._tasks) > _CONNECTIONS:
                self._why = f"more than {_CONNECTIONS} connections at a time"
                return
            async with asyncio.timeout(_PATIENCE):
                name = self._address.host if context else None
                back, far = await asyncio.open_connection(
                    self._address.host, self._address.port, ssl=context, server_hostname=name
                )
            to_engine = asyncio.create_task(_pump(reader, far))
            to_us = asyncio.create_task(_pump(back, writer, hear))
            await _until_either_ends(to_engine, to_us, back)
            if not answered and not to_us.cancelled():
                raise ConnectionResetError
        except (OSError, ssl.SSLError, TimeoutError) as error:
            self._why = explained(error, self._address, answered=answered)
        finally:
            for side in (writer, far):
                if side is not None:
                    side.close()
                    with contextlib.suppress(OSError, ssl.SSLError):
                        await asyncio.wait_for(asyncio.shield(side.wait_closed()), 2)


async def _pump(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, hear: Callable[[], None] = lambda: None
) -> None:
    while data := await reader.read(_CHUNK):
        hear()
        writer.write(data)
        await writer.drain()


async def _until_either_ends(
    to_engine: asyncio.Task[None], to_us: asyncio.Task[None], back: asyncio.StreamReader
) -> None:
    """End both when one has ended. Raises what ended them, what the engine said before what our own writing met."""
    pumps = (to_engine, to_us)
    try:
        done, _ = await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for pump in pumps:
            pump.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)
    if (told := back.exception()) is not None:
        raise told
    for pump in done:
        pump.result()


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


def explained(error: Exception, address: Address, *, answered: bool) -> str:
    """Why a connection failed, and what to do. ``answered``: whether the engine had sent anything on it.

    A TLS 1.3 server judges our certificate after our handshake is over (RFC 8446, 4.4): what we see of its refusal is
    an alert or, where the alert is lost in the reset that follows it, no more than the end of the connection.
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"its certificate is not trusted ({error.verify_message}); mend: the engine's certificate must name "
            f"{address.host} and be signed by {address.certificates}/ca.pem"
        )
    if isinstance(error, TimeoutError):
        return f"port {address.port} of {address.host} does not answer; mend: is the machine up, and let through?"
    ended = isinstance(error, ConnectionError) and not isinstance(error, ConnectionRefusedError) and not answered
    if isinstance(error, ssl.SSLError) or (ended and address.kind == "tls"):
        reason = "it ended the connection before any answer" if ended else getattr(error, "reason", None) or error
        return (
            f"TLS failed ({reason}); mend: the engine must speak TLS on port {address.port} and trust "
            f"the authority that signed {address.certificates}/cert.pem"
        )
    if ended:
        return (
            f"port {address.port} of {address.host} ended the connection before any answer; mend: is its engine up? "
            "one that asks for TLS needs DOCKER_TLS_VERIFY=1"
        )
    return f"{_plain(error, address)}; mend: is its engine up?"


def _plain(error: Exception, address: Address) -> str:
    """The kernel's word for what went wrong; asyncio's own names a call of its and the address as Python writes it."""
    if isinstance(error, OSError) and (error.errno or 0) > 0:
        return f"port {address.port} of {address.host}: {os.strerror(error.errno or 0).lower()}"
    return str((isinstance(error, OSError) and error.strerror) or error)
