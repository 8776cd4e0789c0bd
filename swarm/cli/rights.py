"""The right to propose a task's result: asked of the broker by the person's own call, never by the daemon."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from swarm.cli.request import task_for
from swarm.client import DaemonClient
from swarm.config import Settings
from swarm.config_text import nearest
from swarm.delivery import BrokerClient, StandingRight
from swarm.errors import (
    BrokerError,
    BrokerUnreachableError,
    ConfigError,
    KeyReusedError,
    RepositoryNotFoundError,
    TaskError,
    TaskNotFoundError,
)
from swarm.types import TaskRequest, TaskView

LATER = 30 * 86400.0  # seconds that tasks which wait for others, or for their turn in a batch, may take to begin
PATIENCE = 2.0  # seconds that a broker which does not answer is tried again; a person waits for it
ROUNDS = 4  # proposals of one task, where the forge is followed: the first, and after reviews and checks some more
_COMMIT = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")
_ID = re.compile(r"[a-z0-9][a-z0-9-]{0,40}")


class Standing(NamedTuple):
    """A capability for tasks of a later time, the branch that they aim at, and when it ends."""

    capability: str
    base: str
    expires: float


class Right(NamedTuple):
    """The capability, the id of the task it is for, and the base that it names."""

    capability: str
    task: str | None
    base: str | None
    base_commit: str

    @classmethod
    def brought(cls, capability: str | None, commit: str | None, task: str | None) -> Right | None:
        """The right that the person brings along, if any. Raises TaskError for half of one."""
        if capability is None:
            if commit or task:
                raise TaskError("base commit and task id belong to a capability", "give it too, or leave them out")
            return None
        if not (commit and _COMMIT.fullmatch(commit) and task and _ID.fullmatch(task)):
            raise TaskError(
                "a capability needs the base commit and the task id as they were granted",
                "swarm-broker grant prints all three; without a capability they are asked for and filled in",
            )
        return cls(capability, task, None, commit)


def read_capability(given: str | None) -> str | None:
    """A capability as it was given on the command line, or out of @FILE. Raises ConfigError."""
    if given is None or not given.startswith("@"):
        return given
    try:
        return Path(given[1:]).read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{given[1:]}: {error}", "name a file with the capability alone in it") from None


async def granted(settings: Settings, repository: str, base: str | None, task: str) -> Right:
    """Ask the broker, as whoever runs this, for the right to propose what a task comes to.

    Raises BrokerError and RepositoryNotFoundError.
    """
    async with BrokerClient(settings.broker.people, patience=PATIENCE) as broker:
        await _known(broker, repository)
        with _explained(repository):
            grant = await broker.grant_task(repository, base, task, uses=_rounds(settings))
        return Right(grant.capability, task, grant.base, grant.base_commit)


async def granted_for_later(settings: Settings, asked: StandingRight) -> Standing:
    """Ask the broker, as whoever runs this, for the right to have tasks begun later, each on the base as it is then.

    Raises BrokerError and RepositoryNotFoundError.
    """
    async with BrokerClient(settings.broker.people, patience=PATIENCE) as broker:
        await _known(broker, asked.repository)
        with _explained(asked.repository):
            grant = await broker.grant_standing(replace(asked, each=_rounds(settings)))
        return Standing(grant.capability, grant.base, grant.expires)


def _rounds(settings: Settings) -> int:
    return ROUNDS if settings.followup.enabled else 1


async def _known(broker: BrokerClient, repository: str) -> None:
    names = [known.name for known in (await broker.repositories()).repositories]
    if repository not in names:
        like = nearest(repository, names)
        raise RepositoryNotFoundError(
            f'the broker knows no repository "{repository}"',
            f"did you mean {like}?" if like else f"it knows: {', '.join(names) or 'none; add one to broker.toml'}",
        )


@contextmanager
def _explained(repository: str) -> Iterator[None]:
    try:
        yield
    except BrokerUnreachableError:
        raise
    except BrokerError as error:
        mend = error.mend or "swarm doctor shows whether the broker takes you for a person"
        raise BrokerError(f"the broker grants no task on {repository}: {error}", mend) from error


async def handed_in(daemon: DaemonClient, settings: Settings, request: TaskRequest, held: Right | None) -> TaskView:
    """Submit a request under the right that the person holds or, where they hold none, gets from the broker now.

    Raises DaemonError, TaskError and BrokerError.
    """
    await daemon.health()  # before the broker is asked: a grant that nobody uses is litter
    if request.idempotency_key and held is None:
        with suppress(TaskNotFoundError):  # handed in before: there may be nothing left to grant
            return _same(await daemon.task(task_for(request.idempotency_key)), request)
    task = task_for(request.idempotency_key)
    if request.needs and held is None:
        asked = StandingRight(request.repository, request.base, task, tasks=1, seconds=LATER)
        later = await granted_for_later(settings, asked)
        more = {"capability": later.capability, "base": later.base, "task": task, "standing": True}
        return await daemon.submit(request.model_copy(update=more))
    right = held or await granted(settings, request.repository, request.base, task)
    more = {"capability": right.capability, "base_commit": right.base_commit, "task": right.task}
    return await daemon.submit(request.model_copy(update=more | {"base": right.base or request.base}))


def _same(made: TaskView, request: TaskRequest) -> TaskView:
    if made.task.request.alike(request):
        return made
    mend = "take another key for another task, or send the same request again"
    raise KeyReusedError(f"this idempotency key made task {made.task.id}, which asks for something else", mend)
