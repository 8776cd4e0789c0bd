"""Plays one life of a recorded attempt: answers as they were, times as they were, every line held against the record.

Of what went on at the same time (samples, and tests of candidates) each line waits for its turn, so that a search ends
with what it ended with, however fast this machine is.
"""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from pool.types import ChatRequest, Choice, CompletionRequest, Reply, Traits, Usage
from swarm import history, recording
from swarm.budgets.ledger import BudgetLedger
from swarm.budgets.notices import Notice
from swarm.budgets.prices import Counted
from swarm.budgets.scopes import Gauge
from swarm.replay import compare
from swarm.replay.compare import Difference
from swarm.replay.record import Life, at_once, in_turn, native, traits
from swarm.store.journal import encode
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
        self._talk = history.rebuild(life.past)
        self._known: set[int] = set()
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
        if request.json_schema is not None:
            return await self._sampled(request)
        step = self._next()
        if step is None:
            raise ReplayStopped
        self._compare_request(step, request)
        if step.data.get("about") in recording.NO_ANSWER:
            raise recording.error_of(step.data)
        if step.kind != "model_call":
            self._tell(step, "order", f"{step.kind} {str(step.data.get('text', ''))[:200]}", "a model was asked")
            raise ReplayStopped("a model is asked where the record goes on with something else")
        return _reply(step, (recording.choice_of(step.data),))

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
        for step in self._turns[self._turn :]:
            if step.kind != "message":
                break
            said = {key: step.data[key] for key in ("author", "text", "seq")}
            found.append(TaskMessage.model_validate({**said, "task": step.data.get("of", step.task), "at": step.at}))
        return tuple(found)

    async def record(self, kind: str, data: dict[str, Any]) -> None:
        """Hold a line against the record. Raises ReplayStopped where it goes on with another one, or ends."""
        kept = json.loads(encode(data))
        before = len(self._talk.messages) if self._talk else 0
        self._talk = history.after(self._talk, kept)
        if at_once(kind, kept):
            await self._take_turn(kind, kept)
        elif in_turn(kind, kept):
            self._follow(kind, kept, before)

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

    def money(self) -> float:
        """What the call that is answered now had cost."""
        step = self._next()
        return float(step.data.get("money", 0.0)) if step is not None and step.kind == "model_call" else 0.0

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
        return self._turns[self._turn] if self._turn < len(self._turns) else None

    def _next_of_many(self) -> Step | None:
        return self._many[self._one] if self._one < len(self._many) else None

    def _follow(self, kind: str, data: Mapping[str, Any], before: int) -> None:
        step = self._next()
        if step is None:
            raise ReplayStopped
        difference = compare.lines(step, kind, data)
        if difference is not None:
            self.differences.append(difference)
            if difference.what == "order":
                raise ReplayStopped("the work goes on with something else than the record")
            self._known.add(before)
        self._turn += 1

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
        return _reply(step, tuple(Choice(content=str(text)) for text in texts))

    def _compare_request(self, step: Step, request: ChatRequest) -> None:
        if recording.digest(request) == step.data.get("request"):
            return
        before = [line for line in self._life.lines if line.seq < step.seq]
        past = history.rebuild((*self._life.past, *before))
        recorded = past.messages if past else ()
        if tuple(recorded) == request.messages:
            what = "the same messages, with other tools or limits: another version of the program, or other settings"
            self._tell(step, "request", "as recorded", what)
        self.differences += compare.requests(step, recorded, request.messages, self._known)

    def _tell(self, step: Step, what: compare.What, before: str, after: str) -> None:
        self.differences.append(Difference(step=step.seq, what=what, recorded=before, replayed=after))


class _PlayedLedger(BudgetLedger):
    """Counts what was recorded: costs, times and what was told of the budget come from the journal."""

    def __init__(self, player: Player, budget: Budget, before: Spent, own: Spent) -> None:
        self._player = player
        super().__init__(budget, before, own, lambda _: None, clock=player.clock)

    def bill(self, call: Counted, guess: int = 0) -> Spent:
        """What it had cost."""
        return super().bill(call, guess).model_copy(update={"money": self._player.money()})

    def notice(self, told: int, own: tuple[Gauge, ...] = ()) -> Notice | None:  # noqa: ARG002
        """What was told."""
        return self._player.notice()


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
