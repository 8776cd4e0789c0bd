"""One answer of a virtual model under way: makes its parts within budget and deadline, and writes the report."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Literal, cast

from pool.config import VirtualConfig
from pool.errors import ContextOverflowError, PoolError, TransientError
from pool.tiers import size
from pool.tiers.answers import unusable
from pool.tiers.beneath import Beneath, Listener, Request, ask
from pool.tiers.purse import Purse
from pool.types import ChatRequest, Choice, Part, Reply, Report, Usage
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
        listener: Listener | None = None,
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
        self._listener = listener
        self._flaw = ""
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
        return await self._asked(role, tier, (request, samples, keep), self._ask)

    async def last(self, role: str, tier: str, request: Request) -> tuple[Answer, ...]:
        """As `part`, for the one whose answer is to stand: who listens hears it while it is written.

        Raises PoolError where it broke off after a word was heard: nothing can stand in its place any more.
        """
        listener = self._listener
        if listener is None or not isinstance(request, ChatRequest):
            return await self.part(role, tier, request)
        return await self._asked(
            role, tier, (request, 1, 0), lambda sent: listener.hear(cast("ChatRequest", sent), self._ask)
        )

    async def _ask(self, sent: Request) -> Reply:
        try:
            return await ask(self._pool, sent)
        except asyncio.CancelledError:  # nobody will tell what it cost: what was held for it stands
            if self._listener is not None:
                prompt = self.purse.prompt(size.chars(sent))
                self._listener.paid(Usage(prompt_tokens=prompt * sent.n, completion_tokens=sent.max_tokens * sent.n))
            raise

    async def _asked(
        self, role: str, tier: str, wanted: tuple[Request, int, int], how: Callable[[Request], Awaitable[Reply]]
    ) -> tuple[Answer, ...]:
        request, samples, keep = wanted
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
            reply = await how(sent)
        except PoolError as error:
            if self._heard:
                raise
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
            gained=f"{gained}; but {self._flaw}, which was seen after it was said" if self._flaw else gained,
            figures=self.figures,
        )
        seconds = self._clock() - self._began
        waited, prefill = shares(self.parts, seconds)
        return Reply(
            choices=(answer.choice,),
            usage=merge([part.usage for part in self.parts if not part.failed]),
            endpoint=answer.reply.endpoint,
            model=answer.reply.model,
            seconds=seconds,
            waited=waited,
            prefill=prefill,
            gpu_seconds=sum(part.gpu_seconds for part in self.parts),
            attempts=self._attempts,
            tier=answer.tier,
            why=f"{self.name}: {report.gained}",
            report=report,
        )

    def _took(self, role: str, tier: str, reply: Reply, *, clipped: bool) -> tuple[Answer, ...]:
        self._attempts += reply.attempts
        if self._listener is not None:
            self._listener.paid(reply.usage)
        self.parts.append(
            Part(
                role=role,
                tier=tier,
                endpoint=reply.endpoint,
                model=reply.model,
                usage=reply.usage,
                seconds=reply.seconds,
                samples=len(reply.choices),
                waited=reply.waited,
                prefill=reply.prefill,
                gpu_seconds=reply.gpu_seconds,
            )
        )
        return tuple(
            Answer(choice, reply, tier, self._fault(role, choice, clipped=clipped)) for choice in reply.choices
        )

    @property
    def _heard(self) -> bool:
        return self._listener is not None and self._listener.heard

    def _fault(self, role: str, choice: Choice, *, clipped: bool) -> str:
        if role == "judge":
            return ""
        cut = clipped and choice.finish_reason == "length"
        fault = "the budget cut it off" if cut else unusable(choice, self.request)
        if fault and self._heard:  # it cannot be taken back, so no other answer may stand in its place
            self._flaw, fault = fault, ""
        return fault

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


def shares(parts: Sequence[Part], seconds: float) -> tuple[float, float | None]:
    """Of so many seconds of an answer, how many went by waiting and until first tokens, as with its parts together.

    Parts run beside one another, so their own seconds are more than the answer took.
    """
    told = [part for part in parts if not part.failed]
    scale = seconds / max(sum(part.seconds for part in told), 1e-9)
    prefills = [part.prefill for part in told]
    known = sum(prefill for prefill in prefills if prefill is not None)
    return scale * sum(part.waited for part in told), None if None in prefills else scale * known
