"""What is learned of a session: its growth, its tools, when it will be back; all of it bounded."""

from __future__ import annotations

import pytest

from pool.admission.sessions import GAP, GROWTH, LONG_GAP, Session, Sessions
from pool.placement.view import Ask, Prompt


def ask(session: str, tokens: int, program: str = "p") -> Ask:
    return Ask("r", "t", session, Prompt(tokens), 0.0, 1e9, program)


def begin(sessions: Sessions, name: str, tokens: int, now: float = 0.0) -> Session:
    session = sessions.arrived(ask(name, tokens), "p", now)
    session.turns += 1
    return session


def turn(sessions: Sessions, name: str, tokens: int, now: float = 0.0) -> Session:
    session = begin(sessions, name, tokens, now)
    sessions.ended_turn(session, now)
    return session


def test_growth_is_learned_of_the_session_and_lent_to_its_program() -> None:
    sessions = Sessions()
    assert sessions.ahead(turn(sessions, "a", 1_000), 1) == GROWTH
    for tokens in (1_400, 1_800, 2_200):
        turn(sessions, "a", tokens)
    assert sessions.ahead(turn(sessions, "a", 2_600), 2) == 800
    assert sessions.ahead(turn(sessions, "new", 5_000), 1) == 400


def test_compaction_and_a_turn_sent_again_are_no_news_of_growth() -> None:
    sessions = Sessions()
    turn(sessions, "a", 1_000)
    sessions.ended_turn(begin(sessions, "a", 1_500), 0.0, answered=False)
    turn(sessions, "a", 1_500)
    assert sessions.ahead(turn(sessions, "a", 300), 1) == 500


def test_answered_turn_that_is_no_longer_is_news_and_strangers_are_expected_to_be_as_usual_here() -> None:
    sessions = Sessions()
    turn(sessions, "a", 1_000)
    assert sessions.ahead(turn(sessions, "a", 1_000), 2) == 0
    for _ in range(300):
        turn(sessions, "a", 1_000)
    assert sessions.ahead(turn(sessions, "stranger", 5_000), 1) < 10


def test_return_is_expected_by_what_the_tool_usually_takes() -> None:
    sessions = Sessions()
    for start in range(0, 400, 100):
        turn(sessions, "a", 100 + start, float(start))
        sessions.acting("a", "run_tests", None, start + 1.0)
        session = begin(sessions, "a", 200 + start, start + 61.0)
        sessions.ended_turn(session, start + 61.0)
    running = sessions.acting("a", "run_tests", None, 1_000.0)
    assert running is not None
    assert sessions.left(running, 1_000.0) == 60.0
    assert sessions.left(running, 1_020.0) == 40.0
    assert sessions.left(running, 1_090.0) == 90.0  # as long again as it has taken


def test_tool_of_another_program_is_better_than_no_word_and_the_own_one_best() -> None:
    sessions = Sessions()
    for program, seconds in (("slow", 100.0), ("fast", 1.0)):
        for _ in range(3):
            session = sessions.arrived(ask(program, 10), program, 0.0)
            session.turns += 1
            sessions.ended_turn(session, 0.0)
            sessions.acting(program, "run_tests", None, 0.0)
            sessions.arrived(ask(program, 10), program, seconds)
    for program, expected in (("slow", 100.0), ("fast", 1.0)):
        sessions.ended_turn(session := sessions.arrived(ask("x" + program, 10), program, 0.0), 0.0)
        sessions.acting("x" + program, "run_tests", None, 0.0)
        assert sessions.left(session, 0.0) == expected
    stranger = sessions.arrived(ask("y", 10), "new", 0.0)
    sessions.ended_turn(stranger, 0.0)
    sessions.acting("y", "run_tests", None, 0.0)
    assert sessions.left(stranger, 0.0) in (1.0, 100.0)


def test_told_time_counts_more_than_the_learned_one() -> None:
    sessions = Sessions()
    turn(sessions, "a", 100)
    running = sessions.acting("a", "run_tests", 30.0, 0.0)
    assert running is not None
    assert sessions.left(running, 10.0) == 20.0
    assert sessions.left(running, 45.0) == 45.0


def test_nothing_known_is_a_short_gap() -> None:
    sessions = Sessions()
    assert sessions.left(turn(sessions, "a", 100), 0.0) == GAP


def test_tool_told_while_a_turn_runs_or_of_a_stranger_is_no_tool() -> None:
    sessions = Sessions()
    begin(sessions, "a", 100)
    assert sessions.acting("a", "view", None, 1.0) is None
    assert sessions.acting("stranger", "view", None, 1.0) is None


