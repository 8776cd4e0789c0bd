"""The relay to a model gateway: a real server on a unix socket, asked as an agent inside would."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import h11
import httpx
import openai
import pytest

from sandbox.config import ModelExitConfig
from sandbox.egress.denied import DeniedLog
from sandbox.egress.model import ModelExit
from tests.sandbox.egress.conftest import opened, said

SECRET = "the-gateways-own-key"
PLAIN = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # no TLS is spoken here, so no store of certificates need be read


class Gateway:
    """A small server of SSE and JSON over h11; what it was asked, and how many answers are under way."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str, dict[str, str], bytes]] = []
        self.connections = 0
        self.under_way = 0
        self.go_on = asyncio.Event()

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while await self._one(reader, writer):
                pass
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        http = h11.Connection(h11.SERVER)
        request, body = None, b""
        while not isinstance(event := http.next_event(), h11.EndOfMessage):
            if isinstance(event, h11.Request):
                request = event
            elif isinstance(event, h11.Data):
                body += bytes(event.data)
            elif not (data := await reader.read(65536)):
                return False
            else:
                http.receive_data(data)
        assert request
        fields = {name.decode(): value.decode() for name, value in request.headers}
        self.seen.append((request.method.decode(), request.target.decode(), fields, body))
        self.under_way += 1
        try:
            await self._answer(http, reader, writer, json.loads(body if body.startswith(b"{") else b"{}"))
        finally:
            self.under_way -= 1
        return True

    async def _answer(self, http: h11.Connection, reader: asyncio.StreamReader, writer: Any, asked: Any) -> None:
        def say(event: h11.Event) -> None:
            writer.write(http.send(event))

        if asked.get("silent"):
            await reader.read(1)  # until the other side goes away
            raise ConnectionResetError
        status = asked.get("status", 200)
        kind = b"text/event-stream" if asked.get("stream") else b"application/json"
        say(h11.Response(status_code=status, headers=[(b"content-type", kind), (b"x-swarm-tier", b"small")]))
        if asked.get("stream"):
            say(h11.Data(data=b'data: {"choices": [{"index": 0, "delta": {"content": "one"}}]}\n\n'))
            await writer.drain()
            await self.go_on.wait()
            say(h11.Data(data=b'data: {"choices": [{"index": 0, "delta": {"content": "two"}}]}\n\ndata: [DONE]\n\n'))
        elif asked.get("cut"):
            say(h11.Data(data=b'{"half'))
            await writer.drain()
            raise ConnectionResetError
        else:
            say(h11.Data(data=json.dumps({"saw": len(asked.get("fill", ""))}).encode()))
        say(h11.EndOfMessage())
        await writer.drain()


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Gateway]:
    found = Gateway()
    under_way: set[asyncio.Task[None]] = set()

    def begun(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        under_way.add(asyncio.ensure_future(found(reader, writer)))

    server = await asyncio.start_unix_server(begun, tmp_path / "pool.sock")
    async with server:
        yield found
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)


@pytest.fixture
def log() -> DeniedLog:
    return DeniedLog()


Way = Callable[..., ModelExit]


@pytest.fixture
def way(tmp_path: Path, log: DeniedLog) -> Way:
    def make(key: str | None = SECRET, **settings: Any) -> ModelExit:
        return ModelExit(ModelExitConfig(gateway=f"unix:{tmp_path}/pool.sock", **settings), log, key=key)

    return make


@asynccontextmanager
async def agent(port: int) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(
        base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=10, verify=PLAIN
    ) as client:
        yield client


async def test_an_ordinary_client_streams_by_the_environment_alone(way: Way, gateway: Gateway) -> None:
    exit_ = way()
    async with opened(exit_) as port:
        told = exit_.environment()
        base = told["OPENAI_BASE_URL"].replace(str(exit_.port), str(port))
        async with openai.AsyncOpenAI(base_url=base, api_key=told["OPENAI_API_KEY"], max_retries=0) as client:
            stream = await client.chat.completions.create(
                model="small", messages=[{"role": "user", "content": "hi"}], stream=True
            )
            words = []
            async for piece in stream:
                words.append(piece.choices[0].delta.content)
                gateway.go_on.set()  # the second comes only after the first was read: nothing waits for the whole
    assert words == ["one", "two"]
    [(method, path, fields, _)] = gateway.seen
    assert (method, path) == ("POST", "/v1/chat/completions")
    assert fields["authorization"] == f"Bearer {SECRET}"
    assert fields["x-program-id"] == fields["x-user-id"] == "T7"
    assert "sandbox" not in fields["authorization"]


