"""Listens to the KV events of endpoints over ZMQ, and asks again for those that were missed."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import Any

import zmq
import zmq.asyncio

from pool.config import EndpointConfig
from pool.placement.kvevents import Feed, Published

log = logging.getLogger(__name__)

REPLAY_PATIENCE = 5.0  # seconds without a word after which a replay has failed
LARGEST = 64 * 1024 * 1024  # bytes of one batch
NUMBER = 8  # bytes of a batch's number
END = (-1).to_bytes(8, "big", signed=True)


class KvListener:
    """Keeps `view`, what an endpoint told of its blocks. Give it time with `running`; sockets reconnect by themselves.

    A listener that comes late or misses a batch asks for a replay; without one, the view begins anew, with a gap.
    """

    def __init__(self, config: EndpointConfig, *, patience: float = REPLAY_PATIENCE) -> None:
        if config.kv_events is None:
            raise ValueError(f"endpoint {config.name}: it names no address of KV events")
        self.name = config.name
        self.view = Published()
        self._events = config.kv_events
        self._replay = config.kv_replay
        self._patience = patience
        self._feed = Feed(self.view)
        self._asking: asyncio.Task[None] | None = None

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Listen until the block ends."""
        context = zmq.asyncio.Context()
        socket = context.socket(zmq.SUB)
        socket.maxmsgsize = LARGEST
        socket.subscribe(b"")
        socket.connect(self._events)
        listening = asyncio.create_task(self._listen(context, socket))
        self._asking = asyncio.create_task(self._catch_up(context, self._feed.begin()))
        try:
            yield
        finally:
            tasks = [task for task in (listening, self._asking) if task is not None]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            context.destroy(linger=0)

    def restarted(self) -> None:
        """The endpoint is another process than before, and it may be long before its first event says so."""
        self.view.lost()

    async def _listen(self, context: zmq.asyncio.Context, socket: zmq.asyncio.Socket) -> None:
        while True:
            frames = await socket.recv_multipart()
            if len(frames) != 3 or len(frames[1]) != NUMBER or frames[1][0] > 0x7F:
                continue  # no number of a batch: taken for one, it would make all later ones look old
            start = self._feed.take(int.from_bytes(frames[1], "big"), frames[2])
            if start is not None:
                self._asking = asyncio.create_task(self._catch_up(context, start))

    async def _catch_up(self, context: zmq.asyncio.Context, start: int) -> None:
        """Ask for what was missed; whatever comes of it, go on with what is there."""
        try:
            if self._replay is not None:
                await self._ask(context, self._replay, start)
        except (TimeoutError, zmq.ZMQError) as error:
            log.info("endpoint %s: no replay of its KV events (%s)", self.name, type(error).__name__)
        if not self._feed.ended():
            log.info("endpoint %s: KV events from number %d on are lost; its view begins anew", self.name, start)

    async def _ask(self, context: zmq.asyncio.Context, address: str, start: int) -> None:
        with context.socket(zmq.DEALER) as socket:
            socket.linger, socket.maxmsgsize = 0, LARGEST
            socket.connect(address)
            await socket.send_multipart((b"", start.to_bytes(8, "big")))
            while True:
                async with asyncio.timeout(self._patience):
                    frames = await socket.recv_multipart()
                if len(frames) != 4 or len(frames[2]) != NUMBER or frames[2] == END:
                    return
                self._feed.replayed(int.from_bytes(frames[2], "big"), frames[3])


class KvListeners:
    """One listener for each endpoint that publishes KV events. ``publish`` is told each view, and None at its end."""

    def __init__(self, publish: Callable[[str, Published | None], None]) -> None:
        self._publish = publish
        self._listeners: dict[str, tuple[EndpointConfig, KvListener, asyncio.Task[None]]] = {}
        self._open = False

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Listen to whom `follow` names until the block ends."""
        self._open = True
        try:
            yield
        finally:
            self._open = False
            tasks = [self._stop(name) for name in list(self._listeners)]
            await asyncio.gather(*tasks, return_exceptions=True)

    def __contains__(self, name: str) -> bool:
        return name in self._listeners

    def follow(self, configs: Iterable[EndpointConfig]) -> None:
        """These are the endpoints now: begin with the new ones, end with those that went or changed."""
        wanted = {config.name: config for config in configs if config.kv_events is not None and self._open}
        for name, (config, _, _) in list(self._listeners.items()):
            if wanted.get(name) != config:
                self._stop(name)
        for name, config in wanted.items():
            if name not in self._listeners:
                listener = KvListener(config)
                task = asyncio.create_task(_listening(listener), name=f"kv events {name}")
                self._listeners[name] = (config, listener, task)
                self._publish(name, listener.view)

    def restarted(self, name: str) -> None:
        """An endpoint is another process than before."""
        if name in self._listeners:
            self._listeners[name][1].restarted()

    def _stop(self, name: str) -> asyncio.Task[None]:
        task = self._listeners.pop(name)[2]
        task.cancel()
        self._publish(name, None)
        return task


def tokenize_body(model: str, body: Mapping[str, Any]) -> dict[str, Any] | None:
    """The question to vLLM's /tokenize of how a chat or completion body becomes tokens; None where it takes none such.

    A prompt that is token ids already needs no question, and one of several prompts no place of its own.
    """
    kept = {key: body[key] for key in ("messages", "tools", "chat_template_kwargs") if body.get(key)}
    if "messages" in kept:
        return {"model": model, **kept}
    prompt = body.get("prompt")
    return {"model": model, "prompt": prompt} if isinstance(prompt, str) else None


def read_tokens(status: int, told: bytes) -> tuple[int, ...]:
    """The token ids in an answer of /tokenize; none where it does not tell."""
    try:
        tokens = json.loads(told)["tokens"] if status == 200 else ()
        return tuple(int(token) for token in tokens)
    except (ValueError, KeyError, TypeError):
        return ()


async def _listening(listener: KvListener) -> None:
    async with listener.running():
        await asyncio.Event().wait()
