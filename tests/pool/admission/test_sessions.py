"""What is learned of a session: its growth, its tools, when it will be back; all of it bounded."""

from __future__ import annotations

from pool.admission.sessions import GAP, GROWTH, Session, Sessions
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
