"""What of each file the model was shown in its present state, so that nothing is written back from a part. Pure.

Two things are told apart: lines whose content was shown, and lines whose present numbers were. An edit that changes the
number of lines moves all that follow: their content is still known, their numbers are not. What changed in any other
way (a command, a formatter) is unknown again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from swarm.tools.editing.ranges import Ranges, after, before, covers, joined

_MOST = 500  # files remembered, the oldest forgotten first


@dataclass(frozen=True)
class Shown:
    """Of one file in the state that ``digest`` names: its lines, and which of them were shown."""

    digest: str
    total: int
    content: Ranges = ()
    numbers: Ranges = ()

    @property
    def whole(self) -> bool:
        """Whether every line's content was shown."""
        return covers(self.content, 1, self.total)


class Seen:
    """By path. A file in another state than was shown is one that was never shown."""

    def __init__(self) -> None:
        self._files: dict[str, Shown] = {}

    def of(self, path: str, digest: str) -> Shown | None:
        """What was shown of the file in this state; None for nothing."""
        shown = self._files.get(path)
        return shown if shown is not None and shown.digest == digest else None

    def show(self, path: str, digest: str, total: int, *ranges: tuple[int, int]) -> Shown:
        """These lines of it are shown now."""
        old = self.of(path, digest) or Shown(digest, total)
        return self._keep(
            path, replace(old, content=joined((*old.content, *ranges)), numbers=joined((*old.numbers, *ranges)))
        )

    def edit(self, path: str, old: str, new: Shown, *, first: int, last: int, lines: int) -> Shown:
        """Lines ``first`` to ``last`` were replaced by so many new ones; ``new`` is the new state and what is shown.

        Where ``old``, the state before, was not the one that was shown, only what ``new`` shows is known.
        """
        had = self.of(path, old) or Shown(old, 0)
        moved = lines - (last - first + 1)
        written = (first, first + lines - 1)
        content = (*before(had.content, first), *after(had.content, last, moved), written, *new.content)
        numbers = (*before(had.numbers, first), *(() if moved else after(had.numbers, last)), *new.numbers)
        return self._keep(path, replace(new, content=joined(content), numbers=joined(numbers)))

    def renew(self, path: str, old: str, new: Shown) -> Shown:
        """The file was changed in several places; ``new`` is its new state and what is shown of it.

        Where all of ``old``, the state before, was known, all of the new one is; of the rest only what is shown.
        """
        had = self.of(path, old)
        everything = ((1, new.total),) if had is not None and had.whole else new.content
        return self._keep(path, replace(new, content=joined(everything)))

    def forget(self, path: str) -> None:
        """The file is gone."""
        self._files.pop(path, None)

    def recall(self, data: Mapping[str, Any]) -> None:
        """Take over what a journal line kept of an earlier part of the same conversation, see `kept`."""
        try:
            shown = Shown(str(data["digest"]), int(data["total"]), _ranges(data["content"]), _ranges(data["numbers"]))
            self._keep(str(data["path"]), shown)
        except (KeyError, TypeError, ValueError):
            return

    def _keep(self, path: str, shown: Shown) -> Shown:
        self._files.pop(path, None)
        self._files[path] = shown
        while len(self._files) > _MOST:
            del self._files[next(iter(self._files))]
        return shown


def kept(path: str, shown: Shown) -> dict[str, Any]:
    """For the journal: enough to go on after a restart."""
    return {
        "path": path,
        "digest": shown.digest,
        "total": shown.total,
        "content": [list(one) for one in shown.content],
        "numbers": [list(one) for one in shown.numbers],
    }


def _ranges(data: Any) -> Ranges:
    return joined((int(first), int(last)) for first, last in data)
