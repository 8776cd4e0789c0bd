"""Reads what a repository says of itself: out of the trusted git directory, at the base commit, never out of a
workspace that an agent could write to."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sandbox.trees.workspace import Workspace
from swarm.knowledge import guides
from swarm.known import Guide

BYTES = 64 * 1024  # of a file that are read
_ROUNDS = 3  # of imports within imports


async def read_guides(
    workspace: Workspace, base: str, looked_at: Sequence[str], chosen: Sequence[str] | None = None
) -> tuple[Guide, ...]:
    """The guides at a base commit for a task about these paths; ``chosen`` are the only names that count.

    Raises WorkspaceError for a git directory that cannot be read; a guide that cannot be decoded is read as far as it
    can.
    """
    paths = {path.decode("utf-8", "replace") for path in await workspace.paths(base)}
    places = guides.places(paths, looked_at, chosen)
    texts = await _read(workspace, base, places)
    order = list(guides.fewer([path for path, text in texts.items() if guides.applies(text, looked_at)]))
    texts = {path: texts[path] for path in order}
    for _ in range(_ROUNDS):
        wanted = {path: guides.imports(path, texts[path]) for path in order}
        missing = [each for found in wanted.values() for each in found if each in paths and each not in texts]
        missing = list(dict.fromkeys(missing))[: guides.FILES - len(texts)]
        if not missing:
            break
        texts |= await _read(workspace, base, missing)
        order = _placed(order, wanted, texts.keys())
    return guides.told([(path, texts[path]) for path in order])


async def _read(workspace: Workspace, base: str, places: Sequence[str]) -> dict[str, str]:
    found = await workspace.heads(base, [place.encode() for place in places], limit=BYTES)
    return {path.decode(): data.decode("utf-8", "replace") for path, data in found.items()}


def _placed(order: Sequence[str], wanted: dict[str, tuple[str, ...]], read: Collection[str]) -> list[str]:
    """Each import right behind the first that asks for it."""
    placed: dict[str, None] = {}
    for path in order:
        placed[path] = None
        for each in wanted[path]:
            if each in read and each not in order:
                placed.setdefault(each)
    return list(placed)
