"""`auto` takes what did well in this repository, tries the loser now and then, and decides the same for one attempt."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pool.testing import call
from swarm.strategies.auto import Auto, others_than
from swarm.strategies.choice import strategy_named
from swarm.strategies.learning import HALF_LIFE, decide, recorded
from swarm.types import Conclusion, Experience
from swarm.work import Work

RULE = ("agent",)
OTHERS = ("review", "best-of-3", "mutation_repair")


def seen(
    way: str, solved: int, of: int, tokens: int = 10_000, at: float = 0.0, tier: str = "small"
) -> list[Experience]:
    return [Experience(strategy=way, tier=tier, solved=n < solved, tokens=tokens, at=at) for n in range(of)]


def picks(outcomes: list[Experience], now: float = 0.0, rule: tuple[str, ...] = RULE) -> Counter[str]:
    """What 400 attempts take."""
    made = (decide(rule, OTHERS, outcomes, now=now, seed=f"t-{n}", tier="small") for n in range(400))
    return Counter(one.names[0] for one in made)


def test_with_nothing_known_the_rule_stands() -> None:
    made = decide(("sampled_repair", "agent"), OTHERS, [], now=0.0, seed="a", tier="small")
    assert (made.names, made.learnt) == (("sampled_repair", "agent"), False)
    assert picks(seen("review", 2, 2)) == {"agent": 400}


def test_the_way_that_solves_more_for_its_tokens_is_taken() -> None:
    found = picks([*seen("review", 9, 10), *seen("agent", 1, 10)])
    assert found["review"] > 320


def test_the_loser_is_tried_again_now_and_then() -> None:
    found = picks([*seen("review", 9, 10), *seen("agent", 1, 10)])
    assert 0 < found["agent"] < 80


def test_a_way_that_was_never_tried_is_tried_seldom() -> None:
    found = picks([*seen("agent", 9, 10)])
    assert 0 < sum(found[name] for name in OTHERS) < 60


def test_of_equals_the_cheaper_is_taken() -> None:
    found = picks([*seen("review", 8, 10, tokens=60_000), *seen("agent", 8, 10, tokens=10_000)])
    assert found["agent"] > 320


def test_a_way_that_solves_nothing_is_no_choice_for_being_cheap() -> None:
    found = picks([*seen("review", 0, 50, tokens=0), *seen("agent", 8, 10, tokens=200_000)])
    assert 0 < found["review"] < 20
    found = picks([*seen("review", 8, 10, tokens=200_000), *seen("agent", 0, 50, tokens=0)])
    assert 0 < found["agent"] < 20


def test_a_cheap_way_that_solves_some_is_tried_before_a_dear_one() -> None:
    found = picks([*seen("review", 10, 50, tokens=1_000), *seen("agent", 8, 10, tokens=200_000)])
    assert found["review"] > 320


def test_where_no_way_solves_anything_none_is_left_out() -> None:
    found = picks([*seen("review", 0, 50, tokens=0), *seen("agent", 0, 50, tokens=0)])
    assert min(found["review"], found["agent"]) > 80


def test_what_is_long_ago_counts_for_less() -> None:
    old = [*seen("review", 10, 10), *seen("agent", 0, 10)]
    fresh = seen("agent", 10, 10, at=20 * HALF_LIFE)
    assert picks([*old, *fresh], now=20 * HALF_LIFE)["agent"] > 320


def test_what_cannot_work_here_is_never_taken() -> None:
    outcomes = [*seen("cli:aider", 10, 10), *seen("cascade", 10, 10), *seen("agent", 1, 10)]
    assert set(picks(outcomes)) <= {"agent", *OTHERS}


def test_outcomes_of_another_tier_count_for_half() -> None:
    known = recorded([*seen("agent", 2, 2), *seen("agent", 0, 2, tier="large")], now=0.0, tier="small")
    assert (known["agent"].tried, known["agent"].solved) == (3.0, 2.0)


def test_the_rule_follows_where_what_was_taken_gives_up() -> None:
    outcomes = [*seen("mutation_repair", 10, 10, tokens=0), *seen("agent", 1, 10)]
    made = decide(RULE, OTHERS, outcomes, now=0.0, seed="b", tier="small")
    assert made.names == ("mutation_repair", "agent")
    assert "mutation_repair solved 10 of 10 at 0 tokens each" in made.why


ways = st.sampled_from(["agent", "review", "best-of-3", "cli:aider", "gone"])
outcome = st.builds(
    Experience,
    strategy=ways,
    tier=st.sampled_from(["small", "large"]),
    solved=st.booleans(),
    tokens=st.integers(0, 10**9),
    at=st.floats(0, 10**9),
)


@given(st.lists(outcome, max_size=30), st.floats(0, 2 * 10**9), st.text(max_size=8))
def test_one_attempt_decides_the_same_again(outcomes: list[Experience], now: float, seed: str) -> None:
    first, second = (decide(RULE, OTHERS, outcomes, now=now, seed=seed, tier="small") for _ in range(2))
    assert first == second
    assert first.names[-1] == "agent"
    assert set(first.names) <= {"agent", *OTHERS}


@pytest.mark.parametrize(
    ("small", "testable", "tiers", "absent"),
    [
        (True, True, 2, {"review", "agent", "cascade", "best-of-3"}),
        (True, False, 2, {"mutation_repair", "review"}),
        (False, False, 2, {"mutation_repair", "sampled_repair"}),
        (False, True, 1, {"cascade", "plan", "draft-verify"}),
    ],
)
def test_ways_that_cannot_work_are_no_choice(small: bool, testable: bool, tiers: int, absent: set[str]) -> None:
    assert not absent & set(others_than(("x",), small=small, testable=testable, tiers=tiers))


class Named:
    def __init__(self, name: str, took: list[str]) -> None:
        self.name = name
        self.took = took

    async def work(self, work: Work) -> Conclusion:
        self.took.append(self.name)
        return Conclusion(ending="finished")


async def test_the_choice_is_journaled_with_its_reasons_and_kept_over_a_crash(desk) -> None:
    took: list[str] = []
    auto = Auto(frozenset(), lambda name: Named(name, took))
    at = await desk({}, [], test_command="true")
    outcomes = (*seen("review", 30, 30), *seen("agent", 0, 30))
    done = await auto.work(replace(at.work, attempt="t1.2", outcomes=outcomes))
    (note,) = [note for note in at.kinds("note") if note.get("about") == "strategy"]
    assert note["names"] == ["review", "agent"]
    assert "review solved 30 of 30" in note["text"]
    assert done.strategy == "review"
    past = tuple(line.model_copy(update={"attempt": "t1.2"}) for line in at.steps[:1])
    await auto.work(replace(at.work, attempt="t1.2", past=past))  # whatever is known by now
    assert took == ["review", "review"]


async def test_a_small_tier_never_steers_itself_whatever_was_learnt(desk) -> None:
    took: list[str] = []
    auto = Auto(frozenset({"small"}), lambda name: Named(name, took))
    for number in range(20):
        at = await desk({}, [], test_command="true")
        outcomes = (*seen("agent", 30, 30), *seen("sampled_repair", 1, 30))
        await auto.work(replace(at.work, attempt=f"t1.{number}", outcomes=outcomes))
    assert set(took) <= {"sampled_repair", "mutation_repair"}


async def test_auto_with_nothing_learnt_is_the_plain_agent(desk) -> None:
    script: Any = [call("finish", title="t"), call("finish", title="t")]
    at = await desk({"m.py": "x = 1\n"}, script)
    done = await strategy_named("auto").work(at.work)
    assert (done.ending, done.strategy) == ("no_change", "agent")
    assert "part" not in at.kinds("model_call")[0]
