"""Published KV events are read in both layouts; gaps, lost replays and restarts never leave a false view."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pool.placement.blocks import token_chain, token_root
from pool.placement.kvevents import Feed, Published, decode

IDS = list(range(100, 164))
ORDER = ("block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium", "lora_name", "extra_keys")


def stored(first: int, blocks: int = 1, *, shape: str = "map", size: int = 4, **more: Any) -> Any:
    """Blocks ``first`` and on of IDS, each after the one before it."""
    fields = {
        "block_hashes": [b"h%d" % i for i in range(first, first + blocks)],
        "parent_block_hash": b"h%d" % (first - 1) if first else None,
        "token_ids": IDS[first * size : (first + blocks) * size],
        "block_size": size,
        "lora_id": None,
        "medium": "GPU",
        "lora_name": None,
    } | more
    return {"type": "BlockStored", **fields} if shape == "map" else ["BlockStored", *[fields.get(k) for k in ORDER]]


def removed(*blocks: int, shape: str = "map", medium: str | None = "GPU") -> Any:
    hashes = [b"h%d" % i for i in blocks]
    if shape == "map":
        return {"type": "BlockRemoved", "block_hashes": hashes, "medium": medium}
    return ["BlockRemoved", hashes, medium]


CLEARED = {"type": "AllBlocksCleared"}


def batch(*events: Any) -> bytes:
    packed: bytes = msgpack.packb([1.0, list(events), 0])
    return packed


def hit(view: Published, salt: str | None = None, adapter: str | None = None) -> int:
    return view.hit(token_chain(IDS, 4, token_root(adapter, salt)))


def followed(*batches: bytes) -> Feed:
    feed = Feed(Published())
    for number, payload in enumerate(batches):
        assert feed.take(number, payload) is None
    return feed


@pytest.mark.parametrize("shape", ["map", "array"])
def test_stored_and_removed_blocks_make_the_hit(shape: str) -> None:
    feed = followed(batch(stored(0, 3, shape=shape), stored(3, 2, shape=shape)), batch(removed(4, shape=shape)))
    assert (hit(feed.view), len(feed.view), feed.view.block_tokens, feed.view.whole) == (4, 4, 4, True)
    assert feed.take(2, batch(removed(1, shape=shape))) is None
    assert hit(feed.view) == 1


def test_cleared_cache_is_empty_and_known_to_be() -> None:
    feed = followed(batch(stored(0, 3)), batch(CLEARED))
    assert (hit(feed.view), feed.view.whole, len(feed.view)) == (0, True, 0)


def test_blocks_of_another_salt_or_adapter_are_no_hit() -> None:
    salted = followed(batch(stored(0, 1, extra_keys=[["tenant"]]), stored(1, 1)))
    assert (hit(salted.view), hit(salted.view, "tenant")) == (0, 2)
    adapted = followed(batch(stored(0, 2, lora_name="law", extra_keys=[["law"], ["law"]])))
    assert (hit(adapted.view), hit(adapted.view, adapter="law")) == (0, 2)
    pictured = followed(batch(stored(0, 2, extra_keys=[[["image", 3]], None])))
    assert hit(pictured.view) == 0


def test_block_kept_in_a_further_tier_is_still_held() -> None:
    feed = followed(batch(stored(0, 2), stored(0, 2, medium="CPU")), batch(removed(0, 1)))
    assert hit(feed.view) == 2
    feed.take(2, batch(removed(0, 1, medium="CPU")))
    assert hit(feed.view) == 0


def test_gap_is_asked_for_and_filled() -> None:
    feed = followed(batch(stored(0)))
    assert feed.take(3, batch(stored(3))) == 1
    assert feed.take(4, batch(stored(4))) is None  # asked for already
    assert hit(feed.view) == 1  # nothing after a gap is believed yet
    for number in (0, 1, 2, 3):
        feed.replayed(number, batch(stored(number)))
    assert feed.ended()
    assert (hit(feed.view), feed.view.whole) == (5, True)
    assert feed.take(5, batch(stored(5))) is None


def test_gap_that_cannot_be_filled_drops_the_view_and_begins_anew() -> None:
    feed = followed(batch(stored(0, 2)))
    assert feed.take(5, batch(stored(0, 1))) == 1
    assert not feed.ended()
    assert (hit(feed.view), feed.view.whole) == (1, False)
    feed.take(6, batch(CLEARED))
    assert feed.view.whole


def test_live_batches_that_a_replay_told_already_are_no_restart() -> None:
    feed = followed(batch(stored(0)))
    assert feed.take(2, batch(stored(2))) == 1
    for number in range(1, 5):  # the replay runs ahead of what is still under way
        feed.replayed(number, batch(stored(number)))
    assert feed.ended()
    for number in (3, 4, 5):
        assert feed.take(number, batch(stored(number))) is None
    assert hit(feed.view) == 6


def test_numbers_that_begin_anew_are_another_process_with_an_empty_cache() -> None:
    feed = followed(batch(stored(0, 4)), batch(stored(4, 2)))
    assert feed.take(0, batch(stored(0, 1))) is None
    assert (hit(feed.view), feed.view.whole, feed.view.resets) == (1, True, 2)


def test_listener_that_comes_late_knows_only_what_a_replay_tells() -> None:
    feed = Feed(Published())
    assert (feed.begin(), feed.view.whole) == (0, False)
    feed.replayed(7, batch(stored(0, 2)))  # the publisher kept nothing older
    feed.replayed(8, batch(stored(9, 1)))  # continues what nobody told us of
    assert feed.ended()
    assert (hit(feed.view), feed.view.whole) == (2, False)


def test_unreadable_batch_drops_the_view_instead_of_falsifying_it() -> None:
    for bad in (b"\xc1", msgpack.packb("no batch"), batch(stored(0, token_ids=["x"])), batch(stored(0, block_size=0))):
        feed = followed(batch(stored(0, 2)), bad)
        assert (hit(feed.view), feed.view.whole) == (0, False)


def test_unknown_events_and_further_cache_groups_are_left_alone() -> None:
    odd = [{"type": "BlockDreamt"}, ["BlockDreamt", 1], "text", None, {}, stored(0, 1, group_idx=1)]
    assert len(followed(batch(*odd)).view) == 0
    assert len(decode(batch(*odd))) == 1


def test_more_blocks_than_the_cap_are_never_kept() -> None:
    view = Published(most=5)
    for event in decode(batch(*[stored(i) for i in range(12)])):
        view.apply(event)
    assert len(view) <= 5
    assert not view.whole


@given(st.lists(st.sampled_from(["live", "lost", "replay"]), max_size=30))
def test_view_never_claims_a_block_that_is_gone(fates: list[str]) -> None:
    """However batches are lost and asked for again, what the view holds was held at the last batch that it took."""
    log: list[bytes] = []
    truth: list[int] = []
    feed, asked = Feed(Published()), None
    for number, fate in enumerate(fates):
        event = removed(*range(len(truth) // 2, len(truth))) if number % 4 == 3 else stored(len(truth), 2)
        truth = truth[: len(truth) // 2] if number % 4 == 3 else [*truth, len(truth), len(truth) + 1]
        truth = truth[:16]
        log.append(batch(event))
        if fate != "lost":
            asked = feed.take(number, log[-1]) if asked is None else (feed.take(number, log[-1]), asked)[1]
        if fate == "replay" and asked is not None:
            for again in range(asked, number + 1):
                feed.replayed(again, log[again])
            assert feed.ended()
            asked = None
        if fate != "lost" and asked is None:
            assert hit(feed.view) <= len(truth)
