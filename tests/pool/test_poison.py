"""A request that breaks servers is stopped and remembered; a server that is broken is not excused by it."""

from __future__ import annotations

from pool.poison import FORGET, HOLD, LONGEST, MOST, Suspects, mark_of

X, ALIKE, Y = (1, "x"), (1, "z"), (2, "y")


def test_two_servers_that_serve_others_are_not_to_blame() -> None:
    suspects = Suspects({"a": 9.9, "b": 9.8}.get)
    assert not suspects.failed(X, "a", 10.0)
    assert suspects.failed(X, "b", 10.1)
    assert suspects.refused(X, 10.2) > HOLD - 1
    assert suspects.refused(Y, 10.2) == 0


def test_servers_without_a_witness_are_to_blame() -> None:
    for well in ({}, {"a": 9.9}, {"a": 9.9, "b": 2.0}):
        suspects = Suspects(well.get)
        assert not suspects.failed(X, "a", 10.0)
        assert not suspects.failed(X, "b", 10.1)
        assert suspects.refused(X, 10.2) == 0


def test_on_one_server_only_a_success_in_between_bears_witness() -> None:
    well = {"a": 9.9}
    suspects = Suspects(well.get)
    assert not suspects.failed(X, "a", 10.0)
    assert not suspects.failed(X, "a", 10.5)
    well["a"] = 10.7
    assert suspects.failed(X, "a", 11.0)


def test_it_is_tried_anew_each_time_less_often_and_never_refused_for_good() -> None:
    now, held = 10.0, []
    well = {"a": now}
    suspects = Suspects(well.get)
    suspects.failed(X, "a", now)
    for _ in range(8):
        now += 0.1
        well["a"] = now
        assert suspects.failed(X, "a", now)
        held.append(suspects.refused(X, now))
        now += held[-1]
        assert suspects.refused(X, now) == 0
    assert held == sorted(held)
    assert max(held) == LONGEST


def test_what_a_server_answered_or_what_is_long_ago_is_forgotten() -> None:
    suspects = Suspects({"a": 10.0, "b": 10.0}.get)
    suspects.failed(X, "a", 10.0)
    suspects.cleared(X)
    assert X[0] not in suspects
    assert not suspects.failed(X, "b", 10.1)
    assert not Suspects({"a": 10.0}.get).failed(X, "a", 10 + FORGET)


def test_it_is_bounded() -> None:
    nothing: dict[str, float] = {}
    suspects = Suspects(nothing.get)
    for number in range(3 * MOST):
        suspects.failed((number, ""), "a", float(number))
    assert len(suspects._known) == len(suspects._rough) == MOST


def test_what_is_only_alike_is_told_apart() -> None:
    suspects = Suspects({"a": 10.0, "b": 10.0}.get)
    suspects.failed(X, "a", 10.0)
    suspects.failed(ALIKE, "a", 10.0)
    assert X[0] in suspects
    suspects.cleared(X)
    assert X[0] in suspects
    suspects.cleared(ALIKE)
    assert X[0] not in suspects
    assert Y[0] not in suspects


def test_whoever_asks_and_however_it_is_the_same_request() -> None:
    body = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 5}
    assert mark_of(body) == mark_of({**body, "user": "u", "stream": True, "session_id": "s"})
    assert mark_of(body) != mark_of({**body, "max_tokens": 6})
    assert mark_of({"prompt": "\ud800", "x": object()})
