"""The one file with network code: what leaves, what never does, and how odd servers are met."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from pydantic import SecretStr
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from pool.config import EndpointConfig
from pool.endpoint import Call, Endpoint
from pool.errors import EndpointDeadError, OverloadError, PermanentError, TransientError
from pool.testing import PretendServer, pretend_vllm, reset
from pool.types import ChatRequest, Message, Served

SERVED = Served(kind="vllm", model="pretend")
LLAMA = Served(kind="llamacpp", model="pretend", slots=2)


def turn(**more: object) -> ChatRequest:
    said = (Message(role="user", content="hi"),)
    return ChatRequest.model_validate({"tier": "t", "session": "s-1", "messages": said, **more})


def endpoint(server: PretendServer, **more: object) -> Endpoint:
    return Endpoint(EndpointConfig.model_validate({"name": "a", "url": server.url, **more}), connect_timeout=2)


class Odd(PretendServer):
    """A server whose routes a test writes by hand."""

    routes: dict[str, Callable[[Request], Response]]

    def _app(self) -> Starlette:
        def route(path: str, answer: Callable[[Request], Response]) -> Route:
            async def respond(request: Request) -> Response:
                return answer(request)

            return Route(path, respond, methods=["GET", "POST"])

        return Starlette(routes=[route(path, answer) for path, answer in self.routes.items()])


@asynccontextmanager
async def odd(**routes: Callable[[Request], Response]) -> AsyncIterator[PretendServer]:
    """A server of hand-written routes; the names' double underscores are slashes."""
    server = Odd()
    server.routes = {"/" + name.replace("__", "/"): answer for name, answer in routes.items()}
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