async def test_what_the_sandbox_says_of_itself_is_replaced_or_dropped(way: Way, gateway: Gateway) -> None:
    forged = {
        "Authorization": "Bearer stolen",
        "X-Api-Key": "stolen",
        "X-Program-Id": "another-task",
        "X-User-Id": "another",
        "X-Request-Class": "interactive",
        "X-Forwarded-For": "10.0.0.1",
        "Cookie": "a=b",
        "Host": "evil.example",
        "Connection": "close, x-session-id",
        "Anthropic-Version": "2023-06-01",
        "Session-Id": "context-2",
    }
    async with opened(way(key=None)) as port, agent(port) as client:
        assert (await client.get("/v1/models", headers=forged)).status_code == 200
    [(_, _, fields, _)] = gateway.seen
    assert fields["host"] == "gateway"
    assert fields["x-program-id"] == fields["x-user-id"] == "T7"
    assert fields["anthropic-version"] == "2023-06-01"
    assert fields["session-id"] == "context-2"
    assert not fields.keys() & {"authorization", "x-api-key", "x-request-class", "x-forwarded-for", "cookie"}


async def test_what_is_set_here_is_never_passed_on_however_much_is_listed(way: Way, gateway: Gateway) -> None:
    forged = {"Authorization": "stolen", "X-Api-Key": "stolen", "X-User-Id": "another", "X-Task": "another", "X-B": "b"}
    exit_ = way(passed=("x-*", "authorization"), headers={"X-Task": "task", "x-user-id": "absent"})
    async with opened(exit_) as port, agent(port) as client:
        assert (await client.get("/v1/models", headers=forged)).status_code == 200
    [(_, _, fields, _)] = gateway.seen
    assert "stolen" not in fields.values()
    assert "another" not in fields.values()
    assert (fields["x-b"], fields["x-task"]) == ("b", "T7")


