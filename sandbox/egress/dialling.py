"""How upstream connections are made: to an address that was looked up once and judged, or as the owner says."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

import httpcore

from sandbox.egress.hosts import Allowlist, Place, is_literal
from sandbox.egress.refusal import Refusal, RefusedError

Connect = Callable[[Mapping[str, str]], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]
Resolve = Callable[[str, int], Awaitable[list[str]]]

_TRIED = 4  # addresses of one host


async def resolve(host: str, port: int) -> list[str]:
    """The addresses that this machine knows for a host, each once. Raises OSError."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, proto=6)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


class Checked(httpcore.AsyncNetworkBackend):
    """Connects to listed hosts at judged addresses. The address that was judged is the one connected to (rebinding)."""

    def __init__(self, allowlist: Allowlist, find: Resolve = resolve) -> None:
        self._allowlist = allowlist
        self._find = find
        self._plain = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """As httpcore asks. Raises RefusedError for a host any of whose addresses may not be reached."""
        addresses = await self._addresses(Place(host, port), timeout)
        failed: httpcore.ConnectError | httpcore.ConnectTimeout | None = None
        for address in addresses[:_TRIED]:
            try:
                return await self._plain.connect_tcp(address, port, timeout, local_address, socket_options)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failed = error
        raise failed or httpcore.ConnectError(f"{host} has no address")

    async def _addresses(self, where: Place, seconds: float | None) -> list[str]:
        try:
            async with asyncio.timeout(seconds):
                found = [where.host] if is_literal(where.host) else await self._find(where.host, where.port)
        except (OSError, UnicodeError) as error:
            raise httpcore.ConnectError(f"{where.host} has no address that this host knows ({error})") from error
        for address in found:
            if words := self._allowlist.refuses_address(where, address):
                raise RefusedError(Refusal(403, words))
        return found


class Given(httpcore.AsyncNetworkBackend):
    """Connects wherever the owner of the exit says, whatever a request names."""

    def __init__(self, connect: Connect, labels: Mapping[str, str]) -> None:
        self._connect = connect
        self._labels = labels

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """As httpcore asks. Raises RefusedError with the owner's words where this sandbox may not."""
        del host, port, local_address, socket_options
        try:
            async with asyncio.timeout(timeout):
                return _Stream(*await self._connect(self._labels))
        except ConnectionRefusedError as error:
            if error.errno is not None:  # the kernel's own: nobody listens
                raise httpcore.ConnectError(str(error)) from error
            raise RefusedError(Refusal(403, str(error))) from error
        except OSError as error:
            raise httpcore.ConnectError(str(error)) from error


class _Stream(httpcore.AsyncNetworkStream):
    """A reader and a writer as httpcore takes them."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109
        try:
            async with asyncio.timeout(timeout):
                return await self._reader.read(max_bytes)
        except TimeoutError as error:
            raise httpcore.ReadTimeout(str(error)) from error
        except OSError as error:
            raise httpcore.ReadError(str(error)) from error

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109
        try:
            async with asyncio.timeout(timeout):
                self._writer.write(buffer)
                await self._writer.drain()
        except TimeoutError as error:
            raise httpcore.WriteTimeout(str(error)) from error
        except OSError as error:
            raise httpcore.WriteError(str(error)) from error

    async def aclose(self) -> None:
        self._writer.transport.abort()  # there is nothing left to say: an answer was read, or is given up
        with suppress(OSError):
            await self._writer.wait_closed()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> httpcore.AsyncNetworkStream:
        del ssl_context, server_hostname, timeout
        raise httpcore.UnsupportedProtocol("the model gateway is spoken to without TLS")

    def get_extra_info(self, info: str) -> Any:
        """``is_readable`` alone: whether the other side has closed, so that an idle one is not used again."""
        return self._reader.at_eof() if info == "is_readable" else None


def connect_to(gateway: str) -> Connect:
    """A way to ``unix:/path`` or to a loopback URL, the same for every sandbox."""
    if gateway.startswith("unix:"):
        path = gateway.removeprefix("unix:")
        return lambda _: asyncio.open_unix_connection(path)
    url = httpcore.URL(gateway)
    return lambda _: asyncio.open_connection(url.host.decode().strip("[]"), url.port or 80)
