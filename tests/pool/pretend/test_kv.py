"""The pretend KV cache reuses, evicts and counts as vLLM's block pool does."""

from __future__ import annotations

import random

from pool.pretend.kv import BlockCache, Cleared, Removed, Stored, Table, chain


def held(cache: BlockCache, keys: list[int], blocks: int, owner: str = "a") -> Table:
    table = Table(owner)
    found = keys[: cache.hits(keys)]
    cache.reuse(table, found)
    assert cache.grow(table, blocks)
    cache.name(table, keys)
    return table


def test_key_stands_for_its_block_and_all_before_it() -> None:
    one, other = chain(b"aaaabbbbcccc", 4), chain(b"aaaaXbbbcccc", 4)
    assert len(one) == 3
    assert one[0] == other[0]
    assert one[1] != other[1]
    assert one[2] != other[2]
    assert chain(b"aaaabbbbccc", 4) == one[:2]
    assert chain(b"aaaabbbb", 4, salt="x") != one[:2]


def test_released_prefix_is_found_until_its_blocks_are_taken_tail_first() -> None:
    cache = BlockCache(4)
    first = held(cache, [1, 2, 3], 3)
    cache.release(first)
    assert (cache.free, cache.hits([1, 2, 3])) == (4, 3)
    held(cache, [9, 8], 2, "b")  # takes the empty block and then the tail
    assert cache.hits([1, 2, 3]) == 2
    assert Removed((3,)) in cache.events


def test_held_blocks_are_never_taken() -> None:
    cache = BlockCache(3)
    first = held(cache, [1, 2], 2)
    assert not cache.grow(Table("b"), 2)
    assert cache.hits([1, 2]) == 2
    cache.release(first)
    assert cache.grow(Table("b"), 3)
    assert cache.cached == 0


def test_least_recently_used_prefix_goes_first() -> None:
    cache = BlockCache(4)
    for keys in ([1, 2], [3, 4]):
        cache.release(held(cache, keys, 2))
    cache.release(held(cache, [1, 2], 2))  # used again
    held(cache, [7, 8], 2)
    assert (cache.hits([1, 2]), cache.hits([3, 4])) == (2, 0)


def test_blocks_without_a_key_go_before_any_other() -> None:
    cache = BlockCache(4)
    cache.release(held(cache, [1, 2], 3))  # the third was never whole
    held(cache, [5, 6], 2)
    assert cache.hits([1, 2]) == 2


def test_shared_blocks_are_free_when_the_last_holder_leaves() -> None:
    cache = BlockCache(4)
    one, two = held(cache, [1, 2], 2), held(cache, [1, 2, 3], 3, "b")
    assert cache.free == 1
    cache.release(one)
    assert cache.free == 1
    cache.release(two)
    assert (cache.free, cache.usage) == (4, 0.0)


def test_events_name_what_became_findable_and_after_what() -> None:
    cache = BlockCache(4)
    table = held(cache, [1, 2], 2)
    cache.grow(table, 3)
    cache.name(table, [1, 2, 3])
    cache.clear()
    assert cache.events == [Stored((1, 2), None, 0, "a"), Stored((3,), 2, 2, "a"), Cleared()]
    assert cache.hits([1]) == 0


def test_view_kept_from_the_events_is_the_cache_itself() -> None:
    """A consumer that only reads events ends with the very set of keys that the cache finds."""
    cache, dice, view = BlockCache(40), random.Random(5), set()  # noqa: S311  no secret
    tables: list[Table] = []
    for turn in range(400):
        keys = [dice.randrange(6) * 100 + depth for depth in range(dice.randrange(1, 8))]
        if tables and dice.random() < 0.6:
            cache.release(tables.pop(dice.randrange(len(tables))))
        elif cache.wanted(keys[: cache.hits(keys)], len(keys)) <= cache.free:
            tables.append(held(cache, keys, len(keys), str(turn)))
        for event in cache.events:
            if isinstance(event, Stored):
                view |= set(event.keys)
            elif isinstance(event, Removed):
                view -= set(event.keys)
        cache.events.clear()
        assert view == set(cache._found)
    assert 0 < len(view) <= 40