@pytest.mark.parametrize(
    "path",
    [
        *("/admin/status", "/metrics", "/", "/v1/embeddings", "/v1/models/../../admin/status", "//admin/status"),
        *("/v1/models/%2e%2e/%2E%2e/admin/status", "/v1/models/..%5cadmin", "/V1/models", "/v1/models/"),
        *("http://127.0.0.1/metrics", "http://evil.example", "/health/", "/v1/chat/completions/../../../metrics"),
    ],
)
async def test_paths_that_are_no_model_api_are_refused(way: Way, gateway: Gateway, log: DeniedLog, path: str) -> None:
    async with opened(way()) as port:
        answer = await said(port, f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    assert answer.startswith(b"HTTP/1.1 404")
    assert b"is not passed on to the model gateway" in answer
    assert gateway.seen == []
    [denied] = log.records
    assert (denied.task, denied.exit, denied.path) == ("T7", "model", path)


ODD = {
    "connect": ("CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example:443\r\n\r\n", b"CONNECT is not passed on"),
    "put": ("PUT /v1/models HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", b"PUT is not passed on"),
    "websocket": ("GET /v1/responses HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\n\r\n", b"WebSocket"),
    "smuggled": (
        "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"beside transfer-encoding",
    ),
    "hidden": ("POST /v1/completions HTTP/1.1\nHost: x\n\n", b"bare line feed"),
    "too long": (
        "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 3000\r\n\r\n" + "x" * 3000,
        b"longer than",
    ),
    "bad chunk": (
        "POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n\r\n",
        b"the request is refused",
    ),
}


@pytest.mark.parametrize("what", ODD)
async def test_odd_requests_are_refused_in_an_apis_words(way: Way, gateway: Gateway, log: DeniedLog, what: str) -> None:
    request, reason = ODD[what]
    async with opened(way(body=2048)) as port:
        answer = await said(port, request.encode())
    assert answer[9:10] == b"4", answer
    assert reason in json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["message"].encode()
    assert gateway.seen == []
    assert len(log.records) == 1


async def test_a_second_request_hidden_in_a_body_stays_one(way: Way, gateway: Gateway) -> None:
    hidden = b"GET /admin/status HTTP/1.1\r\nHost: x\r\n\r\n"
    whole = b"POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(hidden) + hidden
    async with opened(way()) as port:
        answer = await said(port, whole + b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
    assert [(path, body) for _, path, _, body in gateway.seen] == [("/tokenize", hidden)]
    assert b"/metrics is not passed on" in answer


async def test_answers_and_their_status_come_through_on_one_connection(way: Way, gateway: Gateway) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield b'{"fill": "'
        yield b"x" * 200_000
        yield b'"}'

    async with opened(way()) as port, agent(port) as client:
        refused = await client.post("/v1/messages?beta=true", json={"status": 429})
        long = await client.post("/v1/messages", json={"fill": "y" * 100_000})
        chunked = await client.post("/v1/messages", content=pieces())
    assert (refused.status_code, refused.headers["x-swarm-tier"]) == (429, "small")
    assert (long.json(), chunked.json()) == ({"saw": 100_000}, {"saw": 200_000})
    assert gateway.seen[0][1] == "/v1/messages?beta=true"
    assert gateway.connections == 1


async def test_who_hangs_up_takes_the_request_out_of_the_gateway(way: Way, gateway: Gateway) -> None:
    async with opened(way()) as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        body = b'{"silent": true}'
        writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        await until(lambda: gateway.under_way == 1)
        writer.close()
        await until(lambda: gateway.under_way == 0)


async def test_a_silent_gateway_is_given_up(way: Way, gateway: Gateway) -> None:
    async with opened(way(idle=0.1)) as port, agent(port) as client:
        answer = await client.post("/v1/completions", json={"silent": True})
    assert answer.status_code == 504
    assert answer.json()["error"]["message"] == "the model gateway did not answer in time"


async def test_an_answer_that_breaks_off_does_not_look_whole(way: Way, gateway: Gateway) -> None:
    async with opened(way()) as port, agent(port) as client:
        with pytest.raises(httpx.RemoteProtocolError):
            await client.post("/v1/completions", json={"cut": True})


async def test_a_sandbox_has_a_share_of_requests_and_another_its_own(way: Way, gateway: Gateway) -> None:
    exit_ = way(requests=1)
    async with AsyncExitStack() as stack:
        ports = [await stack.enter_async_context(opened(exit_, {"sandbox": name})) for name in ("one", "two")]
        first, second, neighbour = [
            await stack.enter_async_context(agent(port)) for port in (ports[0], ports[0], ports[1])
        ]
        held = asyncio.ensure_future(first.post("/v1/completions", json={"silent": True}))
        await until(lambda: gateway.under_way == 1)
        refused = await second.post("/v1/completions", json={})
        theirs = await neighbour.post("/v1/completions", json={})
        held.cancel()
        await until(lambda: gateway.under_way == 0)
        again = await second.post("/v1/completions", json={})
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "2")
    assert "at most 1 requests to models at a time" in refused.json()["error"]["message"]
    assert (theirs.status_code, again.status_code) == (200, 200)


async def test_a_gateway_that_is_away_is_told(tmp_path: Path, log: DeniedLog) -> None:
    exit_ = ModelExit(ModelExitConfig(gateway=f"unix:{tmp_path}/none.sock"), log, key=SECRET)
    async with opened(exit_) as port, agent(port) as client:
        answer = await client.get("/health")
    assert answer.status_code == 502
    assert "the model gateway cannot be reached" in answer.json()["error"]["message"]
    assert SECRET not in answer.text
    assert log.records == ()


async def test_the_owners_refusal_is_told_in_its_words(log: DeniedLog) -> None:
    async def connect(labels: Any) -> Any:
        raise ConnectionRefusedError(f"the budget of task {labels['task']} is spent")

    async with opened(ModelExit(ModelExitConfig(), log, connect)) as port, agent(port) as client:
        answer = await client.post("/v1/chat/completions", json={})
    assert answer.status_code == 403
    assert answer.json()["error"]["message"] == "the budget of task T7 is spent"
    assert [record.reason for record in log.records] == ["the budget of task T7 is spent"]


async def test_a_gateway_on_loopback_is_reached_as_well(log: DeniedLog) -> None:
    server = await asyncio.start_server(Gateway(), "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        exit_ = ModelExit(ModelExitConfig(gateway=f"http://127.0.0.1:{port}"), log)
        async with opened(exit_) as inside, agent(inside) as client:
            assert (await client.get("/health", headers={"Connection": "close"})).status_code == 200


@pytest.mark.parametrize(
    "gateway", ["http://10.0.0.1:80", "https://models.example", "http://127.0.0.1.evil.example", "pool.sock", "unix:x"]
)
def test_a_gateway_is_a_socket_or_on_loopback(gateway: str) -> None:
    with pytest.raises(ValueError, match="gateway"):
        ModelExitConfig(gateway=gateway)


def test_without_a_gateway_there_is_no_way(log: DeniedLog) -> None:
    with pytest.raises(ValueError, match="gateway is not set"):
        ModelExit(ModelExitConfig(), log)


def test_no_key_gets_inside(way: Way) -> None:
    exit_ = way()
    assert SECRET not in json.dumps(dict(exit_.environment()))
    assert exit_.files() == {}
    assert exit_.environment()["ANTHROPIC_BASE_URL"] == "http://127.0.0.1:8088"


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not true():  # noqa: ASYNC110 - what is waited for is in another's hands
            await asyncio.sleep(0.01)
