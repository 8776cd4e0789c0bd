"""What needs others: it waits, it starts, it ends with the reason; and a ring of needs is found."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarm.scheduling.needs import GOOD, Need, cycle, standing
from swarm.types import TaskState

S = TaskState


@settings(max_examples=60)
@given(st.lists(st.builds(Need, task=st.sampled_from("abcdef"), state=st.sampled_from(list(S)), pending=st.booleans())))
def test_it_starts_only_when_all_are_done_and_ends_only_for_one_that_never_will_be(needs: list[Need]) -> None:
    found = standing(needs)
    assert (found.waiting == 0) == all(need.state in GOOD for need in needs)
    lost = [need for need in needs if need.state.final and need.state not in GOOD and not need.pending]
    assert bool(found.bad) == bool(lost)


def test_the_reason_names_the_task_its_end_and_the_mend() -> None:
    found = standing([Need("t1", S.GAVE_UP)])
    assert found.bad == "it needs task t1, which ended as gave_up; put that right first: swarm retry t1"


def test_what_the_broker_may_yet_deliver_is_waited_for() -> None:
    found = standing([Need("t1", S.NEEDS_PERSON, pending=True)])
    assert (found.waiting, found.bad) == (1, "")


@pytest.mark.parametrize(
    ("needs", "ring"),
    [
        ({}, ()),
        ({"a": ["b"], "b": ["c"], "c": []}, ()),
        ({"a": ["a"]}, ("a", "a")),
        ({"a": ["b"], "b": ["c"], "c": ["b"]}, ("b", "c", "b")),
        ({"a": ["b", "c"], "b": ["d"], "c": ["d"], "d": []}, ()),
    ],
)
def test_a_ring_is_found_and_nothing_else(needs: dict[str, list[str]], ring: tuple[str, ...]) -> None:
    assert cycle(needs) == ring


@settings(max_examples=60)
@given(st.dictionaries(st.integers(0, 7).map(str), st.lists(st.integers(0, 7).map(str), max_size=3), max_size=8))
def test_what_is_called_a_ring_is_one(needs: dict[str, list[str]]) -> None:
    ring = cycle(needs)
    assert all(after in needs[before] for before, after in pairwise(ring))
    assert not ring or ring[0] == ring[-1]


def test_a_chain_of_thousands_is_no_matter() -> None:
    chain = {str(number): [str(number + 1)] for number in range(20_000)}
    assert cycle(chain) == ()