def test_failed_turn_teaches_nothing_about_the_time_between_turns() -> None:
    sessions = Sessions()
    for i in range(5):
        session = begin(sessions, "a", 100 + i, float(i))
        sessions.ended_turn(session, float(i), answered=False)
    assert len(sessions.durations) == 0


def test_old_and_too_many_sessions_are_forgotten_but_none_with_a_turn_running() -> None:
    """State without bounds: vllm-project/production-stack#687, llm-d/llm-d#2118."""
    sessions = Sessions(cap=100, ttl=3_600.0)
    begin(sessions, "running", 10)
    for i in range(1_000):
        turn(sessions, f"s{i}", 10, 1.0)
        sessions.outdated(1.0)
    assert len(sessions) <= 101
    assert sessions.get("running") is not None
    for _ in range(40):
        sessions.outdated(5_000.0)
    assert len(sessions) == 1


def answered(sessions: Sessions, name: str, called: tuple[str, ...] | None, now: float) -> Session:
    session = begin(sessions, name, 100, now)
    sessions.ended_turn(session, now, called)
    return session


def back(sessions: Sessions, name: str, now: float) -> None:
    """Its next turn is asked for."""
    sessions.arrived(ask(name, 100), "p", now)


def test_tool_that_an_answer_calls_is_what_its_session_does_next() -> None:
    sessions = Sessions()
    for start in (0.0, 100.0, 200.0):
        answered(sessions, "a", ("run_tests",), start)
        answered(sessions, "a", ("view",), start + 60.0)
        back(sessions, "a", start + 61.0)
    running = answered(sessions, "b", ("view",), 400.0)
    assert sessions.left(running, 400.0) == 1.0
    running = answered(sessions, "c", ("view", "run_tests", "unknown"), 400.0)
    assert sessions.left(running, 400.0) == 60.0  # the slowest of them is waited for


def test_word_of_the_agent_overrides_what_its_answer_told_and_teaches_nothing_of_that() -> None:
    sessions = Sessions()
    for start in range(0, 500, 100):
        answered(sessions, "a", ("run_tests",), float(start))
        sessions.acting("a", "view", None, float(start))
        back(sessions, "a", start + 2.0)
    for name, left in (("view", 2.0), ("run_tests", 2.0)):  # the latter by what is usual for all
        running = answered(sessions, name, (name,), 600.0)
        assert sessions.left(running, 600.0) == left
    assert sessions.durations.left("tool view") == 2.0
    assert sessions.durations.left("tool run_tests") is None


def test_answer_that_calls_nothing_is_taken_for_the_last_until_others_were_followed() -> None:
    sessions = Sessions()
    quiet = answered(sessions, "a", (), 0.0)
    assert sessions.left(quiet, 0.0) == LONG_GAP
    assert sessions.worth(quiet, 0.0, 12.0, 300.0) == 0.0
    for i in range(20):
        answered(sessions, f"s{i}", (), float(i))
        back(sessions, f"s{i}", i + 0.5)
    quiet = answered(sessions, "b", (), 30.0)
    assert sessions.left(quiet, 30.0) == 0.5
    assert sessions.worth(quiet, 30.0, 12.0, 300.0) > 0.5


def test_gaps_of_all_sessions_stand_for_a_stranger_that_tells_nothing() -> None:
    """At the gateway each session is a program of its own, so nothing is known of it when it begins."""
    sessions = Sessions()
    for i in range(60):
        answered(sessions, f"s{i}", None, float(i))
        if i % 2:
            back(sessions, f"s{i}", i + 0.2)
    stranger = sessions.arrived(ask("new", 10), "new", 100.0)
    sessions.ended_turn(stranger, 100.0)
    assert sessions.left(stranger, 100.0) == pytest.approx(0.2)
    assert 0.2 < sessions.worth(stranger, 100.0, 12.0, 300.0) < 3.0


def test_no_absence_of_a_session_that_is_over_is_followed() -> None:
    sessions = Sessions(ttl=10.0)
    for i in range(50):
        turn(sessions, f"s{i}", 100, float(i))
        sessions.end(f"s{i}")
    turn(sessions, "last", 100, 5_000.0)
    assert sessions.following == 1
    assert sessions.worth(answered(sessions, "next", None, 5_000.0), 5_000.0, 12.0, 300.0) > 8.0


def test_session_with_another_turn_running_is_not_away() -> None:
    sessions = Sessions()
    session = begin(sessions, "a", 100)
    begin(sessions, "a", 100)
    sessions.ended_turn(session, 1.0)
    assert session.away is None
    sessions.ended_turn(session, 2.0)
    assert session.away is not None


def test_name_of_a_tool_without_end_is_cut() -> None:
    assert len(answered(Sessions(), "a", ("x" * 1_000_000,), 0.0).doing) < 200
