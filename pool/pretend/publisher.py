"""Publishes the pretend engine's KV events over ZMQ as vLLM does, and replays those that somebody missed.

Frames and fields are those of vllm/distributed/kv_events.py (0.32): [topic, sequence, msgpack [time, events, rank]].
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Literal

import msgpack
import zmq
import zmq.asyncio

from pool.pretend.kv import KEY_BYTES, KvEvent, Removed, Stored

END = (-1).to_bytes(8, "big", signed=True)
HOST = "tcp://127.0.0.1"


@dataclass(frozen=True)
class KvEvents:
    """How the events are told. Newer vLLM sends each event as a map, older ones as an array; hashes are bytes or ints.

    ``buffer_steps`` batches are kept for replay; ``replay`` False leaves that socket out. Port 0 takes a free one.
    """

    port: int = 0
    replay_port: int = 0
    replay: bool = True
    topic: str = ""
    shape: Literal["map", "array"] = "map"
    hashes: Literal["bytes", "int"] = "bytes"
    buffer_steps: int = 10_000


TokenIds = Callable[[str, int, int], list[int]]
"""Token ids of a sequence: its id, the first block, how many blocks."""


class Publisher:
    """A PUB socket and a ROUTER socket on loopback. Made and closed inside a running event loop."""

    def __init__(self, settings: KvEvents, block_size: int, token_ids: TokenIds) -> None:
        self.settings = settings
        self._block_size = block_size
        self._token_ids = token_ids
        self._context = zmq.asyncio.Context()
        self._pub = self._context.socket(zmq.PUB)
        self._next = 0
        self._lose = 0
        self._forget = False
        self._buffer: deque[tuple[int, bytes]] = deque(maxlen=settings.buffer_steps)
        self.address = self._bind(self._pub, settings.port)
        self.replay_address: str | None = None
        self._task: asyncio.Task[None] | None = None
        if settings.replay:
            self._router = self._context.socket(zmq.ROUTER)
            self.replay_address = self._bind(self._router, settings.replay_port)
            self._task = asyncio.create_task(self._serve_replay())

    @property
    def fixed(self) -> KvEvents:
        """The settings with the ports that were taken."""
        ports = [int(address.rsplit(":", 1)[1]) for address in (self.address, self.replay_address or ":0")]
        return replace(self.settings, port=ports[0], replay_port=ports[1])

    def lose(self, batches: int, *, forget: bool = False) -> None:
        """Let the next batches take their numbers and never arrive; forgotten ones cannot be replayed either."""
        self._lose, self._forget = batches, forget

    def publish(self, events: tuple[KvEvent, ...]) -> None:
        """Send one batch."""
        payload = msgpack.packb([time.time(), [self._worded(event) for event in events], 0])
        sequence, self._next = self._next, self._next + 1
        lost, self._lose = self._lose > 0, max(0, self._lose - 1)
        if not (lost and self._forget):
            self._buffer.append((sequence, payload))
        if not lost:
            frames = (self.settings.topic.encode(), sequence.to_bytes(8, "big"), payload)
            zmq.Socket.send_multipart(self._pub, frames, zmq.DONTWAIT)  # a PUB socket never blocks, it drops

    async def close(self) -> None:
        """Close both sockets."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
            self._router.close(linger=0)
        self._pub.close(linger=0)
        self._context.term()

    @staticmethod
    def _bind(socket: zmq.asyncio.Socket, port: int) -> str:
        socket.bind(f"{HOST}:{port or '*'}")
        return f"{HOST}:{socket.getsockopt_string(zmq.LAST_ENDPOINT).rsplit(':', 1)[1].strip(chr(0))}"

    async def _serve_replay(self) -> None:
        topic = self.settings.topic.encode()
        while True:
            frames = await self._router.recv_multipart()
            if len(frames) != 3:
                continue
            client, _, start = frames
            for sequence, payload in tuple(self._buffer):
                if sequence >= int.from_bytes(start, "big"):
                    await self._router.send_multipart((client, b"", topic, sequence.to_bytes(8, "big"), payload))
            await self._router.send_multipart((client, b"", b"", END, b""))

    def _worded(self, event: KvEvent) -> Any:
        if isinstance(event, Stored):
            fields = {
                "block_hashes": [self._hash(key) for key in event.keys],
                "parent_block_hash": None if event.parent is None else self._hash(event.parent),
                "token_ids": self._token_ids(event.owner, event.first, len(event.keys)),
                "block_size": self._block_size,
                "lora_id": None,
                "medium": "GPU",
                "lora_name": None,
            }
            return self._shaped("BlockStored", fields)
        if isinstance(event, Removed):
            return self._shaped(
                "BlockRemoved", {"block_hashes": [self._hash(key) for key in event.keys], "medium": "GPU"}
            )
        return self._shaped("AllBlocksCleared", {})

    def _shaped(self, name: str, fields: dict[str, Any]) -> Any:
        return {"type": name, **fields} if self.settings.shape == "map" else [name, *fields.values()]

    def _hash(self, key: int) -> bytes | int:
        return key.to_bytes(KEY_BYTES, "big") if self.settings.hashes == "bytes" else key
