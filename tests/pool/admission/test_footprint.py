"""Shared prefixes are counted once, and what was added can be taken away exactly."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from pool.admission.footprint import Demand, Footprint, footprint
from pool.placement.view import Prompt


def prompt(*path: int, block: int = 16, tail: int = 0) -> Prompt:
    """A prompt whose chain's keys stand for all blocks before them."""
    chain = tuple(hash(path[: i + 1]) for i in range(len(path)))
    return Prompt(tokens=len(path) * block + tail, chain=chain, block_tokens=block)


def test_two_sessions_of_one_task_share_their_system_prompt() -> None:
    demand = Demand()
    system = tuple(range(64))
    demand.add(footprint(prompt(*system, *range(1000, 1064)), 0))
    alone = demand.tokens
    demand.add(footprint(prompt(*system, *range(2000, 2064)), 0))
    assert alone == 128 * 16
    assert alone + 64 * 16 <= demand.tokens <= alone + 64 * 16 * 1.25


def test_strangers_share_nothing() -> None:
    demand = Demand()
    demand.add(footprint(prompt(*range(100)), 50))
    demand.add(footprint(prompt(*range(500, 600)), 50))
    assert demand.tokens == 2 * (1600 + 50)


def test_prompt_without_keys_counts_whole() -> None:
    assert footprint(Prompt(tokens=777), 23).tokens == 800


paths = st.lists(st.integers(0, 2), min_size=0, max_size=60)


@settings(max_examples=80, deadline=None)
@given(st.lists(st.tuples(paths, st.integers(0, 40), st.integers(0, 500)), max_size=12), st.randoms())
def test_sum_holds_no_less_than_the_truth_and_returns_to_zero(
    sessions: list[tuple[list[int], int, int]], random: object
) -> None:
    demand = Demand()
    prints: list[Footprint] = []
    for path, tail, more in sessions:
        print_ = footprint(prompt(*path, tail=tail), more)
        before = demand.tokens
        added = demand.added_by(print_)
        demand.add(print_)
        assert demand.tokens == before + added
        prints.append(print_)
        distinct = {tuple(p[: i + 1]) for p, _, _ in sessions[: len(prints)] for i in range(len(p))}
        truth = 16 * len(distinct) + sum(t + m for _, t, m in sessions[: len(prints)])
        assert truth <= demand.tokens <= sum(p.tokens for p in prints)
    random.shuffle(prints)  # type: ignore[attr-defined]
    for print_ in prints:
        demand.remove(print_)
        assert demand.tokens >= 0
    assert demand.tokens == 0
    assert not demand._holders