async def test_environment_does_not_choose_where_or_as_whom_we_speak(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_ADMIN_KEY", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID"):
        monkeypatch.setenv(name, "leaked")
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "X-Leak: leaked\nAuthorization: Bearer leaked")
    for name in ("OPENAI_BASE_URL", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9/leaked")
    async with pretend_vllm() as server, endpoint(server) as asked:
        await asked.chat(turn(), SERVED)
        (got,) = server.requests
        assert "leaked" not in json.dumps(got.headers)
        assert "authorization" not in got.headers


async def test_key_goes_to_its_own_endpoint_only_and_is_shown_nowhere() -> None:
    async with pretend_vllm() as server, endpoint(server, api_key=SecretStr("s3cret")) as asked:
        await asked.probe()
        await asked.chat(turn(), SERVED)
        assert server.requests[0].headers["authorization"] == "Bearer s3cret"
        assert "s3cret" not in repr(asked.config)


async def test_redirect_is_refused_so_that_no_prompt_goes_elsewhere() -> None:
    async with (
        pretend_vllm() as other,
        odd(v1__chat__completions=lambda _: RedirectResponse(f"{other.url}/v1/chat/completions", 307)) as server,
    ):
        async with endpoint(server, api_key=SecretStr("s3cret")) as asked:
            with pytest.raises(PermanentError, match="307"):
                await asked.chat(turn(), SERVED)
        assert other.requests == []


async def test_each_request_has_its_own_id_and_tells_its_session() -> None:
    async with pretend_vllm() as server, endpoint(server) as asked:
        await asked.chat(turn(), SERVED)
        await asked.chat(turn(session="bad\r\nX-Evil: 1"), SERVED)
        first, second = (recorded.headers for recorded in server.requests)
        assert first["x-session-id"] == "s-1"
        assert first["x-request-id"] != second["x-request-id"]
        assert "x-evil" not in second
        assert "x-session-id" not in second


async def test_sdk_does_not_retry_behind_our_back() -> None:
    async with pretend_vllm([reset(), "second"]) as server, endpoint(server) as asked:
        with pytest.raises(TransientError):
            await asked.chat(turn(), SERVED)
        assert len(server.requests) == 1


async def test_nobody_listening_is_told_from_silence() -> None:
    async with pretend_vllm() as server, endpoint(server) as asked:
        await server.stop()
        with pytest.raises(EndpointDeadError, match="nobody listens at http://127"):
            await asked.probe()
        with pytest.raises(EndpointDeadError):
            await asked.chat(turn(), SERVED)


@pytest.mark.parametrize(
    "answer",
    [
        PlainTextResponse("<html>It works!</html>", media_type="text/html"),
        PlainTextResponse("not json", media_type="application/json"),
        JSONResponse(None),
        JSONResponse([]),
        JSONResponse({"choices": []}),
        JSONResponse({"choices": [{"index": 0, "message": {"content": "torn"}, "finish_reason": None}]}),
        JSONResponse({"error": {"message": "in band", "code": 500}}),
        Response(b"\xff\xfe", media_type="application/json"),
    ],
    ids=["page", "no json", "null", "list", "no choice", "torn", "error with 200", "no text"],
)
async def test_answer_that_is_none_is_a_passing_fault(answer: Response) -> None:
    async with odd(v1__chat__completions=lambda _: answer) as server, endpoint(server) as asked:
        with pytest.raises(TransientError):
            await asked.chat(turn(), SERVED)


def stream(*lines: str) -> Response:
    async def body() -> AsyncIterator[str]:
        for line in lines:
            yield f"{line}\n\n"

    return StreamingResponse(body(), media_type="text/event-stream")


def chunk(index: int, text: str, finish: str | None = None) -> str:
    part = {"index": index, "delta": {"content": text}, "finish_reason": finish}
    return "data: " + json.dumps({"id": "x", "object": "chat.completion.chunk", "model": "m", "choices": [part]})


async def test_stream_is_heard_piece_by_piece_past_comments_and_put_together() -> None:
    lines = [
        ": ping",
        chunk(0, "he"),
        ": ping",
        chunk(1, "yo"),
        chunk(0, "y", "stop"),
        chunk(1, "", "length"),
        "data: [DONE]",
    ]
    heard: list[int] = []
    async with odd(v1__chat__completions=lambda _: stream(*lines)) as server, endpoint(server) as asked:
        answer = await asked.chat(turn(n=2), LLAMA, Call(heard=heard.append))
    assert [(c.content, c.finish_reason) for c in answer.choices] == [("hey", "stop"), ("yo", "length")]
    assert heard == [1, 1, 1, 1]


@pytest.mark.parametrize(
    ("lines", "kind"),
    [
        ([chunk(0, "half"), "data: [DONE]"], TransientError),
        ([chunk(0, "half")], TransientError),
        (["data: [DONE]"], TransientError),
        ([chunk(0, "half"), 'data: {"error": {"message": "boom", "code": 500}}', "data: [DONE]"], TransientError),
        (['data: {"error": {"message": "queue full", "code": 503}}'], OverloadError),
        (["data: {torn"], TransientError),
    ],
    ids=["done without a finish", "cut", "empty", "error in band", "overload in band", "no json"],
)
async def test_torn_stream_is_never_a_success(lines: list[str], kind: type[Exception]) -> None:
    async with odd(v1__chat__completions=lambda _: stream(*lines)) as server, endpoint(server) as asked:
        with pytest.raises(kind):
            await asked.chat(turn(), LLAMA)


async def test_server_that_ignores_n_is_asked_until_there_are_enough() -> None:
    message = {"index": 0, "message": {"role": "assistant", "content": "one"}, "finish_reason": "stop"}
    asked_for = []

    def answer(_: Request) -> Response:
        asked_for.append(1)
        return JSONResponse({"id": "x", "object": "chat.completion", "model": "m", "choices": [message]})

    async with odd(v1__chat__completions=answer) as server, endpoint(server) as asked:
        got = await asked.chat(turn(n=3), Served(kind="other", model="m"))
    assert len(got.choices) == len(asked_for) == 3
    assert got.usage.cached_tokens is None


def models(**card: object) -> Callable[[Request], Response]:
    return lambda _: JSONResponse({"data": [{"id": "m", **card}]})


async def test_server_without_health_or_metrics_is_well_and_its_load_unknown() -> None:
    async with odd(v1__models=models()) as server, endpoint(server) as asked:
        pulse = await asked.probe()
    assert pulse.served == Served(kind="other", model="m")
    assert pulse.snapshot is None


async def test_metrics_page_of_something_else_leaves_the_load_unknown() -> None:
    page = PlainTextResponse("<html>login</html>")
    async with odd(v1__models=models(), metrics=lambda _: page) as server, endpoint(server) as asked:
        assert (await asked.probe()).snapshot is None


@pytest.mark.parametrize("path", ["health", "v1__models"])
async def test_503_means_not_ready(path: str) -> None:
    routes = {"health": models(), "v1__models": models(), path: lambda _: Response(status_code=503)}
    async with odd(**routes) as server, endpoint(server) as asked:
        assert (await asked.probe()).served is None


async def test_restarted_server_is_asked_anew_what_it_is() -> None:
    slots = [4]
    card = models(owned_by="llamacpp", meta={"n_ctx": 2048})
    props = lambda _: JSONResponse({"total_slots": slots[0]})  # noqa: E731
    async with odd(v1__models=card, props=props) as server, endpoint(server) as asked:
        first = (await asked.probe()).served
        await server.stop()
        slots[0] = 2
        with pytest.raises(EndpointDeadError):
            await asked.probe()
        await server.start()
        again = (await asked.probe()).served
    assert first is not None
    assert again is not None
    assert (first.slots, again.slots) == (4, 2)


async def test_closing_ends_what_is_under_way() -> None:
    async with pretend_vllm() as server:
        server.hold()
        async with endpoint(server) as asked:
            task = asyncio.create_task(asked.chat(turn(), SERVED))
            async with asyncio.timeout(5):
                while not server.running:  # noqa: ASYNC110  the server has no event for it
                    await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
