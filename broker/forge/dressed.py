"""What a forge would not put on a pull request is told in words; what is wrong with the forge itself is an error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from broker.errors import ForgeError
from broker.forge.rest.problems import Reason

_REFUSED = {
    Reason.ABSENT,
    Reason.BLOCKED,
    Reason.BRANCH,
    Reason.CONFLICT,
    Reason.DUPLICATE,
    Reason.INVALID,
    Reason.SCOPE,
    Reason.UNCLEAR,
}


class Complaints:
    """Collects what was not taken."""

    def __init__(self) -> None:
        self._words: list[str] = []

    def add(self, words: str) -> None:
        """One thing that was not taken, and why."""
        self._words.append(words)

    @contextmanager
    def of(self, what: str) -> Iterator[None]:
        """A refusal inside becomes words; a forge that is out of order or out of reach stays an error."""
        try:
            yield
        except ForgeError as error:
            if error.uncertain or error.reason not in _REFUSED:
                raise
            self.add(f"{what}: {error}")

    @property
    def all(self) -> tuple[str, ...]:
        """In order."""
        return tuple(self._words)
