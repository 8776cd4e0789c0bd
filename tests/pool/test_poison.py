"""A request that breaks servers is stopped and remembered; a server that is broken is not excused by it."""

from __future__ import annotations

import itertools
from typing import Any

from pool.poison import AFTER, FORGET, HOLD, KEPT, LONGEST, MOST, NEAR, SERVERS, Failure, Suspects, mark_of

X, ALIKE, Y = (1, "x"), (1, "z"), (2, "y")
numbers = itertools.count()


def failure(endpoint: str, at: float, request: str = "", caller: str = "anna", **more: Any) -> Failure:
    """A try that was sent a moment before it failed, of a request of its own where none is named."""
    told: dict[str, Any] = {"sent": at - 0.05} | more
    return Failure(endpoint=endpoint, who=(caller, "s"), at=at, request=request or f"r{next(numbers)}", **told)


def test_two_servers_that_serve_others_are_not_to_blame() -> None:
    suspects = Suspects({"a": 9.9, "b": 9.8}.get)
    assert not suspects.failed(X, failure("a", 10.0, "r"))
    assert suspects.failed(X, failure("b", 10.1, "r"))
    assert suspects.refused(X, "anna", 10.2) > HOLD - 1
    assert suspects.refused(Y, "anna", 10.2) == 0


def test_copies_one_after_the_other_are_as_telling_as_tries() -> None:
    suspects = Suspects({"a": 9.9, "b": 9.8}.get)
    assert not suspects.failed(X, failure("a", 10.0))
    assert suspects.failed(X, failure("b", 10.1))


def test_servers_without_a_witness_are_to_blame() -> None:
    for well in ({}, {"a": 9.9}, {"a": 9.9, "b": 2.0}):
        suspects = Suspects(well.get)
        assert not suspects.failed(X, failure("a", 10.0, "r"))
        assert not suspects.failed(X, failure("b", 10.1, "r"))
        assert suspects.refused(X, "anna", 10.2) == 0


def test_copies_that_fail_side_by_side_are_one_failure() -> None:
    suspects = Suspects(dict.fromkeys("abcdef", 9.9).get)
    assert not any(suspects.failed(X, failure(name, 10.0 + at, sent=9.0)) for at, name in enumerate("abcdef"))
    assert suspects.refused(X, "anna", 16.0) == 0


def test_whoever_was_under_way_in_a_server_that_died_is_innocent_wherever_it_fails_next() -> None:
    """Two servers of three are killed half a second apart; what they carried fails on both."""
    well = {"a": 9.99, "b": 10.49}
    suspects = Suspects(well.get)
    requests = [f"r{number}" for number in range(10)]
    for answered in (True, False):
        for name, at in (("a", 10.0), ("b", 10.5)):
            told = [
                suspects.failed(X, failure(name, at + 0.001 * n, r, answered=answered)) for n, r in enumerate(requests)
            ]
            assert not any(told)
            well[name] = at + AFTER / 2  # an answer that was under way is read after the first of them broke
        well |= {"a": 20.0, "b": 20.0}
        suspects = Suspects({"a": 9.99, "b": 10.49}.get)


def test_different_ones_of_one_session_do_not_excuse_each_other_and_those_of_another_do() -> None:
    for caller, guilty in (("anna", True), ("ben", False)):
        suspects = Suspects({"a": 9.9, "b": 9.9}.get)
        for name, at in (("a", 10.0), ("b", 10.1)):
            suspects.failed(Y, failure(name, at, "other", caller=caller))
            told = suspects.failed(X, failure(name, at, "r"))
        assert told is guilty


def test_a_connection_that_broke_tells_of_the_request_once_the_server_served_another_after_it() -> None:
    well = {"a": 9.9, "b": 9.9, "c": 9.9}
    suspects = Suspects(well.get)
    assert not suspects.failed(X, failure("a", 10.0, answered=False))
    assert not suspects.failed(X, failure("b", 11.0, answered=False))
    well |= {"a": 10.0 + 2 * AFTER, "b": 11.0 + 2 * AFTER}
    assert suspects.failed(X, failure("c", 12.0, answered=False))


def test_a_server_that_was_started_anew_had_died_by_itself() -> None:
    well = {"a": 9.9, "b": 9.9}
    suspects = Suspects(well.get)
    suspects.failed(X, failure("a", 10.0, answered=False))
    suspects.gone("a")
    well["a"] = 11.0
    assert not suspects.failed(X, failure("b", 10.5))


