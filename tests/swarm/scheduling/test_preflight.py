"""What is missing holds back exactly the tasks that need it, and is told in words.

The disk floor answers AO#2652, aimee PR#1951 and gh-aw-firewall#361, where runs went on until the disk was full.
"""

from __future__ import annotations

from swarm.scheduling.preflight import Disk, Server, broker, disks, images, tiers

GIB = 2**30


def test_a_disk_below_its_floor_holds_everything_back_and_is_named() -> None:
    (hold,) = disks([Disk("/state", 1 * GIB), Disk("/big", 9 * GIB)], 2 * GIB)
    assert hold.scope == "fleet"
    assert hold.reason == "waits for disk space: /state has 1.0 GiB free; 2.0 GiB are to stay free"


def test_a_disk_that_cannot_be_asked_holds_nothing_back() -> None:
    assert disks([Disk("/gone", None)], 2 * GIB) == ()
    assert disks([Disk("/state", 0)], 0) == ()


def test_only_the_tier_whose_servers_are_all_down_waits() -> None:
    servers = [Server("a", "small", up=False, detail="refused"), Server("b", "large", up=True)]
    (hold,) = tiers(servers, ["small", "large", "auto"], 2048)
    assert hold.scope == "tier:small"
    assert "none is up (a: refused)" in hold.reason


def test_a_tier_whose_windows_are_all_too_small_waits_and_an_unknown_window_is_trusted() -> None:
    small, unknown = Server("a", "t", up=True, window=1024), Server("b", "t", up=True)
    (hold,) = tiers([small], ["t"], 2048)
    assert "the largest has 1024" in hold.reason
    assert tiers([small, unknown], ["t"], 2048) == ()


def test_a_missing_image_holds_its_repository_alone_and_a_silent_broker_all() -> None:
    assert [hold.scope for hold in images({"web": "/x is not there"})] == ["repository:web"]
    (silent,) = broker("refused")
    assert (silent.scope, silent.fresh) == ("fleet", True)
    assert broker("") == ()
