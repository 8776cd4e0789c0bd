"""Makes the recording of an attempt out of the database and the git folder, with the objects that a replay needs."""

from __future__ import annotations

import importlib.metadata
import itertools
from collections.abc import Sequence

from sandbox.trees.workspace import Workspace
from swarm.budgets.sums import total
from swarm.config import RepositoryConfig, Settings
from swarm.conversation.lessons import after_failed, goes_on, tried
from swarm.errors import ReplayError, TaskNotFoundError
from swarm.prompts import after_needed
from swarm.replay.record import Ground, Recording, hindrance, test_command, trees
from swarm.salvage.entries import task_of
from swarm.salvage.shelf import Shelf
from swarm.store.store import Store
from swarm.types import Attempt, Step, Task, TaskView


async def recording(store: Store, shelf: Shelf, settings: Settings, wanted: str) -> tuple[Recording, bytes]:
    """An attempt as it was, and its objects; ``wanted`` is a task, whose last attempt is meant, or an attempt.

    The recording still holds what the journal holds: see `bundle.redacted`. Raises TaskNotFoundError, ReplayError,
    StoreError and WorkspaceError.
    """
    view, attempt = await _attempt(store, wanted)
    lines = await store.leases.past(attempt.id)
    own = tuple(step for step in lines if step.attempt == attempt.id)
    repository = view.task.request.repository
    workspace, keeping = shelf.workspace(repository), shelf.keeping(repository)
    base = await _base(workspace, view, attempt, own)
    known = settings.repositories.get(repository, RepositoryConfig())
    recorded = Recording(
        program=importlib.metadata.version("agent-swarm"),
        task=await _told(store, view.task, attempt, lines),
        attempt=attempt,
        before=total([each.spent for each in view.attempts if each.number < attempt.number]),
        test_command=test_command(lines) or view.task.request.test_command or known.test_command,
        base=base,
        sealed=next((str(step.data["tree"]) for step in reversed(own) if step.kind == "sealed"), None),
        ground=ground_of(settings, known),
        past=tuple(step for step in lines if step.attempt != attempt.id),
        steps=own,
    )
    if why := hindrance(recorded):
        raise ReplayError(f"attempt {attempt.id} cannot be replayed: {why}")
    objects, shallow = await keeping.parcel(base, trees(recorded))
    return recorded.model_copy(update={"shallow": shallow}), objects


async def _told(store: Store, task: Task, attempt: Attempt, lines: Sequence[Step]) -> Task:
    """The task as its agent was told of it, with what became of the tasks that it needed and of earlier attempts."""
    told = task.request.instructions
    if task.request.needs:
        told = after_needed(told, await store.needs.results(task.id))
    if all(line.attempt == attempt.id for line in lines):  # else it went on from another, and knew all of it
        earlier = tried(await store.tries.before(task.id, attempt.number))
        begun = itertools.takewhile(lambda line: line.kind != "phase_started" or line.data["phase"] != "work", lines)
        built = any(line.kind == "salvage" for line in begun)
        told = after_failed(told, earlier, goes_on(earlier) if built else None)
    return task.model_copy(update={"request": task.request.model_copy(update={"instructions": told})})


def ground_of(settings: Settings, known: RepositoryConfig) -> Ground:
    """What these settings let the sandboxes of a repository that is known so stand on."""
    return Ground(
        backend=settings.sandbox.backend,
        image=known.image or settings.sandbox.image or "",
        setup=known.setup,
        devcontainer=known.devcontainer,
    )


async def _attempt(store: Store, wanted: str) -> tuple[TaskView, Attempt]:
    """The task and the attempt that a person means."""
    task, number = task_of(wanted)
    view = await store.view(task if number else wanted)
    if not number:
        if not view.attempts:
            raise ReplayError(f"task {view.task.id} was never worked on", "watch it: swarm follow")
        return view, view.attempts[-1]
    found = next((each for each in view.attempts if each.id == wanted), None)
    if found is None:
        raise TaskNotFoundError(f"task {view.task.id} has no attempt {wanted}", f"see them: swarm show {view.task.id}")
    return view, found


async def _base(workspace: Workspace, view: TaskView, attempt: Attempt, own: tuple[Step, ...]) -> str:
    """The commit that the work stands on, which must be in the git folder. Raises ReplayError."""
    told = [str(step.data["base"]) for step in own if step.kind == "sealed"]
    sealed = await workspace.sealed_at(attempt.salvage) if attempt.salvage else None
    for base in (*told, sealed.base if sealed else "", view.task.request.base_commit):
        if base and await workspace.has(base):
            return base
    where = view.task.request.repository
    mend = "run it on the host that worked on it, or where a task of that repository was worked on since"
    raise ReplayError(f"the base of attempt {attempt.id} is not in this host's git folder of {where}", mend)
