"""One reply of the pretend server under way: its samples, when their tokens come, and what they cost."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from pool.pretend.delivery import Answer
from pool.pretend.minds import Turn
from pool.pretend.script import JSON
from pool.pretend.speech import Spoken, Voice


@dataclass
class Reply:
    """``pause`` is what the script lets it wait for first, ``moving`` is clear while the server is wedged, and
    ``stepped`` is called at each token. ``ttft`` are the seconds to the first one, None until it came."""

    turn: Turn
    voice: Voice
    samples: list[Spoken]
    pause: Callable[[], Coroutine[Any, Any, None]]
    moving: asyncio.Event
    stepped: Callable[[], None]
    details: bool = True
    started: float = field(default_factory=time.monotonic)
    ttft: float | None = None

    def answer(self, interval: int, keep_alive: float | None) -> Answer:
        """For the delivery."""
        return Answer(self.voice, self.samples, self.begin, self.reach, self.usage, interval, keep_alive)

    @property
    def generated(self) -> int:
        """Tokens of all samples."""
        return sum(max(1, len(sample.tokens)) for sample in self.samples)

    @property
    def finish(self) -> str:
        """How it ends, as the metrics have it."""
        return "length" if self.samples[0].choice.finish_reason == "length" else "stop"

    async def begin(self) -> None:
        """Wait for the script, then start on it."""
        await self.pause()
        self.turn.begin(self.samples)

    async def reach(self, index: int, tokens: int) -> None:
        """Wait until a sample has so many tokens."""
        await self.turn.reach(index, tokens)
        await self.moving.wait()
        self.stepped()
        if self.ttft is None:
            self.ttft = time.monotonic() - self.started

    def usage(self) -> JSON:
        """What it cost, in vLLM's words. Cached tokens that are not told are null, which is not zero."""
        details = {"cached_tokens": self.turn.cached, "created_cache_tokens": 0} if self.details else None
        return {
            "prompt_tokens": self.turn.prompt_tokens,
            "completion_tokens": self.generated,
            "total_tokens": self.turn.prompt_tokens + self.generated,
            "prompt_tokens_details": details,
        }
