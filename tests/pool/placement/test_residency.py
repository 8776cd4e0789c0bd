"""What endpoints hold is found as a naive list of prefixes would find it, within its cap, the tail evicted first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pool.placement.residency import Residency
from tests.pool.placement.world import chain

NAMES = ("a", "b")
WORDS = st.text(alphabet="xyz", max_size=7)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["insert", "insert", "insert", "cut", "clear"]),
        st.sampled_from(NAMES),
        WORDS,
        st.integers(0, 7),
    ),
    max_size=40,
)


@given(STEPS, WORDS)
def test_depths_are_those_of_a_naive_set_of_prefixes(steps: list[tuple[str, str, str, int]], looked: str) -> None:
    residency, held = Residency(10**9), {name: set[str]() for name in NAMES}
    for now, (what, name, word, keep) in enumerate(steps):
        if what == "insert":
            before = longest(held[name], word)
            assert residency.insert(name, chain(*word), 1, float(now))[0] == before
            held[name] |= {word[: i + 1] for i in range(len(word))}
        elif what == "cut":
            residency.cut(name, chain(*word), keep)
            if keep < len(word):
                held[name] = {p for p in held[name] if len(p) <= keep or p[: keep + 1] != word[: keep + 1]}
        else:
            residency.clear(name)
            held[name] = set()
        assert residency.tokens(name) == len(held[name])
    wanted = {name: depth for name in NAMES if (depth := longest(held[name], looked))}
    assert residency.depths(chain(*looked)) == wanted


def longest(held: set[str], word: str) -> int:
    return max((i + 1 for i in range(len(word)) if word[: i + 1] in held), default=0)


@given(st.lists(st.tuples(st.sampled_from(NAMES), WORDS), max_size=60), st.integers(1, 12))
def test_no_endpoint_is_believed_to_hold_more_than_fits(turns: list[tuple[str, str]], cap: int) -> None:
    residency = Residency(cap)
    for now, (name, word) in enumerate(turns):
        residency.insert(name, chain(*word), 1, float(now))
        assert residency.tokens(name) <= cap
        assert residency.depths(chain(*word)).get(name, 0) == min(len(word), cap)
    assert residency.nodes() <= 2 * cap * len(NAMES)


def test_longest_unused_goes_first_and_of_that_the_tail() -> None:
    residency = Residency(10)
    residency.insert("a", chain(*"oooooo"), 1, 1.0)
    residency.insert("a", chain(*"nnnn"), 1, 2.0)
    residency.insert("a", chain(*"nnnnNN"), 1, 3.0)
    assert residency.depths(chain(*"oooooo")) == {"a": 4}
    assert residency.depths(chain(*"nnnnNN")) == {"a": 6}


def test_shared_prefix_outlives_the_sessions_that_used_it_longer_ago() -> None:
    residency = Residency(12)
    for now, session in enumerate("abcdef"):
        residency.insert("e", chain("sys", "tem", session, session), 1, float(now))
    assert residency.depths(chain("sys", "tem")) == {"e": 2}
    assert residency.depths(chain("sys", "tem", "a", "a")) == {"e": 2}
    assert residency.depths(chain("sys", "tem", "f", "f")) == {"e": 4}


def test_sizes_of_endpoints_differ_and_may_change() -> None:
    residency = Residency(100)
    residency.resize("small", 4)
    for name in ("small", "large"):
        residency.insert(name, chain(*"abcdefgh"), 1, 1.0)
    assert residency.depths(chain(*"abcdefgh")) == {"small": 4, "large": 8}
    residency.resize("large", 2)
    assert residency.depths(chain(*"abcdefgh")) == {"small": 4, "large": 2}


def test_cap_is_in_tokens_whatever_a_block_is() -> None:
    residency = Residency(64)
    residency.insert("a", chain(*"abcdefgh"), 16, 1.0)
    assert (residency.depths(chain(*"abcdefgh")), residency.tokens("a")) == ({"a": 4}, 64)


def test_forgetting_a_tail_takes_what_continues_it_along() -> None:
    residency = Residency(100)
    residency.insert("a", chain(*"abcdef"), 1, 1.0)
    residency.insert("a", chain(*"abcxyz"), 1, 2.0)
    residency.cut("a", chain(*"abcdef"), 2)
    assert residency.depths(chain(*"abcxyz")) == {"a": 2}


def test_forgetting_only_ones_own_spares_what_others_continue() -> None:
    residency = Residency(100)
    residency.insert("a", chain(*"abcdef"), 1, 1.0)
    residency.insert("a", chain(*"abcxyz"), 1, 2.0)
    residency.cut("a", chain(*"abcdef"), 0, shared=False)
    assert residency.depths(chain(*"abcxyz")) == {"a": 6}
    assert residency.depths(chain(*"abcdef")) == {"a": 3}


def test_what_is_older_than_a_time_can_be_forgotten_at_once() -> None:
    residency = Residency(100)
    for now, word in enumerate(("old1", "old2", "new1", "new2")):
        residency.insert("a", chain(*word), 1, float(now))
    residency.insert("a", chain(*"old1"), 1, 9.0)
    residency.drop_older("a", 1.0)
    found = {word for word in ("old1", "old2", "new1", "new2") if residency.depths(chain(*word)).get("a") == 4}
    assert found == {"old1", "new1", "new2"}


@pytest.mark.parametrize("end", [Residency.clear, Residency.remove])
def test_nothing_is_left_of_an_endpoint_that_went_away(end: Callable[[Residency, str], Any]) -> None:
    residency = Residency(100)
    for word in ("abc", "abd", "xyz"):
        residency.insert("a", chain(*word), 1, 1.0)
    end(residency, "a")
    assert (residency.nodes(), residency.tokens("a"), residency.depths(chain(*"abc"))) == (0, 0, {})


def test_order_of_eviction_takes_no_more_memory_the_longer_it_runs() -> None:
    residency = Residency(1000)
    for now in range(3000):
        word = chain("s", now % 7, *range(now % 5))
        residency.insert("a", word, 1, float(now))
        residency.cut("a", word, 1)
    assert len(residency._shelves["a"].queue) < 200


def test_room_tells_what_fits_and_how_long_the_next_to_go_was_unused() -> None:
    residency = Residency(10)
    assert residency.room("a") == (10, 0.0)
    residency.insert("a", chain(*"abc"), 1, 1.0)
    residency.insert("a", chain(*"xyz"), 1, 2.0)
    assert residency.room("a") == (4, 1.0)
    residency.insert("a", chain(*"abc"), 1, 3.0)
    assert residency.room("a") == (4, 2.0)
