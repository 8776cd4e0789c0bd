"""One answer of a virtual model under way: makes its parts within budget and deadline, and writes the report."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from pool.config import VirtualConfig
from pool.errors import ContextOverflowError, PoolError, TransientError
from pool.tiers import size
from pool.tiers.answers import unusable
from pool.tiers.beneath import Beneath, Request, ask
from pool.tiers.purse import Purse
from pool.types import Choice, Part, Reply, Report
from pool.wire.fields import merge

Stopped = Literal["done", "early", "budget", "deadline", "failed"]

SHORTEST = 0.05  # seconds; with less than that left no part is begun


@dataclass(frozen=True, slots=True)
class Answer:
    """What one part answered, and on which tier. ``fault`` says why nobody could use it."""

    choice: Choice
    reply: Reply
    tier: str
    fault: str = ""


class Run:
    """The parts of one answer, their cost, and why they ended."""

    def __init__(
        self,
        pool: Beneath,
        name: str,
        model: VirtualConfig,
        request: Request,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self.model = model
        self.request = request
        self.purse = Purse(model.budget)
        self.parts: list[Part] = []
        self.stopped: Stopped = "done"
        self.figures: dict[str, float] = {}
        self._pool = pool
        self._clock = clock
        self._began = clock()
        self._attempts = 0
        self._last: PoolError | None = None

    async def part(
        self, role: str, tier: str, request: Request, *, samples: int = 1, keep: int = 0
    ) -> tuple[Answer, ...]:
        """Ask ``tier`` for up to ``samples`` answers, leaving ``keep`` tokens of the budget untouched.

        Empty where it failed, or where budget or deadline would not cover it: then ``stopped`` says so. Tool calls in
        an answer are only ever looked at.
        """
        left = self._began + self.request.deadline - self._clock()
        if left < SHORTEST:
            self.stopped = "deadline"
            return ()
        held = self.purse.hold(request, samples, keep)
        if held is None:
            self.stopped = "budget"
            return ()
        sent = request.model_copy(update={"tier": tier, "n": held.samples, "max_tokens": held.most, "deadline": left})
        reply = None
        try:
            reply = await ask(self._pool, sent)
        except PoolError as error:
            self._last = error
            self._failed(role, tier, held.samples, error)
        finally:
            self.purse.settle(held, request, reply.usage if reply else None)
        return self._took(role, tier, reply, clipped=held.most < request.max_tokens) if reply else ()

    def reply(self, answer: Answer | None, gained: str) -> Reply:
        """The final reply, with the sum of what all parts cost.

        Raises the last part's error where there is no answer at all, or ContextOverflowError where the budget did not
        cover even one.
        """
        if answer is None:
            raise self._nothing()
        report = Report(
            name=self.name,
            kind=self.model.kind,
            parts=tuple(self.parts),
            spent=self.purse.spent,
            budget=self.purse.budget,
            stopped=self.stopped,
            gained=gained,
            figures=self.figures,
        )
        return Reply(
            choices=(answer.choice,),
            usage=merge([part.usage for part in self.parts if not part.failed]),
            endpoint=answer.reply.endpoint,
            model=answer.reply.model,
            seconds=self._clock() - self._began,
            attempts=self._attempts,
            tier=answer.tier,
            why=f"{self.name}: {gained}",
            report=report,
        )

    def _took(self, role: str, tier: str, reply: Reply, *, clipped: bool) -> tuple[Answer, ...]:
        self._attempts += reply.attempts
        self.parts.append(
            Part(
                role=role,
                tier=tier,
                endpoint=reply.endpoint,
                model=reply.model,
                usage=reply.usage,
                seconds=reply.seconds,
                samples=len(reply.choices),
            )
        )
        return tuple(
            Answer(choice, reply, tier, self._fault(role, choice, clipped=clipped)) for choice in reply.choices
        )

    def _fault(self, role: str, choice: Choice, *, clipped: bool) -> str:
        if role == "judge":
            return ""
        if clipped and choice.finish_reason == "length":
            return "the budget cut it off"
        return unusable(choice, self.request)

    def _failed(self, role: str, tier: str, samples: int, error: PoolError) -> None:
        self._attempts += 1
        self.parts.append(Part(role=role, tier=tier, samples=samples, failed=str(error)))

    def _nothing(self) -> PoolError:
        if self._last is not None:
            return self._last
        if self.stopped == "deadline":
            return TransientError(f"virtual model {self.name}: no answer within {self.request.deadline:g} s")
        need = self.purse.prompt(size.chars(self.request))
        told = f"its budget of {self.purse.budget} tokens does not cover this prompt of about {need}"
        mend = f"shorten the prompt, or raise pool.virtual.{self.name}.budget"
        return ContextOverflowError(f"virtual model {self.name}: {told}; {mend}", self.purse.budget)
