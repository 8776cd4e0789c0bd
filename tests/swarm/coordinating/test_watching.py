"""A silent host is only dead when both its signs of life have stood still for long enough."""

from __future__ import annotations

import pytest

from swarm.coordinating.watching import MOST, Silence
from swarm.store.leases import Peer


def peer(beat: float | None = 1.0, progress: int = 1, host: str | None = "a", life: str = "1") -> Peer:
    return Peer(host, life, beat, progress)


def test_a_host_is_dead_when_neither_sign_moved_for_as_long_as_its_patience() -> None:
    silence = Silence(60.0)
    assert not silence.dead(peer(), 0.0)
    assert not silence.dead(peer(), 59.9)
    assert silence.dead(peer(), 60.0)


@pytest.mark.parametrize("own", [10.0, 330.0])
def test_each_is_judged_by_its_own_patience(own: float) -> None:
    slow = Peer("a", "1", 1.0, 1, own)
    silence = Silence(60.0)
    assert not silence.dead(slow, 0.0)
    assert not silence.dead(slow, own - 0.1)
    assert silence.dead(slow, own)


def test_either_sign_begins_the_wait_anew() -> None:
    silence = Silence(60.0)
    silence.dead(peer(), 0.0)
    assert not silence.dead(peer(beat=2.0), 59.0)
    assert not silence.dead(peer(beat=2.0, progress=2), 118.0)
    assert not silence.dead(peer(beat=2.0, progress=2), 177.0)
    assert silence.dead(peer(beat=2.0, progress=2), 178.0)


def test_a_host_that_was_just_seen_first_is_given_its_time_whatever_its_clock_says() -> None:
    assert not Silence(60.0).dead(peer(beat=-1e9), 1e9)


def test_a_host_that_is_not_known_any_more_is_watched_as_well() -> None:
    silence = Silence(60.0)
    assert not silence.dead(peer(beat=None), 0.0)
    assert silence.dead(peer(beat=None), 60.0)


def test_a_task_that_nobody_holds_is_taken_at_once() -> None:
    assert Silence(60.0).dead(peer(host=None), 0.0)


def test_another_life_is_another_host() -> None:
    silence = Silence(60.0)
    silence.dead(peer(), 0.0)
    assert not silence.dead(peer(life="2"), 100.0)


def test_it_remembers_no_more_than_it_has_room_for() -> None:
    silence = Silence(60.0)
    for number in range(MOST + 10):
        silence.dead(peer(host=f"h{number}"), 0.0)
    assert len(silence._seen) == MOST
