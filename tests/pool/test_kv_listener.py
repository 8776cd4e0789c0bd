"""The view of an endpoint's blocks is true: the listener catches up, fills gaps, begins anew, survives restarts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import httpx
import pytest

from pool.config import EndpointConfig, PoolConfig
from pool.kv_listener import KvListener, read_tokens, tokenize_body
from pool.placement.blocks import token_chain
from pool.placement.placer import Placer
from pool.placement.view import Ask, Prompt, Site
from pool.pretend.minds import EngineMind
from pool.pretend.publisher import Publisher
from pool.router import Pool
from pool.testing import EngineSettings, KvEvents, PretendServer, pretend_vllm
from pool.types import CompletionRequest

SMALL = EngineSettings(block_size=4, num_gpu_blocks=40, step_base=0.001)
LARGE = EngineSettings(block_size=4, num_gpu_blocks=2000, step_base=0.001)


async def until(true: Callable[[], bool], seconds: float = 3.0) -> None:
    async with asyncio.timeout(seconds):
        while not true():  # noqa: ASYNC110  a view tells nobody when it changes
            await asyncio.sleep(0.005)


async def ask(server: PretendServer, letter: str, blocks: int = 4) -> None:
    async with httpx.AsyncClient(base_url=server.url) as client:
        body = {"model": "pretend", "prompt": letter * 16 * blocks, "max_tokens": 1}
        assert (await client.post("/v1/completions", json=body)).status_code == 200


def ids(letter: str, blocks: int = 4) -> list[int]:
    return [int.from_bytes(letter.encode() * 4, "big")] * (4 * blocks)


def hit(listener: KvListener, letter: str) -> int:
    return listener.view.hit(token_chain(ids(letter), 4))


def publisher_of(server: PretendServer) -> Publisher:
    assert isinstance(server.mind, EngineMind)
    assert server.mind.publisher is not None
    return server.mind.publisher


def config(publisher: Publisher, *, replay: bool = True) -> EndpointConfig:
    return EndpointConfig(
        name="a",
        url="http://127.0.0.1:1",
        kv_events=publisher.address,
        kv_replay=publisher.replay_address if replay else None,
    )


@asynccontextmanager
async def heard(
    settings: KvEvents, *, replay: bool = True, before: str = ""
) -> AsyncIterator[tuple[PretendServer, Publisher, KvListener]]:
    async with pretend_vllm(engine=SMALL, kv_events=settings) as server:
        for letter in before:
            await ask(server, letter)
        publisher = publisher_of(server)
        listener = KvListener(config(publisher, replay=replay), patience=0.3)
        async with listener.running():
            await asyncio.sleep(0.1)  # a subscription takes a moment
            yield server, publisher, listener


@pytest.mark.parametrize(
    "settings", [KvEvents(), KvEvents(shape="array", hashes="int", topic="kv")], ids=["new", "old"]
)
@pytest.mark.slow
async def test_view_follows_what_is_stored_and_evicted(settings: KvEvents) -> None:
    async with heard(settings) as (server, _, listener):
        await ask(server, "a")
        await until(lambda: hit(listener, "a") == 4)
        assert listener.view.whole
        for letter in "bcdefghijkl":
            await ask(server, letter)
        await until(lambda: hit(listener, "l") == 4 and hit(listener, "a") < 4)


async def test_what_was_cached_before_anybody_listened_is_learnt_by_replay() -> None:
    """A fresh router does not know old KV: sgl-project/sglang#39750."""
    async with heard(KvEvents(), before="ab") as (_, _, listener):
        await until(lambda: hit(listener, "a") == hit(listener, "b") == 4)
        assert listener.view.whole


async def test_missed_batches_are_asked_for_again() -> None:
    async with heard(KvEvents()) as (server, publisher, listener):
        await ask(server, "a")
        publisher.lose(2)
        for letter in "bcd":
            await ask(server, letter)
        await until(lambda: all(hit(listener, letter) == 4 for letter in "abcd"))
        assert listener.view.whole


async def test_batches_lost_for_good_drop_the_view() -> None:
    async with heard(KvEvents()) as (server, publisher, listener):
        await ask(server, "a")
        await until(lambda: hit(listener, "a") == 4)
        publisher.lose(1, forget=True)
        await ask(server, "b")
        await ask(server, "c")
        await until(lambda: hit(listener, "c") == 4)
        assert (hit(listener, "a"), hit(listener, "b"), listener.view.whole) == (0, 0, False)


