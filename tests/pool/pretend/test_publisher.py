"""KV events travel over ZMQ in vLLM's frames, are missed on demand, and can be asked for again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import msgpack
import pytest
import zmq
import zmq.asyncio

from pool.pretend.minds import EngineMind
from pool.pretend.publisher import Publisher
from pool.testing import EngineSettings, KvEvents, PretendServer, pretend_vllm

SMALL = EngineSettings(block_size=4, num_gpu_blocks=20, step_base=0.001)


@asynccontextmanager
async def listening(settings: KvEvents) -> AsyncIterator[tuple[PretendServer, Publisher, zmq.asyncio.Socket]]:
    async with pretend_vllm(engine=SMALL, kv_events=settings) as server:
        assert isinstance(server.mind, EngineMind)
        publisher = server.mind.publisher
        assert publisher is not None
        context = zmq.asyncio.Context()
        socket = context.socket(zmq.SUB)
        socket.subscribe(settings.topic)
        socket.connect(publisher.address)
        await asyncio.sleep(0.1)  # a subscription takes a moment, and what comes before it is never seen
        try:
            yield server, publisher, socket
        finally:
            socket.close(linger=0)
            context.term()


async def ask(server: PretendServer, prompt: str) -> None:
    async with httpx.AsyncClient(base_url=server.url) as client:
        body = {"model": "pretend", "prompt": prompt, "max_tokens": 1}
        assert (await client.post("/v1/completions", json=body)).status_code == 200


async def take(socket: zmq.asyncio.Socket) -> tuple[bytes, int, Any]:
    async with asyncio.timeout(2):
        topic, sequence, payload = await socket.recv_multipart()
    return topic, int.from_bytes(sequence, "big"), msgpack.unpackb(payload)


async def test_stored_and_removed_blocks_are_told_as_maps_in_order() -> None:
    async with listening(KvEvents(topic="kv")) as (server, _, socket):
        await ask(server, "a" * 16 * 4)
        topic, number, (when, events, rank) = await take(socket)
        assert (topic, number, rank) == (b"kv", 0, 0)
        assert when > 0
        stored = events[0]
        assert stored["type"] == "BlockStored"
        assert (len(stored["block_hashes"]), stored["block_size"], stored["parent_block_hash"]) == (4, 4, None)
        assert stored["token_ids"] == [int.from_bytes(b"aaaa", "big")] * 16
        assert isinstance(stored["block_hashes"][0], bytes)
        await ask(server, "b" * 4 * 70)
        _, number, (_, events, _) = await take(socket)
        assert number == 1
        assert {event["type"] for event in events} == {"BlockStored", "BlockRemoved"}


async def test_older_shape_is_an_array_with_number_hashes() -> None:
    async with listening(KvEvents(shape="array", hashes="int")) as (server, _, socket):
        await ask(server, "a" * 64)
        _, _, (_, events, _) = await take(socket)
        name, hashes, parent, ids, size, *_ = events[0]
        assert (name, parent, size, len(ids)) == ("BlockStored", None, 4, 16)
        assert all(isinstance(one, int) for one in hashes)


async def replayed(address: str, start: int) -> list[tuple[int, bytes]]:
    context = zmq.asyncio.Context()
    dealer = context.socket(zmq.DEALER)
    dealer.connect(address)
    found = []
    try:
        await dealer.send_multipart((b"", start.to_bytes(8, "big")))
        async with asyncio.timeout(2):
            while True:
                _, _, number, payload = await dealer.recv_multipart()
                if int.from_bytes(number, "big", signed=True) < 0:
                    return found
                found.append((int.from_bytes(number, "big"), payload))
    finally:
        dealer.close(linger=0)
        context.term()


@pytest.mark.parametrize("forget", [False, True])
async def test_lost_batch_leaves_a_gap_that_replay_fills_unless_it_was_forgotten(forget: bool) -> None:
    async with listening(KvEvents()) as (server, publisher, socket):
        publisher.lose(1, forget=forget)
        await ask(server, "a" * 64)
        await ask(server, "b" * 64)
        _, number, _ = await take(socket)
        assert number == 1
        assert publisher.replay_address is not None
        found = [number for number, _ in await replayed(publisher.replay_address, 0)]
        assert found == ([1] if forget else [0, 1])


async def test_cold_restart_begins_at_zero_on_the_same_addresses_and_with_an_empty_cache() -> None:
    async with listening(KvEvents()) as (server, publisher, socket):
        await ask(server, "a" * 64)
        assert (await take(socket))[1] == 0
        await server.restart_cold()
        assert isinstance(server.mind, EngineMind)
        assert server.mind.publisher is not None
        assert server.mind.publisher.address == publisher.address
        await ask(server, "a" * 64)
        assert publisher.replay_address is not None
        [(number, payload)] = await replayed(publisher.replay_address, 0)
        assert (number, msgpack.unpackb(payload)[1][0]["type"]) == (0, "BlockStored")


async def test_addresses_are_told_where_vllm_tells_them() -> None:
    async with listening(KvEvents()) as (server, publisher, _), httpx.AsyncClient(base_url=server.url) as client:
        told = (await client.get("/kv_event_sources")).json()["0"]
    assert (told["endpoint"], told["replay_endpoint"]) == (publisher.address, publisher.replay_address)
