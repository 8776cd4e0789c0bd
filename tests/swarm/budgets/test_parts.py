"""Where time goes, line by line: whatever a journal holds, the parts are the wall clock."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarm.budgets.parts import PARTS, TOKENS, Clock, advance, whole
from swarm.types import Step, TaskState

FINAL = [state.value for state in TaskState if state.final]
GOING = [state.value for state in TaskState if not state.final]


def line(at: float, kind: str, seq: int = 1, **data: Any) -> Step:
    return Step(task="t", attempt="a", seq=seq, at=at, kind=kind, data=data)


def summed(lines: list[Step]) -> dict[str, float]:
    found: dict[str, float] = {}
    for _clock, parts, _line in whole(lines):
        for part in parts:
            found[part.name] = found.get(part.name, 0.0) + part.seconds
    return found


def test_a_task_from_queue_to_pull_request_leaves_no_second_out() -> None:
    lines = [
        line(100, "state", to="queued"),
        line(110, "state", to="running"),
        line(110, "phase_started", phase="prepare"),
        line(113, "phase_ended", phase="prepare", seconds=3),
        line(113, "phase_started", phase="work"),
        line(115, "note", text="the image is made", seconds=1.5),
        line(130, "model_call", seconds=14, waited=4, prefill=3, prompt_tokens=100, completion_tokens=9),
        line(140, "command", argv=["make"], seconds=9),
        line(141, "phase_ended", phase="work", seconds=28),
        line(141, "phase_started", phase="check"),
        line(150, "phase_ended", phase="check", seconds=9),
        line(150, "state", to="delivering"),
        line(150, "phase_started", phase="deliver"),
        line(153, "phase_ended", phase="deliver", seconds=3),
        line(154, "state", to="delivered"),
    ]
    assert summed(lines) == pytest.approx(
        {
            "queued": 10,
            "prepare": 4.5,
            "pool": 4,
            "prefill": 3,
            "decode": 7,
            "tools": 9,
            "checks": 9,
            "broker": 3,
            "other": 0.5 + 1 + 1 + 1 + 1,
        }
    )


def test_calls_that_ran_beside_one_another_count_the_time_once() -> None:
    """Two calls of ten seconds at one time are ten seconds of the task."""
    lines = [line(0, "state", to="running")]
    lines += [line(10, "model_call", seconds=10, prompt_tokens=5, completion_tokens=1) for _ in range(2)]
    told = [part for _, parts, _ in whole(lines) for part in parts]
    assert sum(part.seconds for part in told) == 10
    assert sum(part.tokens for part in told if part.name == "prefill") == 10


def test_a_call_that_was_broken_off_counts_as_what_it_was() -> None:
    lines = [
        line(0, "state", to="running"),
        line(10, "note", text="a model call was broken off", seconds=8, part="pool"),
    ]
    assert summed(lines) == {"pool": 8, "other": 2}
    odd = [line(0, "state", to="running"), line(10, "note", text="?", seconds=8, part=["nonsense"])]
    assert summed(odd) == {"prepare": 8, "other": 2}


def test_what_is_printed_while_a_model_thinks_takes_nothing_of_its_time() -> None:
    lines = [line(0, "state", to="running"), line(0, "note", doing="tools")]
    lines += [line(second, "output", text="…") for second in range(1, 9)]
    lines.append(line(10, "model_call", seconds=8, prompt_tokens=1, completion_tokens=1))
    assert summed(lines) == {"pool": 0, "prefill": 0, "decode": 8, "tools": 2}


def test_the_time_between_an_end_and_a_retry_belongs_to_nobody() -> None:
    lines = [line(0, "state", to="queued"), line(5, "state", to="infra_failed"), line(1000, "state", to="queued")]
    lines.append(line(1003, "state", to="running"))
    assert summed(lines) == {"queued": 8}


def test_a_pause_is_a_part_of_its_own() -> None:
    lines = [line(0, "state", to="running"), line(2, "state", to="paused"), line(9, "state", to="queued")]
    assert summed(lines) == {"other": 2, "paused": 7}


def test_a_cache_that_a_server_does_not_tell_of_counts_in_no_share() -> None:
    told = advance(Clock(0, "other"), line(1, "model_call", seconds=1, prompt_tokens=10, cached_tokens=None))
    known = advance(
        Clock(0, "other"), line(1, "model_call", seconds=1, prompt_tokens=10, cached_tokens=4, recomputed=3)
    )
    assert told is not None
    assert not {part.name for part in told[1]} & set(TOKENS)
    assert known is not None
    assert {part.name: part.tokens for part in known[1] if part.name in TOKENS} == {
        "told": 10,
        "cached": 4,
        "recomputed": 3,
    }


def test_a_clock_that_was_set_back_takes_no_time_away() -> None:
    lines = [line(100, "state", to="queued"), line(90, "state", to="running"), line(110, "state", to="delivered")]
    assert summed(lines) == {"queued": 0, "other": 10}


@pytest.mark.parametrize("seconds", ["long", None, -5, True, [1]])
def test_seconds_that_are_none_are_none(seconds: object) -> None:
    found = summed(
        [line(0, "state", to="running"), line(4, "model_call", seconds=seconds), line(5, "state", to="paused")]
    )
    assert sum(found.values()) == 5


numbers = st.floats(min_value=0, max_value=1e5)
told_lines = st.one_of(
    st.sampled_from([("state", {"to": to}) for to in GOING]),
    st.sampled_from([("phase_started", {"phase": p}) for p in ("prepare", "work", "seal", "check", "deliver", "new")]),
    st.just(("phase_ended", {"phase": "work"})),
    st.fixed_dictionaries({"seconds": numbers, "waited": numbers, "prefill": numbers | st.none()}).map(
        lambda data: ("model_call", data)
    ),
    numbers.map(lambda seconds: ("command", {"seconds": seconds})),
    numbers.map(lambda seconds: ("candidate", {"seconds": seconds})),
    numbers.map(lambda seconds: ("note", {"seconds": seconds})),
    st.sampled_from(PARTS).map(lambda part: ("note", {"doing": part})),
    st.sampled_from([("output", {}), ("edit", {}), ("salvage", {}), ("what a later version writes", {"seconds": 3})]),
)


@given(st.lists(st.tuples(numbers, told_lines), max_size=40), st.sampled_from(FINAL), numbers)
def test_the_parts_are_the_wall_clock_whatever_the_journal_holds(
    lines: list[tuple[float, tuple[str, dict[str, Any]]]], end: str, last: float
) -> None:
    at, journal = 0.0, [line(0.0, "state", to="queued")]
    for passed, (kind, data) in lines:
        at += passed
        journal.append(line(at, kind, **data))
    journal.append(line(at + last, "state", to=end))
    found = summed(journal)
    assert set(found) <= {*PARTS, *TOKENS}
    assert all(seconds >= 0 for seconds in found.values())
    assert math.isclose(sum(found.values()), at + last, rel_tol=1e-9, abs_tol=1e-6)


@given(st.lists(st.tuples(numbers, told_lines), max_size=20))
def test_no_part_is_counted_before_its_time(lines: list[tuple[float, tuple[str, dict[str, Any]]]]) -> None:
    at, clock = 0.0, Clock(0.0, "queued")
    for passed, (kind, data) in lines:
        at += passed
        if (told := advance(clock, line(at, kind, **data))) is not None:
            added = sum(part.seconds for part in told[1])
            assert 0 <= added <= at - clock.at + 1e-6
            clock = told[0]
    assert all(one <= two for one, two in pairwise((0.0, clock.at, at)))
