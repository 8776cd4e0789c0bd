"""A place is kept while who is away is likely enough to come back, by those who came back and those who never did."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from pool.admission.absences import EDGES, QUIET, Absence, Absences

LOSS, MOST = 12.0, 300.0


def told(absences: Absences, kinds: tuple[str, ...], gaps: list[float | None], now: float = 0.0) -> float:
    """Let absences of so many seconds begin a tenth apart, None for one without end; gives the time of the last."""
    events: list[tuple[float, int, Absence | None]] = [(now + i / 10, i, None) for i in range(len(gaps))]
    while events:
        events.sort(key=lambda event: event[:2], reverse=True)
        now, number, absence = events.pop()
        if absence is not None:
            absences.came_back(absence, now)
            continue
        begun, seconds = absences.begin(kinds, now), gaps[number]
        if seconds is not None:
            events.append((now + seconds, number, begun))
    return now


def worth(absences: Absences, kinds: tuple[str, ...], now: float, elapsed: float = 0.0) -> float:
    return absences.worth(Absence(now - elapsed, kinds), now, LOSS, MOST)


def test_nothing_known_is_held_until_both_costs_are_even() -> None:
    assert 0.6 * LOSS <= worth(Absences(), ("any",), 0.0) <= 1.5 * LOSS


def test_those_that_never_came_back_shorten_the_hold_although_nobody_tells_that_they_are_over() -> None:
    some, dice = Absences(), random.Random(1)  # noqa: S311  no secret
    gaps = [None if dice.random() < 0.3 else dice.expovariate(2.0) for _ in range(300)]
    now = told(some, ("any",), gaps)
    all_back = Absences()
    later = told(all_back, ("any",), [gap or 8.0 for gap in gaps])
    assert 1.0 < worth(some, ("any",), now) < 4.0
    assert worth(all_back, ("any",), later) > 8.0


def test_session_that_nobody_comes_back_to_is_not_held_at_all() -> None:
    absences = Absences()
    now = told(absences, (QUIET,), [None] * 40) + 60.0
    assert worth(absences, (QUIET,), now) == 0.0


def test_answers_without_a_call_that_are_soon_followed_are_held() -> None:
    """mini-swe-agent speaks its tools as text: each of its answers calls nothing, and it goes on."""
    absences = Absences()
    assert worth(absences, (QUIET,), 0.0) == 0.0
    now = told(absences, (QUIET,), [0.3] * 30)
    assert worth(absences, (QUIET,), now) > 0.3


def test_who_is_away_for_longer_than_all_others_is_let_go() -> None:
    absences = Absences()
    now = told(absences, ("any",), [0.3] * 100 + [None] * 30) + 50.0
    assert worth(absences, ("any",), now) > 0.3
    assert worth(absences, ("any",), now, elapsed=3.0) == 0.0


def test_long_absence_that_surely_ends_is_waited_for_unless_that_costs_more_than_the_place() -> None:
    absences = Absences()
    now = told(absences, ("any", "build"), [8.0] * 60)
    assert worth(absences, ("any", "build"), now) >= 8.0
    now = told(absences, ("any", "tests"), [40.0] * 60, now)
    assert worth(absences, ("any", "tests"), now) == 0.0


def test_kind_of_its_own_outweighs_the_general_one_once_it_has_enough() -> None:
    absences = Absences()
    now = told(absences, ("any", "p"), [4.0] * 50)
    now = told(absences, ("any", "q"), [None] * 50, now) + 20.0
    assert worth(absences, ("any", "q"), now) == 0.0
    assert worth(absences, ("any", "p"), now) >= 4.0


def test_told_end_is_no_news_of_who_comes_back() -> None:
    absences = Absences()
    for i in range(100):
        absences.begin(("any",), float(i)).open = False
    assert worth(absences, ("any",), 1_000.0) == worth(Absences(), ("any",), 0.0)


def test_what_is_new_outweighs_what_was() -> None:
    absences = Absences()
    now = told(absences, ("any",), [0.2] * 1_000)
    now = told(absences, ("any",), [None] * 300, now) + 60.0
    assert worth(absences, ("any",), now) < 1.0


def test_tables_and_followed_absences_are_bounded() -> None:
    many = Absences(cap=10)
    for i in range(1_000):
        many.came_back(many.begin(("any", f"k{i}"), float(i)), float(i))
    assert len(many) == 10
    assert many.followed < 10
    full = Absences(most=50)
    for _ in range(60):
        full.begin((), 0.0)
    assert full.followed == 50
    full.begin((), 1e6)
    assert full.followed == 1


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.one_of(st.none(), st.floats(0, 1e4)), max_size=40),
    st.floats(0, 1e4),
    st.floats(0.1, 1e3),
    st.floats(0.1, 1e3),
)
def test_hold_is_never_negative_and_never_beyond_its_most(
    gaps: list[float | None], elapsed: float, loss: float, most: float
) -> None:
    absences = Absences()
    now = told(absences, ("any", "k"), gaps)
    assert 0.0 <= absences.worth(Absence(now - elapsed, ("any", "k")), now, loss, most) <= most


def test_clock_that_stands_still_or_an_absence_beyond_all_steps_breaks_nothing() -> None:
    absences = Absences()
    old = absences.begin(("any",), 0.0)
    assert absences.worth(old, 2 * EDGES[-1], LOSS, MOST) == 0.0
    absences.came_back(old, 2 * EDGES[-1])
    absences.came_back(old, 2 * EDGES[-1])
    assert absences.worth(absences.begin(("any",), 5_000.0), 5_000.0, LOSS, MOST) > 0.0
