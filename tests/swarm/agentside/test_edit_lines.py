"""Edits by line numbers: which lines are replaced, what is refused, and that all other bytes stay."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarm.tools.editing.edit import Edited, Missed
from swarm.tools.editing.lines import replace_lines


def edited(data: bytes, first: int, last: int, new: str, expect: str | None = None) -> bytes:
    result = replace_lines(data, first, last, new, expect)
    assert isinstance(result, Edited), result
    return result.data


def missed(data: bytes, first: int, last: int, new: str, expect: str | None = None) -> str:
    result = replace_lines(data, first, last, new, expect)
    assert isinstance(result, Missed), result
    return result.reason


@pytest.mark.parametrize(
    ("first", "last", "new", "made"),
    [
        (2, 2, "B", b"a\nB\nc\n"),
        (2, 2, "B\n", b"a\nB\nc\n"),
        (1, 3, "x\ny", b"x\ny\n"),
        (2, 1, "new", b"a\nnew\nb\nc\n"),
        (4, 3, "d", b"a\nb\nc\nd\n"),
        (2, 3, "", b"a\n"),
        (1, 3, "", b""),
        (2, 2, "\n", b"a\n\nc\n"),
    ],
)
def test_the_lines_named_are_replaced_and_no_others(first: int, last: int, new: str, made: bytes) -> None:
    assert edited(b"a\nb\nc\n", first, last, new) == made


def test_missing_last_newline_stays_missing_and_no_line_is_glued_to_another() -> None:
    assert edited(b"a\nb", 2, 2, "c\n") == b"a\nc"
    assert edited(b"a\nb", 3, 2, "c") == b"a\nb\nc"
    assert edited(b"a\nb", 1, 1, "x") == b"x\nb"


def test_line_ends_mark_and_odd_bytes_stay() -> None:
    assert edited(b"\xef\xbb\xbfa\r\nb\xe9\r\nc\r\n", 1, 1, "x\ny") == b"\xef\xbb\xbfx\r\ny\r\nb\xe9\r\nc\r\n"
    assert edited(b"\xef\xbb\xbfa\r\n", 2, 1, "b") == b"\xef\xbb\xbfa\r\nb\r\n"


def test_an_empty_file_can_be_begun() -> None:
    assert edited(b"", 1, 0, "a\nb") == b"a\nb\n"


def test_numbers_copied_from_a_view_are_dropped_where_they_fit() -> None:
    assert edited(b"a\nb\n", 2, 2, "2\tB\n3\tC") == b"a\nB\nC\n"
    assert edited(b"a\nb\n", 2, 2, "7\tB") == b"a\n7\tB\n"


@pytest.mark.parametrize(("first", "last"), [(3, 3), (2, 9), (9, 8)])
def test_lines_past_the_end_are_refused(first: int, last: int) -> None:
    assert "only 2 lines" in missed(b"a\nb\n", first, last, "x")


def test_other_lines_than_expected_are_refused_and_shown() -> None:
    reason = missed(b"a\nb\nc\nb2\n", 2, 2, "x", "c")
    assert "They hold:\n2\tb" in reason
    assert "are at 3-3" in reason
    assert edited(b"a\n    b  b\n", 2, 2, "x", "b b\n") == b"a\nx\n"


def test_a_change_that_is_none_is_refused() -> None:
    assert "nothing would change" in missed(b"a\nb\n", 2, 2, "b")


PIECES = st.lists(st.sampled_from([b"a", b"\tb", b"", b"\xff\x00", b"d d", b"caf\xc3\xa9"]), min_size=1, max_size=8)


@given(data=st.data(), lines=PIECES, end=st.sampled_from([b"\n", b"\r\n"]), closed=st.booleans())
def test_bytes_outside_the_lines_never_change(data, lines, end, closed) -> None:
    whole = [line + end for line in lines]
    whole[-1] = whole[-1] if closed else lines[-1]
    content = b"".join(whole)
    total = content.count(b"\n") + (not content.endswith(b"\n") and bool(content))
    first = data.draw(st.integers(1, max(1, total)))
    last = data.draw(st.integers(first - 1, total))
    result = replace_lines(content, first, last, data.draw(st.text(alphabet="xy \n", max_size=9)))
    if isinstance(result, Edited):
        before, after = b"".join(whole[: first - 1]), b"".join(whole[last:])
        assert result.data.startswith(before)
        if after:
            assert result.data.endswith(after)


@given(
    st.binary(max_size=60), st.integers(1, 9), st.integers(0, 9), st.text(max_size=9), st.none() | st.text(max_size=5)
)
def test_any_input_is_edited_or_refused_but_never_breaks(data, first, last, new, expect) -> None:
    assert isinstance(replace_lines(data, first, max(last, first - 1), new, expect), Edited | Missed)


def test_numbers_that_the_lines_begin_with_are_their_own() -> None:
    data = b"1\tfoo\n2\tbar\n"
    assert edited(data, 1, 2, "1\tq\n2\tr", expect="1\tfoo\n2\tbar") == b"1\tq\n2\tr\n"
    assert edited(data, 1, 2, "1\t1\tq\n2\t2\tr", expect="1\t1\tfoo\n2\t2\tbar") == b"1\tq\n2\tr\n"
    assert edited(b"a\nb\n", 2, 2, "2\tB") == b"a\nB\n"


def test_an_empty_line_may_be_expected() -> None:
    assert edited(b"a\n\nb\n", 2, 2, "z", expect="") == b"a\nz\nb\n"
    assert edited(b"a\n\nb\n", 1, 2, "z", expect="a\n") == b"z\nb\n"
    assert edited(b"a\n", 2, 1, "z", expect="") == b"a\nz\n"
    missed(b"a\nb\n", 2, 2, "z", expect="")
