"""Ways out as a sandbox sees them: a loopback port whose connections end in ``serve``; and a registry behind TLS."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import http.server
import io
import ssl
import threading
import zipfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
import trustme

from sandbox.base import Exit
from sandbox.config import PackageRule, PackagesExitConfig
from sandbox.egress.denied import DeniedLog
from sandbox.egress.packages import PackagesExit

LABELS = {"task": "T7", "kind": "setup", "sandbox": "box-1"}
NAME = "registry.test"


@asynccontextmanager
async def opened(way: Exit, labels: Mapping[str, str] = LABELS) -> AsyncIterator[int]:
    """The port of a server whose connections are served as a tunnel's are."""
    under_way: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        under_way.add(task)
        task.add_done_callback(under_way.discard)
        await way.serve(reader, writer, labels)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)


async def said(port: int, data: bytes, context: ssl.SSLContext | None = None, seconds: float = 5) -> bytes:
    """All that comes back for these bytes, until the other side closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(data)
        async with asyncio.timeout(seconds):
            return await reader.read()
    finally:
        writer.close()


def wheel(name: str = "demo", version: str = "1.0") -> bytes:
    """A wheel that pip installs: one module."""
    info = f"{name}-{version}.dist-info"
    files = {
        f"{name}.py": b"ANSWER = 42\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n".encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = [f"{path},sha256={_digest(data)},{len(data)}" for path, data in files.items()]
    files[f"{info}/RECORD"] = "\n".join([*record, f"{info}/RECORD,,", ""]).encode()
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for path, data in files.items():
            archive.writestr(path, data)
    return packed.getvalue()


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


@dataclass
class Registry:
    """A package index on loopback, and every request that it saw."""

    port: int
    authority: trustme.CA
    seen: list[tuple[str, str, dict[str, str], bytes]] = field(default_factory=list)

    @property
    def place(self) -> str:
        return f"{NAME}:{self.port}"

    @property
    def trust(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self.authority.configure_trust(context)
        return context


def _handler(registry: Callable[[], Registry]) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 10

        def log_message(self, *_: Any) -> None:
            pass

        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            registry().seen.append((self.command, self.path, dict(self.headers), body))
            status, kind, data = _page(self.path)
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Set-Cookie", "id=1")
            if status == 302:
                self.send_header("Location", "https://elsewhere.test/secret")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data)

        do_GET = do_HEAD = do_POST = do_PUT = _answer  # noqa: N815 - the library's names

    return Handler


def _page(path: str) -> tuple[int, str, bytes]:
    page = {
        "/simple/demo/": (
            200,
            "text/html",
            b'<a href="/files/demo-1.0-py3-none-any.whl">demo-1.0-py3-none-any.whl</a>',
        ),
        "/files/demo-1.0-py3-none-any.whl": (200, "application/octet-stream", wheel()),
        "/moved": (302, "text/plain", b""),
        "/big": (200, "application/octet-stream", b"x" * 300_000),
    }
    return page.get(path, (404, "text/plain", b"no such page"))


class _Quiet(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: Any) -> None:
        """A client that went away is no news."""


def registry_behind_tls() -> Iterator[Registry]:
    """A TLS registry that is up, with an authority of its own."""
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(NAME).configure_cert(context)
    yield from _up(authority, context)


@pytest.fixture
def registry() -> Iterator[Registry]:
    """A TLS registry."""
    yield from registry_behind_tls()


@pytest.fixture
def plain_registry() -> Iterator[Registry]:
    """The same without TLS."""
    yield from _up(trustme.CA(), None)


def _up(authority: trustme.CA, context: ssl.SSLContext | None) -> Iterator[Registry]:
    server = _Quiet(("127.0.0.1", 0), _handler(lambda: found))
    found = Registry(server.server_address[1], authority)
    if context:
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield found
    server.shutdown()
    thread.join()
    server.server_close()


async def at_home(host: str, port: int) -> list[str]:
    """All names lead here."""
    return ["127.0.0.1"]


Make = Callable[..., PackagesExit]


@pytest.fixture
def log() -> DeniedLog:
    return DeniedLog()


@pytest.fixture
def proxy(log: DeniedLog, registry: Registry) -> Make:
    """Makes a packages exit that may reach the registry."""

    def make(
        rule: PackageRule | None = None, find: Callable[[str, int], Awaitable[list[str]]] = at_home, **settings: Any
    ) -> PackagesExit:
        entries = {"hosts": (registry.place,), "rules": {registry.place: rule} if rule else {}} | settings
        return PackagesExit(PackagesExitConfig(**entries), log, find=find, trust=registry.trust)

    return make


async def tunnelled(port: int, place: str, request: bytes, *, sni: str | None = NAME, host: str | None = None) -> bytes:
    """What comes back for bytes said through a CONNECT, as by a program that checks no certificate."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        async with asyncio.timeout(10):
            writer.write(f"CONNECT {place} HTTP/1.1\r\nHost: {host or place}\r\n\r\n".encode())
            head = await reader.readuntil(b"\r\n\r\n")
            if b" 200 " not in head.split(b"\r\n")[0]:
                return head + await reader.read()
            careless = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            careless.check_hostname = False
            careless.verify_mode = ssl.CERT_NONE
            await writer.start_tls(careless, server_hostname=sni or "127.0.0.1")
            writer.write(request)
            return await reader.read()
    finally:
        writer.close()
