"""Finds OpenAI-compatible servers: asks each usual local port which models it lists, and nothing beyond loopback."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import httpx
from pydantic import BaseModel, ValidationError

USUAL: dict[int, str] = {8000: "vllm", 8080: "llama-cpp", 11434: "ollama", 1234: "lm-studio", 30000: "sglang"}
HOST = "127.0.0.1"
TIMEOUT = httpx.Timeout(2.0, connect=0.5)
LIMIT = 1_000_000  # bytes of an answer


class Answer(NamedTuple):
    """What a server said when it was asked for its models; ``trouble`` tells why it cannot be used as it is."""

    url: str
    models: tuple[str, ...] = ()
    trouble: str = ""


class Server(NamedTuple):
    """A server that was found, and the name that its port suggests."""

    name: str
    answer: Answer


class _Model(BaseModel):
    id: str


class _Models(BaseModel):
    data: list[_Model]


async def find(ports: Iterable[int]) -> tuple[Server, ...]:
    """The model servers behind these loopback ports, in their order; silent ports and other services are left out."""
    wanted = tuple(dict.fromkeys(ports))
    async with _client() as client:
        answers = await asyncio.gather(*(ask(client, f"http://{HOST}:{port}") for port in wanted))
    return tuple(
        Server(USUAL.get(port, f"local-{port}"), answer)
        for port, answer in zip(wanted, answers, strict=True)
        if answer.models or answer.trouble == NEEDS_KEY
    )


async def examine(servers: Mapping[str, str | None]) -> tuple[Answer, ...]:
    """Ask each address, with its key where it has one."""
    async with _client() as client:
        return tuple(await asyncio.gather(*(ask(client, url, key) for url, key in servers.items())))


NEEDS_KEY = "wants a key"


async def ask(client: httpx.AsyncClient, url: str, key: str | None = None) -> Answer:
    """Which models one server lists; never raises for what a server does."""
    headers = {"authorization": f"Bearer {key}"} if key else {}
    try:
        async with client.stream("GET", f"{url}/v1/models", headers=headers) as response:
            if response.status_code in {401, 403}:
                return Answer(url, trouble=NEEDS_KEY)
            if response.is_error or response.is_redirect:
                return Answer(url, trouble=f"answered with status {response.status_code}")
            return _read(url, await _start(response))
    except httpx.TimeoutException:
        return Answer(url, trouble="did not answer in time")
    except httpx.HTTPError as error:
        return Answer(url, trouble=f"does not answer: {str(error) or type(error).__name__}")


async def _start(response: httpx.Response) -> bytes:
    """The body, or as much of it as is too much."""
    body = b""
    async for part in response.aiter_bytes():
        body += part
        if len(body) > LIMIT:
            break
    return body


def _read(url: str, body: bytes) -> Answer:
    try:
        models = tuple(model.id for model in _Models.model_validate_json(body).data)
    except ValidationError:
        return Answer(url, trouble="answered with something else than a list of models")
    return Answer(url, models, "" if models else "lists no model")


def _client() -> httpx.AsyncClient:
    """A client that goes where it is told: no proxy from the environment, no redirect to elsewhere."""
    return httpx.AsyncClient(timeout=TIMEOUT, trust_env=False, follow_redirects=False)
