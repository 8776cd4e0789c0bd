"""What is set right between the database and what lies beside it: the engine's runs and the git folders."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from sandbox.trees.workspace import Workspace
from swarm.runs import Engine
from swarm.store.store import Store

SALVAGE = "refs/salvage/"
REMEMBERED = 7 * 86400.0  # seconds that the engine keeps the run of an attempt that ended

log = logging.getLogger(__name__)


async def end_stray_runs(store: Store, engine: Engine) -> tuple[str, ...]:
    """Cancel every unfinished run of the engine whose attempt is over, or not known; their names.

    A run that any host works on has an open attempt and is left alone.
    """
    names = tuple(run.name for run in await engine.runs())
    stray = await store.leases.not_open(names)
    for name in stray:
        log.warning("run %s goes on with no attempt that does; it is ended", name)
        await engine.cancel(name)
    return stray


async def forget_old_runs(store: Store, engine: Engine) -> int:
    """Delete the engine's runs of attempts that ended days ago; how many. A run without a written end is kept."""
    names = tuple(run.name for run in await engine.runs("done", "failed", "cancelled"))
    old = await store.leases.over_for(names, REMEMBERED)
    await engine.forget(*old)
    return len(old)


async def find_salvage(store: Store, workspaces: Iterable[Workspace]) -> int:
    """Let the store know of work that was kept just before a daemon died; how much of it there was."""
    found = 0
    for workspace in workspaces:
        refs = await workspace.refs(SALVAGE)
        for name in await store.leases.unsaved(tuple(ref.removeprefix(SALVAGE) for ref in refs)):
            sealed = await workspace.sealed_at(f"{SALVAGE}{name}")
            if sealed is not None:
                await store.leases.saved(name, f"{SALVAGE}{name}")
                log.info("attempt %s had kept work that was not written down", name)
                found += 1
    return found
