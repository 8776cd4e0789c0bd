"""Pages of files, long outputs and lists: bounded, and never silent about what is missing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarm.tools import tasks
from swarm.tools.outputs import LIMIT, Outputs
from swarm.tools.pages import LINES, ROOM, WIDE, page, split
from swarm.tools.viewing import told


def test_a_page_tells_what_it_does_not_show() -> None:
    one = page([f"line {n}" for n in range(1, 1001)])
    assert (one.first, one.last, one.total) == (1, LINES, 1000)
    assert told(one, whole=True).endswith(f"[lines 1-{LINES} of 1000 are shown; go on with first {LINES + 1}]")
    assert "[lines 999-1000 of 1000 are shown]" in told(page([str(n) for n in range(1000)], 999), whole=True)
    assert "its end was not read" in told(one, whole=False)


def test_long_lines_are_cut_and_do_not_count_as_shown() -> None:
    one = page(["a", "b" * 100_000, "c"])
    assert one.ranges == ((1, 1), (3, 3))
    assert f"[... {100_000 - WIDE} more characters in this line]" in one.text
    assert "1 long lines are shown in part only" in told(one, whole=True)


@given(
    st.lists(st.text(alphabet="ab\r\x1b\ufeff\udcff\u00e9", max_size=30) | st.just("x" * 3000), max_size=60),
    st.integers(1, 5),
)
def test_a_page_never_outgrows_its_bounds_and_keeps_lines_apart(lines, first) -> None:
    lines = lines or [""]
    first = min(first, len(lines))
    one = page(lines, first)
    assert len(one.text) <= ROOM + WIDE + 200
    assert one.text.count("\n") == one.last - one.first
    assert one.last >= first


def test_lines_are_numbered_as_editors_do() -> None:
    assert split("a\nb\n") == ["a", "b"]
    assert split("a\n\n") == ["a", ""]
    assert split("") == []


def test_a_long_output_is_shortened_and_can_be_seen_whole() -> None:
    outputs = Outputs()
    text = "\n".join(f"line {n}" for n in range(1, 5001))
    short = outputs.shorten(text)
    assert len(short) < LIMIT + 200
    assert short.startswith("line 1\n")
    assert short.endswith("line 5000")
    at = int(short.partition("first ")[2].partition(" ")[0])
    assert f"line {at - 1}\n" in short
    assert f"line {at}\n" not in short
    assert outputs.find("output:1") == text
    assert outputs.find("src/output.py") is None


def test_short_outputs_are_not_kept_and_old_ones_go_first() -> None:
    outputs = Outputs()
    assert outputs.shorten("short") == "short"
    for _ in range(5):
        outputs.keep("x" * 400_000)
    with pytest.raises(KeyError):
        outputs.find("output:1")
    assert outputs.find(" output:5 ") is not None
    outputs.recall(9)
    assert outputs.keep("y") == 10


@pytest.mark.parametrize(
    ("given_", "shown"),
    [
        ("[ ] a\n[>] b\n[x] c", "1 of 3 done\n[ ] a\n[>] b\n[x] c"),
        ("- [X] a\n2. b\n\n* [-] c", "1 of 3 done\n[x] a\n[ ] b\n[>] c"),
        (
            '{"content": "a", "status": "completed"}\n{"step": "b", "status": "in_progress"}',
            "1 of 2 done\n[x] a\n[>] b",
        ),
        ('{"broken', '0 of 1 done\n[ ] {"broken'),
        ("", "0 of 0 done"),
    ],
)
def test_lists_of_any_form_are_read(given_: str, shown: str) -> None:
    assert tasks.shown(tasks.read(given_)) == shown


@given(st.text(max_size=300))
def test_any_list_is_read_in_bounds(text: str) -> None:
    items = tasks.read(text * 40)
    assert len(items) <= 50
    assert tasks.read(tasks.shown(items).partition("\n")[2]) == items