async def test_without_a_replay_socket_a_gap_drops_the_view_at_once() -> None:
    async with heard(KvEvents(replay=False), replay=False) as (server, publisher, listener):
        await ask(server, "a")
        publisher.lose(1)
        await ask(server, "b")
        await ask(server, "c")
        await until(lambda: hit(listener, "c") == 4)
        assert (hit(listener, "a"), listener.view.whole) == (0, False)


async def test_replay_that_never_answers_stops_nobody() -> None:
    async with pretend_vllm(engine=SMALL, kv_events=KvEvents()) as server:
        publisher = publisher_of(server)
        deaf = config(publisher).model_copy(update={"kv_replay": "tcp://127.0.0.1:9"})
        listener = KvListener(deaf, patience=0.1)
        async with listener.running():
            await asyncio.sleep(0.3)
            await ask(server, "a")
            await until(lambda: hit(listener, "a") == 4)


async def test_restarted_endpoint_is_empty() -> None:
    async with heard(KvEvents()) as (server, _, listener):
        for letter in "ab":
            await ask(server, letter)
        await until(lambda: hit(listener, "b") == 4)
        resets = listener.view.resets
        await server.restart_cold()
        await asyncio.sleep(0.3)  # the subscription comes back by itself
        for letter in "cd":
            await ask(server, letter)
        await until(lambda: hit(listener, "d") == 4)
        assert (hit(listener, "a"), hit(listener, "b")) == (0, 0)
        assert listener.view.resets > resets


async def test_published_view_decides_where_a_prompt_finds_its_blocks() -> None:
    async with heard(KvEvents()) as (server, _, listener):
        await ask(server, "a", 4)
        await until(lambda: hit(listener, "a") == 4)
        placer, sites = Placer(), [Site(name, "t", "up", block_tokens=4) for name in ("a", "b")]
        placer.publish("a", listener.view)
        prompt = Prompt(20, token_ids=[*ids("a"), *ids("z", 1)])
        asked = Ask("r", "t", "new", prompt, 0.0, 1e12)
        assert placer.choose(asked, sites).expected_hit == 16
        listener.restarted()
        assert placer.choose(asked, sites).expected_hit == 0


def test_endpoint_without_events_cannot_be_listened_to() -> None:
    with pytest.raises(ValueError, match="names no address"):
        KvListener(EndpointConfig(name="a", url="http://127.0.0.1:1"))


async def test_pool_finds_by_published_events_what_it_did_not_send_itself() -> None:
    """A fresh router does not know old KV: sgl-project/sglang#39750."""
    async with (
        pretend_vllm(engine=LARGE, kv_events=KvEvents()) as warm,
        pretend_vllm(engine=LARGE) as cold,
    ):
        await ask(warm, "a", 500)
        publisher = publisher_of(warm)
        told = {"kv_events": publisher.address, "kv_replay": publisher.replay_address}
        endpoints = (
            EndpointConfig(name="a-cold", url=cold.url, tier="t"),
            EndpointConfig(name="b-warm", url=warm.url, tier="t", **told),
        )
        async with Pool(PoolConfig(endpoints=endpoints, probe_interval=0.1)) as pool:
            await pool.ready("t")
            await until(lambda: all(status.state == "up" for status in pool.status()))
            view = pool._listeners._listeners["b-warm"][1].view
            await until(lambda: view.hit(token_chain(ids("a", 500), 4)) == 500)
            request = CompletionRequest(tier="t", prompt="a" * 16 * 500 + "z" * 8, session="new", max_tokens=1)
            reply = await pool.complete(request)
            decision = pool.explain(reply.request)
            assert decision is not None
            assert (reply.endpoint, decision.expected_hit, reply.usage.cached_tokens) == ("b-warm", 2000, 2000)
            await pool.remove("b-warm")
            assert "b-warm" not in pool._listeners


def test_tokens_are_asked_for_what_becomes_one_prompt_and_nothing_else() -> None:
    chat = {"model": "x", "messages": [{"role": "user", "content": "hi"}], "tools": [], "temperature": 1}
    assert tokenize_body("m", chat) == {"model": "m", "messages": chat["messages"]}
    assert tokenize_body("m", {"prompt": "text"}) == {"model": "m", "prompt": "text"}
    assert tokenize_body("m", {"prompt": [1, 2]}) is None
    assert tokenize_body("m", {"prompt": ["one", "two"]}) is None
    assert read_tokens(200, b'{"tokens": [1, 2]}') == (1, 2)
    for status, odd in (
        (404, b'{"tokens": [1]}'),
        (200, b"no"),
        (200, b"{}"),
        (200, b'{"tokens": ["x"]}'),
        (200, b"[]"),
    ):
        assert read_tokens(status, odd) == ()
