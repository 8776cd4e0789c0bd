"""The policy climbs on evidence, prices a move in seconds, never flaps, and lowers a session never in silence."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pool.config import AutoConfig
from pool.tiers.policy import Evidence, Move, Rung, Standing, decide

RULES = AutoConfig()
SMALL, LARGE, HUGE = Rung("small", 8000), Rung("large", 8000), Rung("huge", 64000)


def moved(evidence: Evidence, standing: Standing, *rungs: Rung, **rules: Any) -> Move:
    return decide(evidence, standing, rungs or (SMALL, LARGE, HUGE), AutoConfig(**rules))


def at(tier: str, answers: int = 9, falls: int = 0) -> Standing:
    return Standing(tier, answers, falls)


def test_a_session_begins_on_the_weakest_tier() -> None:
    move = moved(Evidence(tokens=100), Standing())
    assert (move.kind, move.tier) == ("start", "small")
    assert "weakest" in move.why


def test_a_session_begins_where_somebody_is_up_and_its_prompt_fits() -> None:
    asleep = dataclasses.replace(SMALL, up=False)
    assert moved(Evidence(tokens=100), Standing(), asleep, LARGE).tier == "large"
    assert moved(Evidence(tokens=9000), Standing()).tier == "huge"


def test_a_prompt_too_long_for_all_begins_on_the_longest_and_says_so() -> None:
    move = moved(Evidence(tokens=90_000), Standing())
    assert (move.tier, move.fits) == ("huge", False)


@pytest.mark.parametrize(
    "evidence",
    [
        Evidence(bad=RULES.bad_answers),
        Evidence(rounds=RULES.repeats),
        Evidence(failed_checks=RULES.failed_checks),
        Evidence(unsure=RULES.unsure_answers),
    ],
    ids=["unusable answers", "circles", "failed checks", "unsure answers"],
)
def test_each_sign_alone_climbs_one_tier_with_its_reason(evidence: Evidence) -> None:
    move = moved(evidence, at("small"))
    assert (move.kind, move.tier) == ("climb", "large")
    assert any(word in move.why for word in ("could not be used", "rounds", "failed checks", "unsure"))


def test_less_than_enough_of_every_sign_climbs_nowhere() -> None:
    nearly = Evidence(bad=1, rounds=2, failed_checks=1, unsure=1)
    assert moved(nearly, at("small")).kind == "stay"


def test_nothing_climbs_past_the_top_and_the_reason_is_kept() -> None:
    move = moved(Evidence(rounds=9), at("huge"))
    assert move.kind == "stay"
    assert "no tier above" in move.why


def test_trouble_just_after_a_move_waits_until_the_new_tier_had_its_say() -> None:
    assert moved(Evidence(failed_checks=5), at("small", answers=1)).kind == "stay"
    assert moved(Evidence(failed_checks=5), at("small", answers=2)).kind == "climb"


def test_a_dear_climb_needs_two_signs_or_a_strong_one() -> None:
    dear = dataclasses.replace(LARGE, price=RULES.dear + 1)
    weak = moved(Evidence(bad=2), at("small"), SMALL, dear)
    assert weak.kind == "stay"
    assert "31 s of re-prefill" in weak.why
    assert moved(Evidence(bad=2, failed_checks=2), at("small"), SMALL, dear).kind == "climb"
    assert moved(Evidence(bad=4), at("small"), SMALL, dear).kind == "climb"


def test_a_climb_whose_first_token_would_come_after_the_deadline_is_not_made() -> None:
    dear = dataclasses.replace(LARGE, price=12.0)
    move = moved(Evidence(bad=8, rounds=8, time_left=10.0), at("small"), SMALL, dear)
    assert move.kind == "stay"
    assert "there is no time" in move.why


def test_the_price_of_a_climb_is_told() -> None:
    assert "2.5 s" in moved(Evidence(bad=2), at("small"), SMALL, dataclasses.replace(LARGE, price=2.5)).why


def test_an_overflow_goes_to_the_nearest_longer_window_at_once() -> None:
    """SWE-agent/mini-swe-agent#721: an overflow ended the whole run."""
    move = moved(Evidence(tokens=9000), at("small", answers=0))
    assert (move.kind, move.tier) == ("climb", "huge")
    assert "do not fit small" in move.why


def test_an_overflow_never_goes_down_even_where_a_weaker_tier_is_longer() -> None:
    long_but_weak = Rung("weak", 500_000)
    move = moved(Evidence(tokens=90_000), at("huge"), long_but_weak, HUGE)
    assert (move.kind, move.tier, move.fits) == ("stay", "huge", False)


