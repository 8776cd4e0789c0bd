"""What changed since the last look: nothing skipped, however much it is, and a bounded number of calls."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.forge.window import changed, mark, mark_of, stamp

_SIZE = 2
NOW = 1_000_000.0


class List:
    """A forge's list: some a page, newest first, a call counted for each page."""

    def __init__(self, times: list[int]) -> None:
        self.times, self.pages = times, 0

    def fetch(self, since: float, until: float | None, most: int) -> tuple[list[dict[str, Any]], bool]:
        found = sorted((at for at in self.times if at >= since and (until is None or at <= until)), reverse=True)
        pages = min(-(-len(found) // _SIZE) or 1, most)
        self.pages += pages
        return [{"id": at, "updated_at": stamp(at)} for at in found[: pages * _SIZE]], pages >= most


@given(st.lists(st.integers(1_000, 100_000), unique=True, max_size=120))
def test_looks_after_one_another_find_everything(times):
    there, since, found = List(times), 900.0, set()
    for _ in range(60):
        seen, since = changed(there.fetch, since, NOW)
        found |= {one["id"] for one in seen}
    assert found == set(times)


@given(st.lists(st.integers(1_000, 100_000), max_size=200))
def test_one_look_is_a_bounded_number_of_calls(times):
    there = List(times)
    changed(there.fetch, 900.0, NOW)
    assert there.pages <= 10 + 12 * 10 + 100


def test_a_quiet_list_is_one_call_and_the_mark_stays():
    there = List([])
    assert changed(there.fetch, 5_000.0, NOW) == ([], 5_000.0)
    assert there.pages == 1


def test_what_comes_in_the_same_second_as_a_look_is_found_by_the_next():
    there = List([5_000])
    _seen, since = changed(there.fetch, 4_000.0, NOW)
    there.times.append(5_000)
    seen, _since = changed(there.fetch, since, NOW)
    assert [one["id"] for one in seen] == [5_000, 5_000]


def test_a_list_that_ignores_the_upper_end_is_not_asked_for_ever():
    """An old server may not know the filter."""
    there = List(list(range(1_000, 2_000)))

    def fetch(since: float, _until: float | None, most: int) -> tuple[list[dict[str, Any]], bool]:
        return there.fetch(since, None, most)

    changed(fetch, 900.0, NOW)
    assert there.pages <= 230


@pytest.mark.parametrize("kept", [None, "", "x", "-5", "1.5", "9" * 20, "\u0665"])
def test_a_damaged_mark_is_none(kept):
    assert mark(kept) is None


def test_a_mark_is_the_forges_own_clock_where_it_tells_it():
    assert mark_of("Thu, 01 Jan 1970 01:00:00 GMT", 9e9) == "3598"
    assert mark_of(None, 10_000.0) == mark_of("nonsense", 10_000.0) == "9700"
    assert mark(mark_of(None, 10_000.0)) == 9_700.0
    assert datetime.fromisoformat(stamp(3_598)) == datetime(1970, 1, 1, 0, 59, 58, tzinfo=UTC)


def test_an_item_with_a_time_to_come_hides_none_that_is_written_till_then():
    """GitLab lets owners set an issue's time; importers write such, and one of them made a look deaf for good."""
    there = List([32_503_680_000])
    _seen, since = changed(there.fetch, 4_000.0, 5_000.0)
    there.times.append(5_001)
    assert 5_001 in {one["id"] for one in changed(there.fetch, since, 5_002.0)[0]}
    assert 5_001 in {
        one["id"] for one in changed(there.fetch, 32_503_680_000.0, 5_001.0)[0]
    }  # as kept by an earlier one
