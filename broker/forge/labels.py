"""Who put a label on an issue last, by the forge's own record of what was done to it, read to its end. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from broker.forge.base import Labelled

MOST_PAGES = 20


@dataclass(frozen=True)
class Step:
    """One entry. ``put``: whether it put the label on or took it off; None for whatever else was done.

    ``by`` is empty for what does not show that somebody looked at the issue.
    """

    by: str
    at: float
    put: bool | None = None


def labelled(pages: Iterable[Iterable[Step]]) -> Labelled | None:
    """None if nobody did, it was taken off again, or the record is longer than MOST_PAGES."""
    found, count = None, 0
    for page in pages:
        count += 1
        for step in page:
            found = _after(found, step)
    return found if count < MOST_PAGES else None


def _after(found: Labelled | None, step: Step) -> Labelled | None:
    if step.put is not None:
        return Labelled(step.by, step.at) if step.put and step.by else None
    if found is not None and found.by == step.by:
        return replace(found, at=max(found.at, step.at))
    return found
