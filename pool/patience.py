"""How long a request is waited for: until it begins, between its pieces, and in all; pure.

One timeout for all of it kills long prompts and lets dead streams live (agentic-api#220, llama-swap#1090,
maximhq/bifrost#5504). The wait for the first piece grows with the queue and the prompt. An engine that is seen to move
extends both waits: giving up on a busy server and sending again would double its load (vllm-project/vllm#20520).
"""

from __future__ import annotations

from dataclasses import dataclass

SLOWEST = 50.0  # tokens a second of prefill that are assumed where nothing is known, as of a small CPU
SLACK = 4.0  # times the forecast that an answer may take to begin


def first_budget(least: float, prompt: int, ahead: int = 0, forecast: float | None = None) -> float:
    """Seconds without a sign of life until an answer begins.

    ``least`` is the configured wait, ``prompt`` and ``ahead`` are tokens of the request and of those queued before it,
    ``forecast`` the seconds that placement expects where its model of the endpoint is fitted.
    """
    if forecast is not None:
        return least + SLACK * forecast
    return least + (prompt + ahead) / SLOWEST


@dataclass(slots=True)
class Watch:
    """Watches one attempt. Times are seconds of the pool's clock.

    ``first`` and ``idle`` are seconds without a sign of life before and after the first piece; ``until`` is the
    deadline of the whole request; ``begun_at`` is when the first piece came, ``heard_at`` the last one.
    """

    first: float
    idle: float
    until: float
    sent: float
    heard_at: float | None = None
    begun_at: float | None = None

    def heard(self, now: float) -> None:
        """A piece of the answer came. Comments that keep a connection open are none: the front end sends those."""
        self.heard_at = now
        if self.begun_at is None:
            self.begun_at = now

    def left(self, now: float, moved_at: float) -> float:
        """Seconds for which a sign of life is still waited for; ``moved_at`` is when the engine was last seen to move.

        The deadline is not in it: that a caller has no more time is not an endpoint's fault.
        """
        limit, since = (self.first, self.sent) if self.heard_at is None else (self.idle, self.heard_at)
        return max(since, moved_at) + limit - now

    @property
    def verdict(self) -> str:
        """What to tell when nothing is left to wait for."""
        if self.heard_at is None:
            return f"no answer in {self.first:.3g} s, and its engine stands still"
        return f"the answer stopped for {self.idle:.3g} s, and its engine stands still"
