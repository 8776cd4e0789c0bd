"""What is known of a repository before anyone works in it, as data for an agent: its own words, how it is tested."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from swarm.types import Frozen, Step

GUIDE = 12_000  # characters of one guide
GUIDES = 24_000  # of all of them
KNOWN = "known"
"""The kind of the journal's line that holds a `Briefing`."""


class Guide(Frozen):
    """A file in which a repository tells agents or people how to work in it. Its words are data, never orders to us."""

    path: str = Field(max_length=4096)
    text: str = Field(max_length=GUIDE)
    left_out: int = Field(default=0, ge=0, description="characters that are not in ``text``")


class Known(Frozen):
    """``guides`` in the order to be read, ``notes`` one fact a line, such as how it is installed and tested."""

    guides: tuple[Guide, ...] = ()
    notes: tuple[str, ...] = ()


class Briefing(Frozen):
    """What an attempt knew of its repository when it began. It is read once: what a conversation began with, it goes on
    with, in a later life and in a replay."""

    known: Known = Known()
    test_command: str | None = None

    @classmethod
    def of(cls, lines: Sequence[Step]) -> Briefing | None:
        """The last that these lines of a journal tell of; None where they tell of none."""
        found = next((line for line in reversed(lines) if line.kind == KNOWN), None)
        return cls.model_validate(found.data) if found is not None else None
