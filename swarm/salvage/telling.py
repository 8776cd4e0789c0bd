"""An attempt's story as a transcript: out of the database, or out of what lies beside its salvage. Pure."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterable

from swarm.agents import agent_of
from swarm.salvage.entries import About, titled
from swarm.transcripts import journal, sums
from swarm.transcripts.shape import Agent, Header, Transcript
from swarm.types import Attempt, Step, TaskView

OURS = "agent-swarm"


def about(view: TaskView, attempt: Attempt, last: int) -> About:
    """What a transcript says of its attempt; ``last`` is the number of its last line."""
    request = view.task.request
    return About(
        task=view.task.id,
        attempt=attempt.id,
        repository=request.repository,
        number=attempt.number,
        title=titled(view),
        base=request.base_commit,
        tier=attempt.tier,
        strategy=attempt.strategy,
        started=attempt.started,
        ended=attempt.ended,
        ending=attempt.ending,
        detail=attempt.detail[:2000],
        last=last,
    )


def transcript(told: About, lines: Iterable[Step]) -> Transcript:
    """The transcript of an attempt that is told of; one that has not ended has no end."""
    other = agent_of(told.strategy)
    agent = Agent(name=other or OURS, version="" if other else importlib.metadata.version(OURS))
    header = Header(
        agent=agent,
        task=told.task,
        attempt=told.attempt,
        title=told.title,
        repository=told.repository,
        base=told.base,
        strategy=told.strategy,
        tier=told.tier,
        started=sums.stamp(told.started or None),
        extra={"number": told.number},
    )
    ending = (told.ending or "ended") if told.ended is not None else ""
    return journal.transcript(header, lines, ending=ending, reason=told.detail)
