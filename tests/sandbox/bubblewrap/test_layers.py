"""Where layers lie, and what room is left in a new one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sandbox.bubblewrap.layers import DEEPEST, SLOTS, Store, from_json, room_left, to_json

STORE = Store("work", 1 << 20, 100, 0o755)


def test_a_store_is_shown_as_it_is_until_it_is_forked() -> None:
    assert (STORE.shown, STORE.lowers) == ("/mnt/work/0", ())
    once = STORE.parted()
    assert (once.shown, once.lowers) == ("/mnt/work/1/top", ("/mnt/work/0",))
    assert once.parted().lowers == ("/mnt/work/1/up", "/mnt/work/0")
    flat = once.parted().flattened()
    assert (flat.shown, flat.lowers) == ("/mnt/work/3", ())
    assert flat.parted().lowers == ("/mnt/work/3",)


@given(st.lists(st.booleans(), max_size=200))
def test_no_two_layers_ever_share_a_place_and_the_stack_stays_shallow(forks: list[bool]) -> None:
    store = STORE
    for flatten in forks:
        store = store.flattened() if flatten or store.deep else store.parted()
        used = [store.slot, *store.frozen]
        assert len(set(used)) == len(used)
        assert max(used) < SLOTS
        assert len(store.frozen) <= DEEPEST
        assert from_json(to_json((store,))) == (store,)


@given(st.integers(0, 1 << 40), st.integers(0, 1 << 30))
def test_frozen_layers_count_against_the_limit_and_there_is_always_one(used: int, files: int) -> None:
    size, inodes = room_left(STORE, used, files)
    assert size == max(STORE.size - used, 64 * 1024)
    assert inodes == max(STORE.inodes - files, 64)
    assert size > 0
    assert inodes > 0
