"""The same call twice: a key by header or field, and verbs whose second call changes nothing.

https://datatracker.ietf.org/doc/draft-ietf-httpapi-idempotency-key-header/
"""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from swarm.client import DaemonClient
from swarm.errors import DaemonError, TaskError
from tests.swarm.api.conftest import House, request

pytestmark = pytest.mark.slow


async def submit(house: House, key: str | None, **more: Any) -> httpx.Response:
    headers = {"content-type": "application/json"} | ({"idempotency-key": key} if key else {})
    return await house.raw("POST", "/v1/tasks", content=request(**more).model_dump_json(), headers=headers)


async def test_the_same_key_gives_the_same_task_by_header_or_field_quoted_or_not(house: House) -> None:
    async with house.open():
        answers = [
            await submit(house, '"k-1"'),
            await submit(house, "k-1"),
            await submit(house, None, idempotency_key="k-1"),
            await submit(house, '"k-1"', idempotency_key="k-1"),
        ]
    assert [answer.status_code for answer in answers] == [201, 200, 200, 200]
    assert len({answer.json()["task"]["id"] for answer in answers}) == 1


async def test_the_same_key_with_another_request_is_refused_with_the_reason(house: House) -> None:
    async with house.open():
        made = (await submit(house, '"k"')).json()["task"]["id"]
        for more in ({"instructions": "something else"}, {"tier": "large"}, {"base": "dev", "paths": ("a",)}):
            answer = await submit(house, '"k"', **more)
            assert answer.status_code == 422
            assert answer.json()["what"] == "the idempotency key is used already"
            assert made in answer.json()["why"]
            assert answer.json()["mend"]
        assert (await submit(house, '"k"', idempotency_key="other")).status_code == 422


async def test_a_new_right_to_the_same_request_is_the_same_request(house: House) -> None:
    """Each call of `swarm submit` gets a capability of its own, for an id of its own."""
    async with house.open():
        first = await submit(house, "k", task="one", capability="a" * 20, base="main")
        again = await submit(house, "k", task="two", capability="b" * 20, base_commit="2" * 40)
        assert again.status_code == 200
        assert again.json()["task"]["id"] == first.json()["task"]["id"] == "one"


@pytest.mark.parametrize("key", ['""', "", '"' + "x" * 201 + '"', "x" * 300, '"a\x7fb"'])
async def test_a_key_that_is_none_is_refused(house: House, key: str) -> None:
    async with house.open():
        headers = [(b"content-type", b"application/json"), (b"idempotency-key", key.encode())]
        answer = await house.raw("POST", "/v1/tasks", content=request().model_dump_json(), headers=headers)
        assert answer.status_code == (422), answer.text


@pytest.mark.parametrize("key", ["forge:web:7:t7", "forge:"])
async def test_a_key_of_what_was_asked_for_on_a_forge_is_nobody_elses_to_take(house: House, key: str) -> None:
    async with house.open():
        for answer in (await submit(house, f'"{key}"'), await submit(house, None, idempotency_key=key)):
            assert answer.status_code == 422
            assert "asked for on a forge" in answer.json()["why"]
            assert answer.json()["mend"]
        assert (await submit(house, f"my-{key}")).status_code == 201


async def test_a_hundred_calls_at_once_with_one_key_make_one_task(house: House) -> None:
    async with house.open():
        answers = await asyncio.gather(*(submit(house, "k") for _ in range(40)))
        assert sorted(answer.status_code for answer in answers) == [200] * 39 + [201]
        assert len((await house.raw("GET", "/v1/tasks")).json()["items"]) == 1


async def test_every_verb_said_twice_answers_alike(house: House) -> None:
    await house.task("one")
    async with house.client() as client:
        for verb in (client.pause, client.resume, client.cancel):
            first, second = await verb("one"), await verb("one")
            assert (first.state, first.reason) == (second.state, second.reason)
            assert first.updated == second.updated
        with pytest.raises(TaskError):
            await client.pause("one")


async def test_a_message_with_a_key_is_said_once(house: House) -> None:
    await house.task("one")
    async with house.client() as client:
        first = await client.message("one", "mind the tests", key="m")
        assert (await client.message("one", "mind the tests", key="m")).seq == first.seq
        await client.message("one", "and the docs")
        assert [said.text for said in await client.messages("one")] == ["mind the tests", "and the docs"]


class Flaky:
    """A server that takes a call and hangs up without a word, so many times."""

    def __init__(self, times: int) -> None:
        self.calls = 0
        self._times = times

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        self.calls += 1
        if self.calls > self._times:
            body = b'{"version":"1","pid":1,"uid":0,"started":0}'
            writer.write(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))
        writer.close()


async def test_only_what_may_be_said_twice_is_said_again_when_the_connection_breaks(house: House) -> None:
    for times, call, calls in (
        (2, "health", 3),
        (9, "health", 3),
        (9, "submit", 1),
        (9, "keyed", 3),
        (9, "message", 1),
    ):
        flaky = Flaky(times)
        path = house.folder / f"{call}{times}.sock"
        async with await asyncio.start_unix_server(flaky, str(path)), DaemonClient(path) as client:
            does = {
                "health": client.health,
                "submit": lambda: client.submit(request()),
                "keyed": lambda: client.submit(request(idempotency_key="k")),
                "message": lambda: client.message("one", "x"),
            }
            try:
                await does[call]()
            except DaemonError:
                assert times == 9
        assert flaky.calls == calls, call
