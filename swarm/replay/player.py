"""Plays one life of a recorded attempt: answers as they were, times as they were, every line held against the record.

Of what went on at the same time (samples, tests of candidates, tries beside one another) each line waits for its turn,
so that a search ends with what it ended with, however fast this machine is. Parts of the work are told apart by the
name that their lines and sessions carry.
"""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any

from pool.types import ChatRequest, Choice, CompletionRequest, Message, Reply, Traits, Usage
from swarm import history, recording
from swarm.budgets.ledger import BudgetLedger
from swarm.budgets.notices import Notice
from swarm.budgets.prices import Counted
from swarm.budgets.scopes import Gauge
from swarm.conversation.shrinking import CONDENSE
from swarm.replay import compare
from swarm.replay.compare import Difference
from swarm.replay.record import Life, at_once, in_turn, native, traits
from swarm.speech.form import Form
from swarm.speech.layout import lay
from swarm.store.journal import encode
from swarm.strategies.parts import BEGUN
from swarm.types import Budget, Spent, Step, TaskMessage

PATIENCE = 120.0  # seconds without any progress after which a line that others wait for is given up
_REPLY = ("endpoint", "model", "seconds", "tier", "why", "report", "waited", "prefill", "gpu_seconds")


class ReplayStopped(Exception):  # noqa: N818 - an ending, as StopIteration is
    """The replay of this life goes no further; ``because`` is empty where the record goes no further either."""

    def __init__(self, because: str = "") -> None:
        super().__init__(because)
        self.because = because


