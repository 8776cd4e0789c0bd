"""What of a file is known to a model, and when a whole one may be written over another."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarm.tools.editing.elided import stand_in
from swarm.tools.editing.hints import left_below, unfenced
from swarm.tools.editing.overwriting import kept, objection
from swarm.tools.editing.ranges import after, before, covers, joined
from swarm.tools.editing.seen import Seen, Shown
from swarm.tools.editing.seen import kept as as_data
from swarm.tools.files import LIMIT, Content

LONG = "".join(f"line {n}\n" for n in range(1, 1001)).encode()
SETS = st.lists(st.tuples(st.integers(1, 30), st.integers(1, 30)), max_size=6)


@given(SETS, st.integers(1, 30), st.integers(-3, 3))
def test_ranges_hold_the_lines_that_they_are_made_of(pairs, line, moved) -> None:
    lines = {n for low, high in pairs for n in range(low, high + 1)}
    ranges = joined(pairs)
    assert {n for low, high in ranges for n in range(low, high + 1)} == lines
    assert all(covers(ranges, n, n) == (n in lines) for n in range(1, 32))
    assert {n for low, high in before(ranges, line) for n in range(low, high + 1)} == {n for n in lines if n < line}
    shifted = {n for low, high in after(ranges, line, moved) for n in range(low, high + 1)}
    assert shifted == {n + moved for n in lines if n > line}


def test_parts_that_were_shown_add_up_to_the_whole() -> None:
    seen = Seen()
    assert not seen.show("a", "d1", 1000, (1, 400)).whole
    assert not seen.show("a", "d1", 1000, (402, 1000)).whole
    assert seen.show("a", "d1", 1000, (401, 401)).whole


def test_a_file_that_changed_otherwise_was_never_shown() -> None:
    seen = Seen()
    seen.show("a", "d1", 3, (1, 3))
    assert seen.of("a", "d2") is None
    assert not seen.show("a", "d2", 3, (1, 1)).whole


def test_an_edit_keeps_what_is_known_and_forgets_numbers_that_moved() -> None:
    seen = Seen()
    seen.show("a", "d1", 100, (1, 100))
    new = seen.edit("a", "d1", Shown("d2", 101, ((47, 54),), ((47, 54),)), first=50, last=50, lines=2)
    assert new.whole
    assert covers(new.numbers, 1, 54)
    assert not covers(new.numbers, 55, 55)
    same = seen.edit("a", "d2", Shown("d3", 101, ((7, 13),), ((7, 13),)), first=10, last=10, lines=1)
    assert same.whole
    assert covers(same.numbers, 1, 54)


def test_an_edit_of_a_part_does_not_make_the_rest_known() -> None:
    seen = Seen()
    seen.show("a", "d1", 100, (1, 20))
    assert not seen.edit("a", "d1", Shown("d2", 100, ((7, 13),), ((7, 13),)), first=10, last=10, lines=1).whole
    assert not seen.renew("a", "d2", Shown("d3", 100)).whole


def test_what_was_shown_outlives_a_restart_and_rubbish_is_no_memory() -> None:
    seen = Seen()
    seen.recall(as_data("a", Shown("d1", 5, ((1, 5),), ((1, 5),))))
    shown = seen.of("a", "d1")
    assert shown is not None
    assert shown.whole
    for data in ({}, {"path": "b"}, {"path": "b", "digest": "d", "total": 3, "content": [[1]], "numbers": 4}):
        seen.recall(data)
    assert seen.of("b", "d") is None


@pytest.mark.parametrize(
    ("old", "shown", "told"),
    [
        (None, None, ""),
        (Content(b"", whole=True), None, ""),
        (Content(b"a\nb\n", whole=True), None, ""),
        (Content(b"a\nb\n", whole=True), Shown("d", 2, ((1, 1),)), "only a part"),
        (Content(b"a\nb\n", whole=True), Shown("d", 2, ((1, 2),)), ""),
        (Content(LONG, whole=True), None, "nothing"),
        (Content(LONG, whole=True), Shown("d", 1000, ((1, 400),)), "only a part"),
        (Content(LONG, whole=True), Shown("d", 1000, ((1, 1000),)), ""),
        (Content(b"x" * LIMIT, whole=False), Shown("d", 1, ((1, 1),)), "larger than"),
        (Content(b"a\0b\n", whole=True), None, "binary"),
        (Content(b"caf\xe9\n", whole=True), Shown("d", 1, ((1, 1),)), "no UTF-8"),
    ],
)
def test_a_file_is_written_over_only_where_all_of_it_is_known(old, shown, told: str) -> None:
    reason = objection("f.py", old, shown, "new\n")
    assert told in reason
    assert bool(reason) == bool(told)


@pytest.mark.parametrize(
    "line",
    [
        "[... 5000 characters, 90 lines left out ...]",
        '[... 5000 characters left out, lines 10-90: to see them, view path "output:3" first 10 ...]',
        "[lines 1-400 of 1000 are shown; go on with first 401]",
        "[600 more lines; the file has 1000]",
        "# ... existing code ...",
        "// ... rest of the file unchanged",
        "    # rest of the code remains the same",
        "/* ... other methods ... */",
        "... (rest of file unchanged)",
        "<!-- ... remaining content here ... -->",
        "# ...existing code...",
        "    // existing implementation unchanged",
        "\u2026 remaining lines as before",
        "# (rest of the file unchanged)",
        "# Rest of the class is the same as before.",
        "// ... keep the rest ...",
        "# other functions remain unchanged...",
        "{/* ... existing code ... */}",
    ],
)
def test_a_line_that_stands_for_others_is_found(line: str) -> None:
    assert stand_in(f"a = 1\n{line}\n") == line.strip()
    assert stand_in(f"a = 1\n{line}\n", f"x\n{line}\n") == "", "the file's own"


@pytest.mark.parametrize(
    "line",
    [
        "    ...rest,",
        "const all = {...existing, a: 1}",
        "  ...other}",
        "def f() -> None: ...",
        "    ...",
        "# the rest of the line is a comment",
        "other code lives in util.py",
        "print('... done')",
        "x = [1, 2, ...]",
        "// Remaining bytes are padding",
        "# keep the previous value",
        "# existing file remains untouched on error",
        "// Other methods here are virtual",
        "# unchanged file stays in the cache",
        "# ...the rest of the arguments are ignored",
        "# The rest of the file is the same as in v1",
        "# remaining lines are here because of the header",
    ],
)
def test_a_line_that_is_code_or_prose_is_not_taken_for_one(line: str) -> None:
    assert stand_in(line) == ""


def test_the_old_files_form_is_kept() -> None:
    assert kept("a\nb", b"\xef\xbb\xbfx\r\ny\r\n")[0] == b"\xef\xbb\xbfa\r\nb\r\n"
    assert kept("a\nb\n", b"x\ny") == (b"a\nb\n", "")
    assert kept("a\nb", b"") == (b"a\nb", "")
    assert kept("a\r\nb\n", b"x\r\ny\r\n")[0] == b"a\r\nb\n", "its own line ends, where it has any"
    assert kept("", b"x\n") == (b"", "")
    assert kept("\ud800", b"")[0] == b"?"


@pytest.mark.parametrize(
    ("text", "path", "kept_as"),
    [
        ("```python\na = 1\n```", "a.py", "a = 1\n"),
        ("\n```\na = 1\n\n```\n", "a.py", "a = 1\n\n"),
        ("```python\na = 1\n```", "README.md", "```python\na = 1\n```"),
        ("```\na\n```\nb\n```\nc\n```", "a.py", "```\na\n```\nb\n```\nc\n```"),
        ("a = '```'\n", "a.py", "a = '```'\n"),
        ("```a = 1```", "a.py", "```a = 1```"),
    ],
)
def test_a_fence_around_all_of_a_text_is_dropped_in_code(text: str, path: str, kept_as: str) -> None:
    assert unfenced(text, path, "\n") == kept_as
    assert unfenced("```\nx\n```", "a.py") == "x", "of a place, no line end is made up"


def test_a_function_put_in_the_place_of_its_head_is_told_of() -> None:
    told = left_below("def f(x):", "def f(x):\n    return 1", 8)
    assert "from line 9" in told
    assert left_below("def f(x):", "def f(x, y):\n    return 1", 8) == ""
    assert left_below("def f(x):", "def f(x):", 8) == ""
    assert left_below("def f(x):\n    return 0", "def f(x):\n    return 1", 8) == ""
    assert left_below("x = 1", "x = 1\ny = 2", 8) == ""
