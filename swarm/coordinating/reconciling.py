"""What is set right before the first claim of a start: the engine's runs and the git folders."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from sandbox.trees.workspace import Workspace
from swarm.runs import Engine
from swarm.store.store import Store

SALVAGE = "refs/salvage/"

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
