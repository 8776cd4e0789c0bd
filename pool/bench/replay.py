"""Closed-loop replay of agent sessions: send, wait for the answer, wait for the tool, send the next, longer one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

from pool.bench.figures import Outcome, Summary, summary
from pool.bench.meters import Strain, watching
from pool.bench.target import Target, Turn
from pool.bench.words import text
from pool.bench.workload import Round, Session
from pool.types import Frozen

Done = Callable[[int, int], None]
"""Told the rounds that ended, and all that there are."""


class Replayed(Frozen):
    """What a replay measured. ``broken`` sessions ended early; their later rounds count as arrivals that never came."""

    sessions: int
    broken: int
    rounds: int
    summary: Summary
    strain: Strain


class Context:
    """The growing conversation of one session: what was said, with its length in tokens."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._said: list[tuple[dict[str, object], int]] = []
        self._made = 0

    def turn(self, one: Round) -> list[dict[str, object]]:
        """The messages of the next round: the context cut or filled to its planned length, and what is new."""
        while self._said and self._length > one.prefix + max(16, one.prefix // 10):
            self._said.pop()  # the plan compacts here: the beginning stays, as a real compaction keeps it
        if (missing := one.prefix - self._length) > max(16, one.prefix // 10):
            self._add(missing)
        self._add(one.new)
        return [message for message, _ in self._said]

    def answered(self, outcome: Outcome) -> None:
        """What came back is part of the context from now on."""
        self._said.append(({"role": "assistant", "content": outcome.text or "."}, outcome.output))

    @property
    def _length(self) -> int:
        return sum(tokens for _, tokens in self._said)

    def _add(self, tokens: int) -> None:
        self._made += 1
        content = text(f"{self._name}-{self._made}", tokens)
        if self._said and self._said[-1][0]["role"] == "user":  # chat templates want the two to alternate
            before, length = self._said.pop()
            content, tokens = f"{before['content']}\n{content}", tokens + length
        self._said.append(({"role": "user", "content": content}, tokens))


async def replay(
    target: Target, sessions: Sequence[Session], run: str, *, deadline: float = 600.0, done: Done | None = None
) -> Replayed:
    """Play the sessions, each from its arrival on. A session whose round is lost ends there, as an agent's would."""
    planned = sum(len(session.rounds) for session in sessions)
    outcomes: list[Outcome] = []
    ended = 0

    async def play(session: Session) -> bool:
        await asyncio.sleep(session.arrival)
        name = f"{run}-{session.name}"
        try:
            return await rounds(session, name)
        finally:
            target.over(name)

    async def rounds(session: Session, name: str) -> bool:
        nonlocal ended
        context = Context(name)
        for place, one in enumerate(session.rounds):
            outcome = await target.ask(Turn(name, context.turn(one), one.output, deadline))
            outcomes.append(outcome)
            ended += 1
            if done:
                done(ended, planned)
            if outcome.fate != "ok":
                left = len(session.rounds) - place - 1
                outcomes.extend(Outcome(began=outcome.began, why="its session had ended") for _ in range(left))
                ended += left
                return False
            context.answered(outcome)
            target.acting(name)
            await asyncio.sleep(one.wait)
        return True

    async with watching(target) as watch:
        began = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(play(session)) for session in sessions]
        seconds = time.perf_counter() - began
        strain = watch.strain()
    return Replayed(
        sessions=len(sessions),
        broken=sum(not task.result() for task in tasks),
        rounds=planned,
        summary=summary(outcomes, seconds),
        strain=strain,
    )