class Player:
    """Keeps the `Chat` protocol, and gives a strategy the rest of its `Work`. ``save`` seals the workspace.

    ``differences`` are what was not as recorded, ``trees`` the pairs of saved trees, recorded and replayed.
    """

    def __init__(self, life: Life, save: Callable[[], Awaitable[str]], *, patience: float = PATIENCE) -> None:
        self._life = life
        self._save = save
        self._patience = patience
        self._turns = [step for step in life.lines if in_turn(step.kind, step.data)]
        self._many = [step for step in life.lines if at_once(step.kind, step.data)]
        self._turn = self._one = self._passed_over = 0
        self._moved = asyncio.Condition()
        self._samples: dict[str, deque[Step]] = defaultdict(deque)
        for step in self._many:
            if step.kind == "model_call":
                self._samples[str(step.data.get("request"))].append(step)
        self._saves = _saves(life)
        self._talks: dict[str, history.Past | None] = {}
        self._known: dict[str, set[int]] = defaultdict(set)
        self._beside = beside(self._turns)
        self._part: ContextVar[str] = ContextVar("part", default="")
        self._costs: dict[int, tuple[Reply, float]] = {}
        self.differences: list[Difference] = []
        self.trees: list[tuple[int, str, str]] = []

    @property
    def played(self) -> int:
        """Lines that were played."""
        return self._turn + self._one - self._passed_over

    @property
    def missing(self) -> int:
        """Lines in turn that were not played, and others that were given up; what was called off is not missed."""
        return len(self._turns) - self._turn + self._passed_over

    @property
    def over(self) -> bool:
        """Whether the record goes no further."""
        return self._turn == len(self._turns) and self._one == len(self._many)

    # What a strategy asks

    async def chat(self, request: ChatRequest) -> Reply:
        """The recorded answer. Raises ContextOverflowError where that was the answer, and ReplayStopped."""
        if request.n > 1:  # a search samples, a conversation never does
            return await self._sampled(request)
        self._part.set(request.session.partition("~")[2])
        step = self._next()
        if step is None:
            return await self._called_off()
        self._compare_request(step, request)
        if step.data.get("about") in recording.NO_ANSWER:
            raise recording.error_of(step.data)
        if step.kind != "model_call":
            self._tell(step, "order", f"{step.kind} {str(step.data.get('text', ''))[:200]}", "a model was asked")
            raise ReplayStopped("a model is asked where the record goes on with something else")
        return self._answered(step, (recording.choice_of(step.data),))

    async def complete(self, request: CompletionRequest) -> Reply:
        """The recorded answer, once it is its turn. Raises ReplayStopped where there never was any."""
        return await self._sampled(request)

    async def native_tools(self, tier: str) -> bool:  # noqa: ARG002  the protocol names it
        """As it was."""
        return native((*self._life.past, *self._life.lines))

    async def traits(self, tier: str) -> Traits:
        """As they were."""
        return traits((*self._life.past, *self._life.lines), tier)

    def acting(self, session: str, tool: str, expected: float | None = None) -> None:  # noqa: ARG002
        """A tool is about to run. Raises ReplayStopped where the record ends before it was over."""
        if self.over:
            raise ReplayStopped

    def end_session(self, session: str) -> None:
        """Nothing is kept for it."""

    async def inbox(self, after: int) -> tuple[TaskMessage, ...]:  # noqa: ARG002
        """What people had said by now."""
        found = []
        part = self._part.get() if self._beside else None
        for step in self._turns[self._turn :]:
            if part is not None and _part(step.data) != part:
                continue
            if step.kind != "message":
                break
            said = {key: step.data[key] for key in ("author", "text", "seq")}
            found.append(TaskMessage.model_validate({**said, "task": step.data.get("of", step.task), "at": step.at}))
        return tuple(found)

    async def record(self, kind: str, data: dict[str, Any]) -> None:
        """Hold a line against the record. Raises ReplayStopped where it goes on with another one, or ends."""
        kept = json.loads(encode(data))
        part = _part(kept)
        self._part.set(part)
        talk = self._talks[part] if part in self._talks else history.rebuild(self._conversation(part, None))
        self._talks[part] = history.after(talk, kept)
        last = len(_laid(self._talks[part])) - 1
        if at_once(kind, kept):
            await self._take_turn(kind, kept)
        elif in_turn(kind, kept):
            await self._due(part)
            await self._follow(kind, kept, last)

    async def save(self) -> None:
        """Seal, and hold the tree against the one that was kept at this place."""
        tree = await self._save()
        if due := self._saves.get(self._turn):
            step = due.popleft()
            self.trees.append((step.seq, str(step.data.get("tree")), tree))

    def clock(self) -> float:
        """The time at which the next recorded line was written, or its model asked: seconds since 1970."""
        ahead = [step for step in (self._next(), self._next_of_many()) if step is not None]
        if not ahead:
            return self._life.lines[-1].at
        first = min(ahead, key=lambda step: step.seq)
        took = first.data.get("seconds") if first.kind == "model_call" else 0.0
        return first.at - (float(took) if isinstance(took, int | float) else 0.0)

    def ledger(self, budget: Budget, before: Spent, own: Spent) -> BudgetLedger:
        """A ledger that counts as it was counted."""
        return _PlayedLedger(self, budget, before, own)

    def money(self, call: Counted) -> float:
        """What a call that was answered here had cost."""
        return self._costs.pop(id(call), (None, 0.0))[1]

    def notice(self) -> Notice | None:
        """What the line that is written next told of the budget."""
        step = self._next()
        passed = step.data.get("noticed") if step is not None else None
        if step is None or not isinstance(passed, int):
            return None
        told = (line for line in self._life.lines if line.kind == "budget" and line.seq > step.seq)
        line = next((line for line in told if line.data.get("passed") == passed), None)
        if line is None:
            return None
        return Notice(str(line.data["text"]), passed, float(line.data["share"]), str(line.data["limit"]))

    # Machinery

    def _next(self) -> Step | None:
        """The line that is next in turn; where parts go on beside one another, the next of the one that asks."""
        ahead = self._turns[self._turn :] if self._beside else self._turns[self._turn : self._turn + 1]
        return next((step for step in ahead if not self._beside or _part(step.data) == self._part.get()), None)

    async def _due(self, part: str) -> None:
        """Wait until this part's line is the next of all. Raises ReplayStopped where the others never come."""
        if not self._beside:
            return

        def due() -> bool:
            return self._turn == len(self._turns) or _part(self._turns[self._turn].data) == part

        async with self._moved:
            try:
                await asyncio.wait_for(self._moved.wait_for(due), self._patience)
            except TimeoutError:
                raise ReplayStopped(f"{part or 'the whole'} waits for a line that never comes") from None

    async def _called_off(self) -> Reply:
        """Where the record holds no more of this: it was called off then, so it is waited for that. Raises
        ReplayStopped."""
        if self._beside and not self.over:
            await asyncio.sleep(self._patience)
            raise ReplayStopped("a model is asked what the record never asked")
        raise ReplayStopped

    def _next_of_many(self) -> Step | None:
        return self._many[self._one] if self._one < len(self._many) else None

    async def _follow(self, kind: str, data: Mapping[str, Any], last: int) -> None:
        step = self._next()
        if step is None:
            await self._called_off()
            return
        difference = compare.lines(step, kind, data)
        if difference is not None:
            self.differences.append(difference)
            if difference.what == "order":
                raise ReplayStopped("the work goes on with something else than the record")
            self._known[_part(data)].add(last)
        self._turn += 1
        async with self._moved:
            self._moved.notify_all()

    async def _take_turn(self, kind: str, data: Mapping[str, Any]) -> None:
        """Wait until the record has this line next; what it never had waits until it is cancelled."""
        key = _key(kind, data)

        def due() -> bool:
            step = self._next_of_many()
            return step is not None and _key(step.kind, step.data) == key

        async with self._moved:
            while True:
                try:
                    await asyncio.wait_for(self._moved.wait_for(due), self._patience)
                    break
                except TimeoutError:
                    self._pass_over(key)
            step = self._many[self._one]
            if kind == "candidate" and bool(step.data.get("passed")) != bool(data.get("passed")):
                before, after = (f"passed: {bool(each.get('passed'))}" for each in (step.data, data))
                self._tell(step, "verdict", before, after)
            self._one += 1
            self._moved.notify_all()

    def _pass_over(self, waiting: tuple[Any, ...]) -> None:
        """Give up the line that is next of many, and let the others go on. Raises ReplayStopped where there is none."""
        step = self._next_of_many()
        if step is None:
            raise ReplayStopped
        self._tell(step, "order", str(_key(step.kind, step.data)), f"it never came; {waiting} did")
        self._one += 1
        self._passed_over += 1
        self._moved.notify_all()

    async def _sampled(self, request: ChatRequest | CompletionRequest) -> Reply:
        found = self._samples.get(recording.digest(request))
        if not found:  # it was called off before any answer came, or was never asked
            await asyncio.sleep(self._patience)
            raise ReplayStopped("a model is asked what the record never asked")
        step = found.popleft()
        texts = step.data.get("said") or step.data.get("texts") or ()
        return self._answered(step, tuple(Choice(content=str(text)) for text in texts))

    def _answered(self, step: Step, choices: tuple[Choice, ...]) -> Reply:
        reply = _reply(step, choices)
        self._costs[id(reply)] = reply, float(step.data.get("money", 0.0))
        return reply

    def _conversation(self, part: str, step: Step | None) -> tuple[Step, ...]:
        """The lines of a part before a line, or before this life; with those of another part that it went on from."""
        lived = () if step is None else (line for line in self._life.lines if line.seq < step.seq)
        own = [line for line in (*self._life.past, *lived) if _part(line.data) == part]
        begun = next((n for n in range(len(own) - 1, -1, -1) if own[n].data.get("about") == BEGUN), None)
        after = own[begun].data.get("after") if begun is not None else None
        if begun is None or not isinstance(after, dict):
            return tuple(own)
        before = self._conversation(str(after["part"]), own[begun])[: int(after["lines"])]
        return (*before, *own[begun:])

    def _compare_request(self, step: Step, request: ChatRequest) -> None:
        if recording.digest(request) == step.data.get("request") or request.session.endswith(CONDENSE):
            return  # what notes are made of is told apart where it was said first
        part = _part(step.data)
        past = history.rebuild(self._conversation(part, step))
        recorded = _laid(past)
        if tuple(recorded) == request.messages:
            what = "the same messages, with other tools or limits: another version of the program, or other settings"
            self._tell(step, "request", "as recorded", what)
        self.differences += compare.requests(step, recorded, request.messages, self._known[part])

    def _tell(self, step: Step, what: compare.What, before: str, after: str) -> None:
        self.differences.append(Difference(step=step.seq, what=what, recorded=before, replayed=after))


