"""Turns among lanes: nobody starves, priority counts, and whoever was away has saved nothing up."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from swarm.scheduling.facts import Candidate
from swarm.scheduling.turns import Turns, after, next_of


def head(user: str, repository: str = "web", *, rank: float = 0.0, priority: int = 50) -> Candidate:
    return Candidate(f"{user}-{repository}-{rank}", repository, user, "small", rank=rank, priority=priority)


def served(heads: list[Candidate], rounds: int, turns: Turns | None = None) -> list[Candidate]:
    """Who starts, one after the other, when every lane has more of the same."""
    turns = turns or Turns({})
    known: dict[str, float] = dict(turns.taken)
    found = []
    for _ in range(rounds):
        chosen = next_of(heads, turns)
        assert chosen is not None
        moved = after(heads, chosen, turns)
        known |= moved.taken
        turns = Turns(known, moved.floors)
        found.append(chosen)
    return found


def test_nothing_waits_and_nothing_is_next() -> None:
    assert next_of([], Turns({})) is None


def test_a_thousand_tasks_of_one_user_leave_every_other_turn_to_the_other() -> None:
    old, new = head("ann", "a", rank=0.0), head("bob", "b", rank=1e9)
    count = Counter(one.user for one in served([old, new], 20))
    assert count == {"ann": 10, "bob": 10}


def test_many_repositories_of_one_user_starve_nobody() -> None:
    lanes = [head("ann", f"r{number}") for number in range(30)] + [head("bob", "own")]
    assert Counter(one.user for one in served(lanes, 60))["bob"] >= 15


def test_of_equal_turns_the_smaller_rank_is_next() -> None:
    assert next_of([head("ann", rank=5.0), head("bob", rank=4.0)], Turns({})) == head("bob", rank=4.0)


def test_ten_points_of_priority_are_worth_a_turn_and_no_more() -> None:
    urgent, plain = head("ann", "a", priority=70), head("bob", "b", priority=50)
    first = [one.user for one in served([urgent, plain], 4)]
    assert first[:2] == ["ann", "bob"] or first[:2] == ["ann", "ann"]
    assert "bob" in first


def test_who_was_away_saved_no_turns_up() -> None:
    busy = Turns({"user:ann": 500.0, "pair:ann\na": 500.0}, {"user": 500.0})
    count = Counter(one.user for one in served([head("ann", "a"), head("new", "b")], 10, busy))
    assert count["ann"] >= 4


def test_a_lane_is_served_whose_user_and_whose_repository_are_both_busy_with_others() -> None:
    others = [("a", "x"), ("a", "z"), ("b", "y"), ("c", "y")]
    heads = [head(*lane) for lane in [*others, ("a", "y")]]
    count = Counter(one.task for one in served(heads, 90))
    assert count["a-y-0.0"] == 10


def test_a_repository_that_was_away_saved_no_turns_up_among_those_of_its_user() -> None:
    busy = Turns({"user:ann": 500.0, "pair:ann\na": 500.0}, {"user": 500.0, "pair:ann": 500.0})
    count = Counter(one.repository for one in served([head("ann", "a"), head("ann", "new")], 10, busy))
    assert count["a"] >= 4


@settings(max_examples=40)
@given(
    st.lists(
        st.tuples(st.sampled_from("abcd"), st.sampled_from("xyz"), st.integers(0, 100)),
        min_size=1,
        max_size=8,
        unique_by=lambda t: t[:2],
    )
)
def test_every_lane_is_served_before_long(lanes: list[tuple[str, str, int]]) -> None:
    heads = [head(user, repository, priority=priority) for user, repository, priority in lanes]
    assert {one.task for one in served(heads, 40 * len(heads))} == {one.task for one in heads}