def test_on_one_server_only_a_success_in_between_bears_witness() -> None:
    well = {"a": 9.9}
    suspects = Suspects(well.get)
    assert not suspects.failed(X, failure("a", 10.0, "r"))
    assert not suspects.failed(X, failure("a", 10.5, "r"))
    well["a"] = 10.7
    assert suspects.failed(X, failure("a", 11.0, "r"))


def test_one_caller_has_nobody_else_refused() -> None:
    suspects = Suspects({"a": 9.9, "b": 9.9}.get)
    suspects.failed(X, failure("a", 10.0, caller="mallory"))
    assert suspects.failed(X, failure("b", 10.1, caller="mallory"))
    assert suspects.refused(X, "mallory", 10.2)
    assert not suspects.refused(X, "anna", 10.2)


def test_what_failed_for_two_callers_is_refused_to_everybody() -> None:
    suspects = Suspects({"a": 9.9, "b": 9.9}.get)
    suspects.failed(X, failure("a", 10.0, caller="mallory"))
    assert suspects.failed(X, failure("b", 10.1, caller="ben"))
    assert suspects.refused(X, "anna", 10.2)


def test_it_is_tried_anew_each_time_less_often_and_never_refused_for_good() -> None:
    now, held = 10.0, []
    well = {"a": now}
    suspects = Suspects(well.get)
    suspects.failed(X, failure("a", now, "r"))
    for _ in range(8):
        now += NEAR / 2
        well["a"] = now
        assert suspects.failed(X, failure("a", now + 0.05, "r"))
        held.append(suspects.refused(X, "anna", now + 0.05))
        now += held[-1] + 0.05
        assert suspects.refused(X, "anna", now + 0.001) == 0
    assert held == sorted(held)
    assert max(held) >= LONGEST - 0.01


def test_what_a_server_answered_or_what_is_long_ago_is_forgotten() -> None:
    suspects = Suspects({"a": 10.0, "b": 10.0}.get)
    suspects.failed(X, failure("a", 10.0))
    suspects.cleared(X)
    assert X[0] not in suspects
    assert not suspects.failed(X, failure("b", 10.1))
    suspects = Suspects({"a": 10.0 + FORGET, "b": 10.0 + FORGET}.get)
    suspects.failed(X, failure("a", 10.0))
    assert not suspects.failed(X, failure("b", 10.1 + FORGET))


def test_a_copy_that_begins_clears_it_of_failing_before_and_not_of_breaking_off() -> None:
    suspects = Suspects({"a": 11.0, "b": 12.0}.get)
    suspects.failed(X, failure("a", 10.0))
    suspects.began(X)
    assert X[0] not in suspects
    suspects.failed(X, failure("a", 10.0, answered=False, begun=True))
    suspects.began(X)
    assert suspects.failed(X, failure("b", 11.0, answered=False, begun=True))


def test_it_is_bounded() -> None:
    nothing: dict[str, float] = {}
    suspects = Suspects(nothing.get)
    for number in range(2 * SERVERS):
        suspects.failed((number, ""), failure(f"e{number}", float(number)))
    assert len(suspects._known) == len(suspects._rough) == MOST
    assert len(suspects._broken) == SERVERS
    for number in range(3 * KEPT):
        suspects.failed(X, failure("a", 1e4 + number, caller=f"c{number}"))
    assert max(len(suspects._known[X].failures), len(suspects._broken["a"]), len(suspects._known[X].callers)) <= KEPT


def test_what_is_only_alike_is_told_apart() -> None:
    suspects = Suspects({"a": 10.0, "b": 10.0}.get)
    suspects.failed(X, failure("a", 10.0))
    suspects.failed(ALIKE, failure("a", 10.0))
    assert X[0] in suspects
    suspects.cleared(X)
    assert X[0] in suspects
    suspects.cleared(ALIKE)
    assert X[0] not in suspects
    assert Y[0] not in suspects


def test_whatever_is_sent_and_may_decide_how_it_fares_makes_another_request() -> None:
    body = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 5}
    assert mark_of(body) == mark_of({**body, "session_id": "s"})
    for more in (
        {"max_tokens": 6}, {"stream": True}, {"stream_options": {"include_usage": True}}, {"metadata": {"a": "b"}},
        {"priority": 2**63}, {"user": "\ud800"}, {"request_id": "r"}, {"prompt_cache_key": "k"},
    ):  # fmt: skip
        assert mark_of(body) != mark_of(body | more)
    assert mark_of({"prompt": "\ud800", "x": object()})
