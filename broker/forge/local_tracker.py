"""The conversations of the embedded forge: none but its own pull requests and the broker's notes on them."""

from __future__ import annotations

from collections.abc import Mapping

from broker.forge.base import Labelled, Note, Permission, Seen
from broker.forge.local import LocalForge
from broker.wire import Check, Comment, Thread


class LocalTracker:
    """A folder has no issues, nobody who labels them and nobody who reviews."""

    def __init__(self, forge: LocalForge) -> None:
        self._forge = forge

    def me(self) -> str | None:
        """No account is used."""
        return None

    def thread(self, number: int, *, pull: bool = False) -> Thread:  # noqa: ARG002
        """A pull request with the broker's own notes. Raises AbsentError."""
        shown = self._forge.pull(number)
        notes = self._forge.records.notes(number).values()
        return Thread(
            number=number,
            title=shown.title,
            text=shown.body,
            author="broker",
            state="open" if shown.state == "open" else "closed",
            pull=True,
            comments=tuple(Comment(author="broker", permitted=False, at=shown.created, text=text) for text in notes),
        )

    def look(self, marks: Mapping[str, str]) -> Seen:
        """Nothing is ever new."""
        return Seen(marks=marks)

    def labelled_by(self, number: int, label: str) -> Labelled | None:  # noqa: ARG002
        """Nobody."""
        return None

    def permission(self, login: str) -> Permission:  # noqa: ARG002
        """None: there are no logins here."""
        return "none"

    def checks(self, commit: str) -> tuple[Check, ...]:  # noqa: ARG002
        """No CI runs here."""
        return ()

    def reviews(self, number: int) -> tuple[Note, ...]:  # noqa: ARG002
        """Nobody reviews here."""
        return ()

    def mergeable(self, number: int) -> bool | None:
        """Whether it merges with its base as that is now. Raises AbsentError."""
        return self._forge.merges(number)

    def note(self, number: int, marker: str, text: str, *, pull: bool = False) -> str:  # noqa: ARG002
        """Keeps the note in the records; it has no address. Raises AbsentError."""
        self._forge.pull(number)
        self._forge.records.note(number, marker, text)
        return ""
