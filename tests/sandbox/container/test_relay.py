"""A relay whose engine hangs up: the reason told is the likely one, in whatever order alert, reset and end arrive."""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
import trustme

from sandbox.container.engine import Engine
from sandbox.container.remote import way_to
from sandbox.errors import SandboxLostError
from tests.sandbox.container.conftest import certificates

DISTRUST = (
    r"TLS failed \((it ended the connection before any answer|[A-Z0-9_]+)\).*trust the authority that signed .*cert"
)
BODY = b'{"Version":"27","ApiVersion":"1.43"}'
VERSION = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(BODY), BODY)

Greet = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def reset(writer: asyncio.StreamWriter) -> None:
    """End it with a reset, as a server does that closes with our request unread."""
    sock: socket.socket = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def reset_at_once(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    reset(writer)


async def reset_when_asked(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    reset(writer)


async def end_at_once(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.close()


async def end_when_asked(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.close()


async def break_off(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(VERSION[:-4])
    await writer.drain()
    writer.close()


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(asyncio.IncompleteReadError):
        while await reader.readuntil(b"\r\n\r\n"):
            writer.write(VERSION)
            await writer.drain()
    writer.close()


class Papers:
    """Folders of certificates: the server's own, a client's that it trusts, and a stranger's."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        ours, theirs = trustme.CA(), trustme.CA()
        certificates(folder / "server", ours, ours, "127.0.0.1")
        certificates(folder / "client", ours, ours, "client@example.org")
        certificates(folder / "stranger", theirs, ours, "client@example.org")

    def server(self, *, ask: bool) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.folder / "server/cert.pem", self.folder / "server/key.pem")
        if ask:
            context.load_verify_locations(self.folder / "server/ca.pem")
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def environment(self, port: int, whose: str) -> dict[str, str]:
        path = str(self.folder / whose)
        return {"DOCKER_HOST": f"tcp://127.0.0.1:{port}", "DOCKER_TLS_VERIFY": "1", "DOCKER_CERT_PATH": path}


@pytest.fixture(scope="module")
def papers(tmp_path_factory: pytest.TempPathFactory) -> Papers:
    return Papers(tmp_path_factory.mktemp("papers"))


@asynccontextmanager
async def listening(greet: Greet, context: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    server = await asyncio.start_server(greet, "127.0.0.1", 0, ssl=context)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await server.wait_closed()


async def told(environment: dict[str, str]) -> str:
    engine = Engine(way_to(environment))
    try:
        with pytest.raises(SandboxLostError) as caught:
            await engine.version()
    finally:
        await engine.close()
    return str(caught.value)


@pytest.mark.parametrize("hang_up", [reset_at_once, reset_when_asked, end_at_once, end_when_asked])
async def test_an_end_right_after_the_handshake_names_our_certificate(papers: Papers, hang_up: Greet) -> None:
    async with listening(hang_up, papers.server(ask=False)) as port:
        for _ in range(5):
            said = await told(papers.environment(port, "client"))
            assert re.search(DISTRUST, said), said


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_a_server_that_refuses_our_certificate_is_told_as_such(papers: Papers, version: ssl.TLSVersion) -> None:
    context = papers.server(ask=True)
    context.minimum_version = context.maximum_version = version
    async with listening(end_at_once, context) as port:
        for _ in range(5):
            said = await told(papers.environment(port, "stranger"))
            assert re.search(DISTRUST, said), said


@pytest.mark.parametrize("hang_up", [reset_at_once, end_at_once])
async def test_an_end_within_the_handshake_names_tls(papers: Papers, hang_up: Greet) -> None:
    async with listening(hang_up) as port:
        said = await told(papers.environment(port, "client"))
        assert re.search(r"TLS failed .*must speak TLS on port \d+ and trust", said), said


async def test_an_end_within_an_answer_blames_no_certificate(papers: Papers) -> None:
    async with listening(break_off, papers.server(ask=False)) as port:
        assert "trust" not in await told(papers.environment(port, "client"))


@pytest.mark.parametrize("hang_up", [reset_at_once, reset_when_asked, end_at_once, end_when_asked])
async def test_an_end_without_tls_asks_whether_it_should_be_tls(hang_up: Greet) -> None:
    async with listening(hang_up) as port:
        said = await told({"DOCKER_HOST": f"tcp://127.0.0.1:{port}"})
        assert re.search(r"ended the connection before any answer; mend: .*DOCKER_TLS_VERIFY=1", said), said


async def test_a_refusal_is_not_told_of_a_way_that_answers_again(papers: Papers) -> None:
    turns: list[Greet] = [serve, reset_when_asked]

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await (turns.pop() if len(turns) > 1 else turns[0])(reader, writer)

    async with listening(greet, papers.server(ask=False)) as port:
        engine = Engine(way_to(papers.environment(port, "client")))
        try:
            with pytest.raises(SandboxLostError, match="trust the authority"):
                await engine.version()
            assert (await engine.version())["Version"] == "27"
            assert await engine._way.why() == ""
        finally:
            await engine.close()
