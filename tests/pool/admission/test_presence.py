"""How long a place is kept for a session that is away, by what was told and what its answers showed."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from pool.admission.presence import Presence
from pool.config import AdmissionConfig
from pool.placement.view import Ask, Decision, Prompt, Site
from pool.types import Usage

SITE = Site("e", "t", "up", 8, kv_tokens=12_000)  # prefilled whole in 12 s
WENT = Decision("r", "a", "e", "")
SECOND = 1_000  # tokens of prefill


@dataclass(frozen=True)
class Done:
    """A turn that had a place."""

    ask: Ask
    called: tuple[str, ...] | None = None
    decision: Decision = WENT


class Agents:
    """Sessions that have turns on one endpoint; each is a program of its own, as at the gateway."""

    def __init__(self) -> None:
        self.now = 0.0
        self.presence = Presence(AdmissionConfig(), lambda _, tokens: tokens / SECOND)

    def turn(self, name: str, called: tuple[str, ...] | None = None) -> None:
        ask = Ask("r", "t", name, Prompt(100), self.now, 1e9, name)
        session, need = self.presence.arrived(ask, name, self.now)
        self.presence.began(session, need, "t", SITE)
        self.presence.ended(session, Done(ask, called), Usage(prompt_tokens=100, completion_tokens=10), self.now)

    def held(self) -> int:
        """How many have a place now."""
        told = self.presence.live(self.now)
        return told["e"].sessions if told else 0

    def seconds_held(self, name: str, called: tuple[str, ...] | None = None) -> float:
        """How long a place is kept for one more session, whose next turn never comes."""
        self.now += 1_000.0
        before, start = self.held(), self.now
        self.turn(name, called)
        while self.held() > before:
            self.now += 0.1
        return self.now - start


def test_stranger_is_held_for_about_the_time_in_which_the_cache_is_prefilled() -> None:
    assert Agents().seconds_held("a") == pytest.approx(12.0, abs=5.0)


@pytest.mark.parametrize("called", [None, ("shell",)])
def test_sessions_that_end_without_a_word_are_not_held_as_long_as_those_that_go_on(
    called: tuple[str, ...] | None,
) -> None:
    """Nobody at the gateway tells that a session is over: after some of them, a short silence is the end."""
    agents = Agents()
    for number in range(60):
        for _ in range(4):
            agents.turn(f"s{number}", called)
            agents.now += 0.3
    assert 0.3 < agents.seconds_held("next", called) < 4.0


def test_answer_that_calls_none_of_the_tools_that_it_was_offered_frees_its_place_at_once() -> None:
    agents = Agents()
    agents.turn("a", ())
    assert agents.held() == 0
    agents.turn("b", ("shell",))
    assert agents.held() == 1


def test_place_of_an_agent_that_goes_on_after_such_answers_is_kept_once_that_was_seen() -> None:
    """mini-swe-agent speaks its tools as text, whatever its requests offer."""
    agents = Agents()
    for number in range(5):
        for _ in range(10):
            agents.turn(f"s{number}", ())
            agents.now += 0.3
    agents.turn("next", ())
    agents.now += 0.2
    assert agents.held() == 1


def test_tool_that_was_seen_to_take_long_frees_the_place_and_a_quick_one_keeps_it() -> None:
    agents = Agents()
    for number in range(20):
        agents.turn(f"s{number}", ("build",))
        agents.now += 90.0
        agents.turn(f"s{number}", ("shell",))
        agents.now += 0.3
        agents.turn(f"s{number}", ("build",))
        agents.now += 90.0
        agents.presence.end(f"s{number}")
    assert agents.seconds_held("slow", ("build",)) < 1.0
    assert agents.seconds_held("quick", ("shell",)) > 0.3


def test_word_of_the_agent_counts_more_than_what_its_answer_showed() -> None:
    agents = Agents()
    agents.turn("a", ("shell",))
    assert agents.presence.acting("a", "build", 240.0, agents.now)
    assert agents.held() == 0


def test_place_beside_a_turn_of_the_same_session_elsewhere_is_held_no_longer_than_others() -> None:
    agents = Agents()
    agents.turn("a")
    ask = Ask("r2", "other", "a", Prompt(100), 0.0, 1e9, "a")
    session, need = agents.presence.arrived(ask, "a", 0.0)
    agents.presence.began(session, need, "other", Site("f", "other", "up", 8))
    agents.turn("a")
    agents.now += 20.0
    assert agents.held() == 0
