"""The ways to ask a model for a replacement of one line, and the order in which they are tried."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from pool.types import ChatRequest, CompletionRequest, Reply
from swarm import prompts, recording
from swarm.budgets.prices import facts
from swarm.strategies.candidates import replacement
from swarm.strategies.spectrum import Suspect
from swarm.types import Spent
from swarm.work import Work

_SAMPLES = 8


@dataclass(frozen=True)
class Rung:
    """One way of asking: ``line`` continues a text up to its newline, ``edit`` is a chat constrained to a JSON edit.

    ``rule`` asks nobody: replacements come from `mutants`, and cost the time of testing them alone.
    """

    style: Literal["rule", "line", "edit"]
    temperature: float


@dataclass(frozen=True)
class Samples:
    """What one request gave: replacement texts, and what it cost.

    ``request`` is its digest, ``said`` what the model said where that is not the texts; ``cost`` is by the price table,
    ``facts`` are of its time and cost.
    """

    texts: tuple[str, ...]
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int | None = None
    model: str = ""
    endpoint: str = ""
    seconds: float = 0.0
    request: str = ""
    said: tuple[str, ...] = ()
    cost: Spent = field(default_factory=Spent)
    facts: dict[str, float] = field(default_factory=dict)

    def line(self) -> dict[str, Any]:
        """As the journal keeps it."""
        line = asdict(self)
        return {name: value for name, value in line.items() if name not in {"cost", "facts"}} | self.facts


Ask = Callable[[Work, Suspect, Rung, str, float], Awaitable[Samples]]


RULES = Rung("rule", 0.0)


def ladder(*, native_tools: bool) -> tuple[Rung, ...]:
    """Which way first. Constrained JSON leads where a model speaks tool calls. One that does not is most likely very
    small, and JSON is beyond it: SmolLM2 135M hit the wanted line in 0 of 256 constrained samples against 162 of
    192 plain ones, so there it comes last."""
    if native_tools:
        return Rung("edit", 0.6), Rung("line", 0.8), Rung("edit", 1.0)
    return Rung("line", 0.7), Rung("line", 1.0), Rung("line", 1.3), Rung("edit", 0.8)


async def ask_model(work: Work, suspect: Suspect, rung: Rung, failure: str, deadline: float) -> Samples:
    """Several samples for one line in one request. Raises PoolError."""
    if rung.style == "line":
        completion = CompletionRequest(
            tier=work.tier,
            prompt=prompts.line_prompt(suspect.around, suspect.text),
            session=work.attempt,
            program=work.task.id,
            max_tokens=24 + len(suspect.text) // 2,
            temperature=rung.temperature,
            n=_SAMPLES,
            stop=("\n",),
            deadline=deadline,
        )
        reply = await work.pool.complete(completion)
        return _samples(work, reply, recording.digest(completion), tuple(choice.content for choice in reply.choices))
    chat = ChatRequest(
        tier=work.tier,
        messages=prompts.edit_messages(suspect.around, suspect.file, suspect.line, suspect.text, failure),
        session=work.attempt,
        program=work.task.id,
        max_tokens=48 + len(suspect.file) + len(suspect.text),
        temperature=rung.temperature,
        n=_SAMPLES,
        json_schema=prompts.edit_schema(suspect.file, suspect.line),
        deadline=deadline,
    )
    reply = await work.pool.chat(chat)
    texts = tuple(replacement(choice.content, suspect) for choice in reply.choices)
    return _samples(work, reply, recording.digest(chat), texts, tuple(choice.content for choice in reply.choices))


def _samples(work: Work, reply: Reply, request: str, texts: tuple[str, ...], said: tuple[str, ...] = ()) -> Samples:
    usage, cost = reply.usage.model_dump(), work.ledger.bill(reply)
    return Samples(
        texts,
        **usage,
        model=reply.model,
        endpoint=reply.endpoint,
        seconds=reply.seconds,
        request=request,
        said=said,
        cost=cost,
        facts=facts(reply, cost),
    )
