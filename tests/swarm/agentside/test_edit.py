"""Search and replace: what is hit, what is refused, and that nothing outside the span changes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarm.tools.editing.edit import Edited, Missed, replace, replace_all
from swarm.tools.editing.runs import LINES as MOST
from swarm.tools.editing.runs import Runs


def edited(data: bytes, search: str, new: str) -> bytes:
    result = replace(data, search, new)
    assert isinstance(result, Edited), result
    return result.data


def missed(data: bytes, search: str, new: str) -> str:
    result = replace(data, search, new)
    assert isinstance(result, Missed), result
    return result.reason


def test_exact_text_is_replaced() -> None:
    assert edited(b"a = 1\nb = 2\n", "b = 2", "b = 3") == b"a = 1\nb = 3\n"


def test_part_of_a_line_is_enough() -> None:
    assert edited(b"value = compute(1)\n", "compute(1)", "compute(2)") == b"value = compute(2)\n"


def test_duplicate_is_refused_with_its_lines() -> None:
    reason = missed(b"x = 1\ny = 2\nx = 1\n", "x = 1", "x = 5")
    assert "2 times" in reason
    assert "lines 1, 3" in reason


def test_overlapping_duplicates_are_counted() -> None:
    assert "2 times" in missed(b"aaa", "aa", "b")


def test_duplicate_but_for_whitespace_is_refused() -> None:
    assert "2 times" in missed(b"if a:\n    go( )\nif b:\n        go( )\n", "  go( )\n", "stop()\n")


def test_exact_match_wins_over_a_tolerant_one() -> None:
    assert edited(b"  x = 1\nx  =  1\n", "x = 1", "x = 2") == b"  x = 2\nx  =  1\n"


def test_other_indentation_is_tolerated_and_taken_over() -> None:
    data = b"class A:\n\tdef f(self):\n\t\treturn 1\n"
    new = edited(data, "    def f(self):\n        return 1", "    def f(self):\n        return 2")
    assert new == b"class A:\n\tdef f(self):\n\t    return 2\n"


def test_indentation_left_out_is_put_back() -> None:
    data = b"def f():\n    if x:\n        return 1\n    return 2\n"
    assert (
        edited(data, "if x:\n    return  1", "if y:\n    return 3")
        == b"def f():\n    if y:\n        return 3\n    return 2\n"
    )


def test_crlf_stays_crlf() -> None:
    data = b"a\r\nb\r\nc\r\n"
    assert edited(data, "a\nb", "a\nx\ny") == b"a\r\nx\r\ny\r\nc\r\n"
    assert edited(data, "b", "b\nb2") == b"a\r\nb\r\nb2\r\nc\r\n"


def test_line_feed_in_a_mixed_file_stays_where_the_span_has_it() -> None:
    assert edited(b"a\nb\nc\r\nd\r\ne\r\n", "a\nb", "a\nB") == b"a\nB\nc\r\nd\r\ne\r\n"


def test_byte_order_mark_stays() -> None:
    assert edited(b"\xef\xbb\xbfimport a\n", "  import a", "import b") == b"\xef\xbb\xbfimport b\n"


def test_missing_last_newline_stays_missing() -> None:
    assert edited(b"a\nb", "b ", "c") == b"a\nc"
    assert edited(b"a\nb", "b", "c") == b"a\nc"


def test_bytes_that_are_no_utf8_survive() -> None:
    assert edited(b"\xff\xfe\x80\nname = 1\n\xc3\x28", "name = 1", "name = 2") == b"\xff\xfe\x80\nname = 2\n\xc3\x28"


def test_line_numbers_copied_from_view_are_understood() -> None:
    assert edited(b"a = 1\nb = 2\nc = 3\n", "1\ta = 1\n2\tb = 2", "1\ta = 1\n2\tb = 5") == b"a = 1\nb = 5\nc = 3\n"


def test_numbers_that_belong_to_the_file_are_not_stripped() -> None:
    assert edited(b"1\tone\n2\ttwo\n", "2\ttwo", "2\tzwei") == b"1\tone\n2\tzwei\n"


def test_line_taken_out_leaves_no_empty_line() -> None:
    assert edited(b"a\n    b  c\nd\n", "b c", "") == b"a\nd\n"


def test_empty_search_is_refused() -> None:
    assert "empty" in missed(b"a\n", " \n", "b")


def test_edit_that_changes_nothing_is_refused() -> None:
    assert "nothing would change" in missed(b"a\n", "a", "a")
    assert "nothing would change" in missed(b"  a\n", "a ", "a")


def test_nearest_text_is_shown_on_a_miss() -> None:
    reason = missed(b"def total(items):\n    return sum(items)\n", "    return sum(item)", "x")
    assert "2\t    return sum(items)" in reason


def test_nothing_alike_says_so() -> None:
    assert "nothing like it" in missed(b"alpha\nbeta\n", "zzzzzzzzzzzzzzzzzzzz", "x")


def test_lone_surrogates_of_a_model_do_no_harm() -> None:
    assert edited(b"a\n", "a", "\ud800b") == b"?b\n"
    assert "nothing like it" in missed(b"abc\n", "\ud83d\udcff\udcff", "x")


def test_search_longer_than_the_file() -> None:
    missed(b"a\n", "a\nb\nc\nd", "x")


@pytest.mark.parametrize("data", [b"", b"\n", b"\r\n", b"\xef\xbb\xbf"])
def test_nearly_empty_file_is_no_trap(data: bytes) -> None:
    missed(data, "anything", "x")


def test_blank_lines_left_out_or_added_are_tolerated() -> None:
    data = b"def f():\n    a = 1\n\n    b = 2\n"
    assert edited(data, "a = 1\nb = 2", "a = 1\nb = 3") == b"def f():\n    a = 1\n    b = 3\n"
    assert edited(b"a = 1\nb = 2\n", "a = 1\n\nb = 2", "c = 3") == b"c = 3\n"


def test_newlines_that_were_escaped_twice_are_understood() -> None:
    assert edited(b"a = 1\nb = 2\n", "a = 1\\nb = 2", 'a = 1\\nb = \\"x\\\\n\\"') == b'a = 1\nb = "x\\n"\n'


def test_escape_that_belongs_to_the_file_stays() -> None:
    assert edited(b'print("a\\nb")\n', 'print("a\\nb")', 'print("a\\n")') == b'print("a\\n")\n'


def test_bytes_shown_as_replacement_characters_are_found_and_kept() -> None:
    data = b"# caf\xe9\nname = 'caf\xe9'\n"
    assert edited(data, "name = 'caf\ufffd'", "name = 'the caf\ufffd'") == b"# caf\xe9\nname = 'the caf\xe9'\n"
    assert edited(data, "name = 'caf\ufffd'", "name = 'cafe'") == b"# caf\xe9\nname = 'cafe'\n"
    assert "bytes that are no UTF-8" in missed(data, "name = 'caf\ufffd'", "n = '\ufffd\ufffd'")
    assert "2 times" in missed(data, "caf\ufffd", "x")


def test_every_exact_place_is_replaced_when_asked() -> None:
    result = replace_all(b"x = 1\r\ny = x\r\nx = 2\r\n", "x", "z")
    assert isinstance(result, Edited)
    assert result.data == b"z = 1\r\ny = z\r\nz = 2\r\n"
    assert (result.count, result.first) == (3, 1)
    assert isinstance(replace_all(b"a\n", "b", "c"), Missed)
    assert isinstance(replace_all(b"a\n", "", "c"), Missed)


def test_line_ends_stay_where_every_place_is_replaced() -> None:
    def made(data: bytes, search: str, new: str) -> bytes:
        result = replace_all(data, search, new)
        assert isinstance(result, Edited)
        return result.data

    assert made(b"x\r\nx\r\n", "x", "z\nw") == b"z\r\nw\r\nz\r\nw\r\n"
    assert made(b"x\r\ny\nx\ny\r\n", "x\ny", "z\nw") == b"z\r\nw\nz\nw\r\n"
    assert made(b"a.b a.b axb", "a.b", "\\1") == b"\\1 \\1 axb"


def test_replacing_every_place_makes_no_endless_file() -> None:
    result = replace_all(b"x" * 100_000, "x", "y" * 1000)
    assert isinstance(result, Missed)
    assert "100000 times" in result.reason


def test_lines_that_are_all_alike_are_searched_in_a_moment() -> None:
    lines = Runs(["pass"] * 60_000, str)
    assert lines.starts(["pass"] * 30_000 + ["nope"], 50) == []
    assert lines.starts(["pass"] * 3, 2) == [0, 1]
    assert lines.there(["pass"] * 3, 59_997)
    assert not lines.there(["pass"] * 3, 59_998)
    mixed = Runs([*["pass"] * 60_000, "nope"], str)
    assert mixed.starts(["pass"] * 30_000 + ["nope"] * 2, 50) == []
    assert mixed.starts(["pass"] * 30_000 + ["nope"], 50) == [30_000]


def test_more_lines_than_are_compared_are_told_as_such() -> None:
    data = b"\n" * (MOST + 1) + b"x = 1\n"
    assert edited(data, "x = 1", "x = 2").endswith(b"\nx = 2\n")
    assert "too much to search" in missed(data, "  x  =  1", "x = 2")


def test_places_without_number_are_refused_in_a_moment() -> None:
    assert "50 times or more" in missed(b"a" * 1_000_000, "a" * 1000, "b")


def test_nearest_is_looked_for_within_bounds() -> None:
    line = "value = compute_the_total_of_all_items_in_the_basket(basket, tax, discount)"
    data = "".join(f"{line[:60]}{n:06} {line}\n" for n in range(30_000)).encode()
    assert "nearest" in missed(data, f"{line}!!", "x")


LINES = st.lists(st.sampled_from([b"a", b"\tb = 1", b"  c()", b"", b"\xff\x00", b"d d", b"caf\xc3\xa9"]), max_size=8)
ENDS = st.sampled_from([b"\n", b"\r\n"])
MIDDLE = (b"    UNIQUE = 1", b"    SECOND", b"")


@st.composite
def files(draw) -> tuple[bytes, bytes, bytes]:
    """What lies before, in and after the span of a file: either line end, a mark or none, a last newline or none."""
    end = draw(ENDS)
    before = (b"\xef\xbb\xbf" if draw(st.booleans()) else b"") + b"".join(line + end for line in draw(LINES))
    after = end.join(draw(LINES)) + (end if draw(st.booleans()) else b"")
    return before, end.join(MIDDLE), after


SEARCHES = st.sampled_from(
    ["UNIQUE = 1", "  UNIQUE = 1", "UNIQUE  =  1", "UNIQUE = 1\nSECOND", "\tUNIQUE = 1\n\tSECOND ", "    UNIQUE = 1\n"]
)


@given(file=files(), search=SEARCHES, new=st.text(alphabet="xyz \n", max_size=20))
def test_bytes_outside_the_span_never_change(file, search, new) -> None:
    before, middle, after = file
    result = replace(before + middle + after, search, new)
    if isinstance(result, Edited):
        assert result.data.startswith(before)
        assert result.data.endswith(after)
        assert len(result.data) >= len(before) + len(after)


@given(data=st.binary(max_size=200), search=st.text(max_size=12), new=st.text(max_size=12))
def test_any_input_is_edited_or_refused_but_never_breaks(data, search, new) -> None:
    result = replace(data, search, new)
    assert isinstance(result, Edited | Missed)
