"""Asks a server one question as an unmodified OpenAI client would: what other people's agents will meet there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import httpx
from openai import APIError, APIStatusError, AsyncOpenAI, OpenAIError

from pool.config import EndpointConfig

ANSWER = 60.0  # seconds for a few tokens
LARGEST = 65_536  # bytes for them, compressed as they may come
SENT = {"host", "accept", "accept-encoding", "connection", "user-agent", "content-type", "content-length"}


class Short(httpx.AsyncByteStream):
    """The bytes of an answer as they come, up to a bound: a few tokens were asked for."""

    def __init__(self, stream: httpx.AsyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for part in self._stream:
            if (size := size + len(part)) > LARGEST:
                raise httpx.ReadError(f"an answer of more than {LARGEST} bytes to a question for a few tokens")
            yield part

    async def aclose(self) -> None:
        """Let go."""
        await self._stream.aclose()


class Bounded(httpx.AsyncHTTPTransport):
    """Gives answers of bounded length."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """The answer to a request."""
        answer = await super().handle_async_request(request)
        if isinstance(answer.stream, httpx.AsyncByteStream):
            answer.stream = Short(answer.stream)
        return answer


async def trouble(config: EndpointConfig, model: str) -> str:
    """Why OpenAI's SDK does not get a streamed answer from a server; empty where it does."""
    key = config.api_key.get_secret_value() if config.api_key else ""

    async def only_ours(request: httpx.Request) -> None:
        """The SDK adds headers from the environment (organisation, project, custom ones): none of them leaves."""
        for name in tuple(request.headers):
            if name.lower() not in SENT:
                del request.headers[name]
        if key:
            request.headers["authorization"] = f"Bearer {key}"

    hooks: Any = {"request": [only_ours]}
    async with httpx.AsyncClient(
        transport=Bounded(trust_env=False), timeout=ANSWER, trust_env=False, event_hooks=hooks
    ) as http:
        theirs = cast("Any", http)  # the SDK takes httpx and httpx2, its types name the latter alone
        client = AsyncOpenAI(base_url=f"{config.url}/v1", api_key="unused", max_retries=0, http_client=theirs)
        try:
            async with asyncio.timeout(ANSWER):
                return await _ask(client, model)
        except TimeoutError:
            return f"no whole answer within {ANSWER:g} s"
        except APIStatusError as error:
            return f"it was refused with {error.status_code}: {_short(str(error.message))}"
        except (APIError, OpenAIError, httpx.HTTPError, ValueError) as error:
            return f"{type(error).__name__}: {_short(str(error))}"


async def _ask(client: AsyncOpenAI, model: str) -> str:
    finish = None
    async with await client.chat.completions.create(
        model=model, messages=[{"role": "user", "content": "Say yes."}], max_tokens=4, stream=True
    ) as pieces:
        async for piece in pieces:
            for choice in piece.choices:
                finish = choice.finish_reason or finish
    return "" if finish else "the stream ended without a finish reason"


def _short(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text)[:200]