class _PlayedLedger(BudgetLedger):
    """Counts what was recorded: costs, times and what was told of the budget come from the journal."""

    def __init__(self, player: Player, budget: Budget, before: Spent, own: Spent) -> None:
        self._player = player
        super().__init__(budget, before, own, lambda _: None, clock=player.clock)

    def bill(self, call: Counted, guess: int = 0) -> Spent:
        """What it had cost."""
        return super().bill(call, guess).model_copy(update={"money": self._player.money(call)})

    def notice(self, told: int, own: tuple[Gauge, ...] = ()) -> Notice | None:  # noqa: ARG002
        """What was told."""
        return self._player.notice()


def _laid(past: history.Past | None) -> tuple[Message, ...]:
    """A conversation as it is sent."""
    return lay(past.messages, Form.model_validate(past.form)) if past else ()


def beside(lines: Sequence[Step]) -> bool:
    """Whether parts of the work went on beside one another: one has a line between two lines of another."""
    seen: list[str] = []
    for line in lines:
        name = _part(line.data).partition(".")[0]
        if name and (not seen or seen[-1] != name):
            seen.append(name)
    return len(seen) != len(set(seen))


def _part(data: Mapping[str, Any]) -> str:
    """Which part of the work a line is of; empty for the whole."""
    return str(data.get("part", ""))


def _saves(life: Life) -> dict[int, deque[Step]]:
    """The trees that were kept, by how many lines in turn had been written before."""
    found: dict[int, deque[Step]] = defaultdict(deque)
    turn = 0
    for step in life.lines:
        if in_turn(step.kind, step.data):
            turn += 1
        elif step.kind == "salvage":
            found[turn].append(step)
    return found


def _key(kind: str, data: Mapping[str, Any]) -> tuple[Any, ...]:
    if kind == "candidate":
        return "candidate", data.get("file"), data.get("line"), data.get("new")
    return "samples", *data.get("ask", ())


def _reply(step: Step, choices: tuple[Choice, ...]) -> Reply:
    usage = {key: step.data.get(key) for key in Usage.model_fields if step.data.get(key) is not None}
    known = {key: step.data[key] for key in _REPLY if key in Reply.model_fields and step.data.get(key) is not None}
    return Reply.model_validate({"choices": choices, "usage": Usage.model_validate(usage), **known})
