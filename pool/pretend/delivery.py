"""Brings one answer to its client, whole or as a stream of events, and lets it go wrong on the way as a twist says."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from pool.pretend.script import JSON, Twist, server_error
from pool.pretend.speech import Spoken, Voice

Send = Callable[[Any], Awaitable[None]]
Reach = Callable[[int, int], Awaitable[None]]
"""Wait until a sample (its index) has so many tokens."""

COMMENT = b": keep-alive\n\n"
SPLIT_PAUSE = 0.0005  # seconds between pieces of a split answer, so that they do not travel together


@dataclass(frozen=True)
class Answer:
    """What one request gets. ``begin`` ends when the first token may be waited for; ``usage`` is asked at the end."""

    voice: Voice
    samples: list[Spoken]
    begin: Callable[[], Coroutine[Any, Any, None]]
    reach: Reach
    usage: Callable[[], JSON]
    interval: int = 1
    keep_alive: float | None = None


class Delivery:
    """One response. ``reset`` breaks the connection; ``started`` tells whether its head was sent."""

    def __init__(self, send: Send, reset: Callable[[], None]) -> None:
        self.started = False
        self._send = send
        self._reset = reset
        self._twist = Twist()

    async def json(self, body: Any, status: int = 200, headers: dict[str, str] | None = None) -> None:
        """A plain answer."""
        data = json.dumps(body).encode()
        await self._head(status, "application/json", {"content-length": str(len(data)), **(headers or {})})
        await self._body(data, more=False)

    async def cut(self, *, stream: bool) -> None:
        """The head and a part of the body; then the connection is reset."""
        if stream:
            await self._head(200, "text/event-stream; charset=utf-8")
            await self._body(b'data: {"id": "pre')
        else:
            await self._head(200, "application/json", {"content-length": "1000"})
            await self._body(b'{"id": "pre')
        await asyncio.sleep(0.02)
        self._reset()

    def reset(self) -> None:
        """Break the connection."""
        self._reset()

    async def whole(self, answer: Answer, twist: Twist, headers: Callable[[], dict[str, str]]) -> None:
        """The whole answer at once, when its last token is there."""
        self._twist = twist
        await answer.begin()
        for index, sample in enumerate(answer.samples):
            await asyncio.sleep(twist.pace * len(sample.tokens)) if twist.pace else None
            await answer.reach(index, max(1, len(sample.tokens)))
        if twist.end == "error":
            await self.json(server_error().body, 500)
            return
        words = answer.voice.whole(answer.samples, self._usage(answer))
        if twist.end == "unfinished":
            words["choices"] = [choice | {"finish_reason": None} for choice in words["choices"]]
        data = json.dumps(words).encode()
        if twist.end in ("whole", "unfinished", "no_done"):
            await self._head(200, "application/json", {"content-length": str(len(data)), **headers()})
            await self._body(data, more=False)
            return
        await self._head(200, "application/json")
        await self._body(data[: len(data) // 2])
        await self._break()

    async def stream(self, answer: Answer, twist: Twist) -> None:
        """Server-sent events. The head goes out at once, as vLLM's does, long before the first token."""
        self._twist = twist
        await self._head(200, "text/event-stream; charset=utf-8")
        await self._patiently(answer.begin(), answer.keep_alive)
        opened: set[int] = set()
        sent = 0
        async for index, start, end in self._beats(answer):
            if twist.after is not None and sent >= twist.after:
                break
            if answer.voice.chat and twist.role and index not in opened:
                opened.add(index)
                await self._event(answer.voice.opening(index))
            finish = end >= len(answer.samples[index].tokens) and twist.end in ("whole", "no_done")
            await self._event(answer.voice.piece(index, answer.samples[index], start, end, finish=finish))
            sent += end - start
        await self._end(answer)

    async def _beats(self, answer: Answer) -> AsyncIterator[tuple[int, int, int]]:
        """Sample, first and last token of each event; the first token comes alone, as with vLLM's stream interval."""
        start, longest = 0, max(len(sample.tokens) for sample in answer.samples)
        while start == 0 or start < longest:
            end = 1 if start == 0 else start + answer.interval
            for index, sample in enumerate(answer.samples):
                if start < len(sample.tokens) or start == 0:
                    stop = min(end, len(sample.tokens))
                    await asyncio.sleep(self._twist.pace * (stop - start)) if self._twist.pace else None
                    await self._patiently(answer.reach(index, max(1, stop)), answer.keep_alive)
                    yield index, start, stop
            start = end

    async def _end(self, answer: Answer) -> None:
        end = self._twist.end
        if end in ("closed", "reset", "stalled"):
            await self._break()
            return
        if end == "error":
            await self._event(server_error().body)
        elif end != "unfinished" and answer.voice.wants_usage and (usage := self._usage(answer)) is not None:
            told = {name: value for name, value in usage.items() if value is not None}  # vLLM leaves null out here
            await self._event(answer.voice.closing(told))
        if end != "no_done":
            await self._line("data: [DONE]")
        await self._body(b"", more=False)

    async def _break(self) -> None:
        if self._twist.end == "closed":
            await self._body(b"", more=False)
        elif self._twist.end == "stalled":
            await asyncio.Event().wait()
        else:
            await asyncio.sleep(0.02)  # what was sent before arrives
            self._reset()

    def _usage(self, answer: Answer) -> JSON | None:
        if self._twist.usage == "missing":
            return None
        usage = answer.usage()
        return usage | {"prompt_tokens_details": None} if self._twist.usage == "bare" else usage

    async def _patiently(self, waited: Awaitable[None], keep_alive: float | None) -> None:
        """Wait, with a comment line now and then, as vLLM's --sse-keep-alive-interval has it."""
        if keep_alive is None:
            await waited
            return
        task = asyncio.ensure_future(waited)
        try:
            while not (await asyncio.wait({task}, timeout=keep_alive))[0]:
                await self._body(COMMENT)
            await task
        finally:
            task.cancel()

    async def _event(self, words: JSON) -> None:
        if self._twist.comments:
            await self._body(COMMENT)
        await self._line(f"data: {json.dumps(words, ensure_ascii=False)}")

    async def _line(self, text: str) -> None:
        await self._body((text + self._twist.newline * 2).encode())

    async def _head(self, status: int, kind: str, headers: dict[str, str] | None = None) -> None:
        self.started = True
        pairs = {"content-type": kind, **(headers or {})}
        raw = [(name.encode(), value.encode()) for name, value in pairs.items()]
        await self._send({"type": "http.response.start", "status": status, "headers": raw})

    async def _body(self, data: bytes, *, more: bool = True) -> None:
        size = self._twist.split
        if size is not None:
            for start in range(0, len(data), size):
                await self._send({"type": "http.response.body", "body": data[start : start + size], "more_body": True})
                await asyncio.sleep(SPLIT_PAUSE)
            data = b""
        await self._send({"type": "http.response.body", "body": data, "more_body": more})
