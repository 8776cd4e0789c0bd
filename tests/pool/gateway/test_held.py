"""All requests together hold no more memory than is set, and nobody alone takes it from the others."""

from __future__ import annotations

import pytest

from pool.gateway.held import SMALL, VALUE, Held, weight
from pool.gateway.replies import RefusedError


def refused(held: Held, whose: str, size: int) -> int:
    with pytest.raises(RefusedError) as caught:
        held.take(whose, size)
    assert caught.value.refusal.retry_after
    return caught.value.refusal.status


def test_what_is_full_says_when_to_come_back_and_has_room_again() -> None:
    held = Held(100, 100)
    held.take("a", 60)
    held.take("b", 40)
    assert refused(held, "c", 1) == 503
    held.give("a", 60)
    held.take("c", 60)
    assert held.bytes == 100


def test_one_caller_has_its_share_and_leaves_the_rest_to_others() -> None:
    held = Held(100, 50)
    held.take("a", 50)
    assert refused(held, "a", 1) == 429
    held.take("b", 50)
    held.give("a", 50)
    held.give("b", 50)
    assert held.bytes == 0
    assert not held._by_caller


def test_values_weigh_more_than_their_text() -> None:
    assert weight(b"[" * 1000) == 0
    assert weight(b"[" * SMALL) == SMALL * VALUE
    assert weight(b"x" * SMALL) == 0
    assert not Held(100, 50).fits(51)