def test_a_refusal_outweighs_the_window_that_a_server_claims() -> None:
    claimed = dataclasses.replace(SMALL, too_long=True)
    assert moved(Evidence(tokens=10), at("small"), claimed, LARGE).tier == "large"


def test_a_tier_without_anybody_up_is_left_upwards_only() -> None:
    gone = dataclasses.replace(LARGE, up=False)
    assert moved(Evidence(), at("large"), SMALL, gone, HUGE).tier == "huge"
    alone = moved(Evidence(), at("large"), SMALL, gone)
    assert (alone.kind, alone.tier) == ("stay", "large")


def test_calm_steps_down_one_tier_and_says_so() -> None:
    move = moved(Evidence(calm=RULES.calm), at("huge"))
    assert (move.kind, move.tier) == ("descend", "large")
    assert f"{RULES.calm} good answers" in move.why


def test_calm_on_the_weakest_tier_goes_nowhere() -> None:
    assert moved(Evidence(calm=99), at("small")).kind == "stay"


def test_each_climb_back_doubles_the_calm_that_a_step_down_needs() -> None:
    for falls in range(4):
        enough = RULES.calm * 2**falls
        assert moved(Evidence(calm=enough - 1), at("large", answers=99, falls=falls)).kind == "stay"
        assert moved(Evidence(calm=enough), at("large", answers=99, falls=falls)).kind == "descend"


def test_no_step_down_into_a_window_that_the_next_turns_would_outgrow() -> None:
    assert moved(Evidence(calm=99, tokens=7000), at("large")).kind == "stay"
    assert moved(Evidence(calm=99, tokens=6000), at("large")).kind == "descend"


def test_no_step_down_whose_prefill_costs_more_than_the_calm_has_lasted() -> None:
    dear = dataclasses.replace(SMALL, price=100.0)
    assert moved(Evidence(calm=6, seconds=2.0), at("large"), dear, LARGE).kind == "stay"
    assert moved(Evidence(calm=60, seconds=2.0), at("large"), dear, LARGE).kind == "descend"


def test_a_step_down_where_only_the_weaker_tier_can_still_make_the_deadline() -> None:
    slow, quick = dataclasses.replace(LARGE, price=40.0), dataclasses.replace(SMALL, price=1.0)
    move = moved(Evidence(time_left=20.0), at("large"), quick, slow)
    assert (move.kind, move.tier) == ("descend", "small")
    assert "past the deadline" in move.why
    assert moved(Evidence(time_left=60.0), at("large"), quick, slow).kind == "stay"


windows = st.none() | st.integers(100, 100_000)
prices = st.none() | st.floats(0, 1000)
rungs = st.lists(
    st.builds(Rung, st.just(""), windows, st.booleans(), prices, st.booleans()), min_size=1, max_size=5
).map(lambda found: tuple(dataclasses.replace(rung, tier=f"t{number}") for number, rung in enumerate(found)))
evidences = st.builds(
    Evidence,
    bad=st.integers(0, 9),
    rounds=st.integers(0, 9),
    unsure=st.integers(0, 9),
    failed_checks=st.integers(0, 9),
    calm=st.integers(0, 99),
    tokens=st.integers(0, 200_000),
    room=st.integers(0, 1024),
    seconds=st.none() | st.floats(0, 100),
    time_left=st.floats(0.1, 1000),
)


@given(evidences, rungs, st.data())
def test_a_move_is_what_it_says_and_only_two_reasons_lower_a_session(
    evidence: Evidence, ladder: tuple[Rung, ...], data: st.DataObject
) -> None:
    here = data.draw(st.integers(0, len(ladder) - 1))
    standing = Standing(f"t{here}", data.draw(st.integers(0, 20)), data.draw(st.integers(0, 8)))
    move = decide(evidence, standing, ladder, RULES)
    there = [rung.tier for rung in ladder].index(move.tier)
    target = ladder[there]
    assert move.why
    assert {"stay": there == here, "climb": there > here, "descend": there == here - 1}[move.kind]
    if move.kind != "stay":
        assert target.up
        assert target.fits(evidence)
    if move.kind == "descend":
        calm = evidence.calm >= RULES.calm * 2**standing.falls
        assert calm or "past the deadline" in move.why


@given(evidences, rungs)
def test_a_session_always_begins_somewhere(evidence: Evidence, ladder: tuple[Rung, ...]) -> None:
    move = decide(evidence, Standing(), ladder, RULES)
    assert move.kind == "start"
    assert move.tier in {rung.tier for rung in ladder}
