"""What is printed: tables that stay readable in a pipe, and a mend for every error."""

from __future__ import annotations

from swarm.cli.exits import parted
from swarm.cli.screen import WIDE, columns
from swarm.errors import ReplayError


def test_one_wide_cell_moves_its_own_row_and_no_other() -> None:
    lines = columns([["NAME", "VALUE", "FROM"], ["a", "x" * 300, "file"], ["bcd", "1", "default"]])
    assert lines == ["NAME  VALUE  FROM", f"a     {'x' * 300}  file", "bcd   1      default"]


def test_cells_that_most_are_as_wide_as_are_aligned() -> None:
    lines = columns([["A", "B"], ["x" * WIDE, "1"], ["y", "2"]])
    assert [line.index(last) for line, last in zip(lines, ("B", "1", "2"), strict=True)] == [WIDE + 2] * 3


def test_a_replay_that_cannot_be_is_mended_by_what_is_written_of_replays() -> None:
    what, mend = parted(ReplayError("an older version worked on it"))
    assert what == "an older version worked on it"
    assert "docs/replay.md" in mend
