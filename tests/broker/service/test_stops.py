"""The kill switch: nothing is granted or delivered while it is thrown, nothing is lost, a restart changes nothing."""

from __future__ import annotations

from contextlib import closing

import pytest

from broker.errors import AbsentError, ConflictError, FencedError, StoppedError
from broker.outbox.database import Database
from broker.person_wire import StopRequest
from broker.server import build
from broker.wire import GrantRequest, MirrorRequest, Receipt, Refusal


def throw(house, repository=None, stopped=True, reason="a leak", by=5):
    return house.service.stops.set(StopRequest(repository=repository, stopped=stopped, reason=reason), by)


def grant(house, task):
    return house.service.grants.grant(GrantRequest(repository="demo", task=task), "uid:0")


@pytest.mark.parametrize("repository", [None, "demo"])
def test_nothing_is_granted_or_delivered_while_it_is_thrown(house, repository):
    house.grant("t1", uses=2)
    before = house.branches()
    throw(house, repository)
    with pytest.raises(StoppedError, match="was stopped by uid 5: a leak") as caught:
        grant(house, "t2")
    assert "swarm-broker go" in caught.value.mend
    with pytest.raises(StoppedError):
        house.offer(house.good)
    assert house.branches() == before
    throw(house, repository, stopped=False)
    assert isinstance(house.offer(house.good), Receipt)


def test_reads_refusals_and_status_go_on(house):
    verdict = house.offer({"pyproject.toml": b"x"}, task="t0")
    grant_before = house.grant("t1")
    throw(house)
    commit, pack = house.service.reads.mirror(MirrorRequest(capability=grant_before.capability))
    pack.close()
    assert commit == grant_before.base_commit
    assert isinstance(verdict, Refusal)
    assert house.service.proposals.status("t0-p") == verdict
    assert house.service.grants.listing().grants
    assert house.service.log(0).entries


def test_a_person_takes_a_grant_back_while_it_is_thrown(house):
    held = house.grant("t1")
    throw(house)
    assert house.service.grants.revoke(held.id, by_uid=0).revoked


def test_a_restart_keeps_it_thrown(house, reopened):
    throw(house, "demo")
    reopened()
    with pytest.raises(StoppedError, match="a leak"):
        grant(house, "t2")
    throw(house, "demo", stopped=False)
    reopened()
    assert grant(house, "t2")


def test_a_broker_that_another_took_over_from_stops_nothing_in_silence(house):
    with closing(Database(house.config.state / "outbox.sqlite")), pytest.raises(FencedError):
        throw(house)


def test_one_repository_stopped_and_all_stopped_are_told_apart(house):
    throw(house, "demo", reason="one")
    stops = throw(house, None, reason="all").stops
    assert [(stop.repository, stop.by, stop.reason) for stop in stops] == [("demo", 5, "one"), (None, 5, "all")]
    assert [stop.repository for stop in throw(house, None, stopped=False).stops] == ["demo"]
    with pytest.raises(StoppedError, match="one"):
        grant(house, "t2")


def test_the_latest_word_on_one_place_counts(house):
    throw(house, "demo", reason="first", by=5)
    stops = throw(house, "demo", reason="second", by=6).stops
    assert [(stop.by, stop.reason) for stop in stops] == [(6, "second")]


def test_what_nobody_stopped_cannot_be_started(house):
    with pytest.raises(ConflictError, match="no person stopped"):
        throw(house, "demo", stopped=False)
    with pytest.raises(AbsentError):
        throw(house, "other")


def test_stopping_and_starting_are_in_the_log(house):
    throw(house, None, reason="a leak")
    throw(house, None, stopped=False, reason="mended")
    told = [
        (entry.event, entry.fields) for entry in house.service.log(0).entries if entry.event in {"stopped", "resumed"}
    ]
    assert [(event, fields["uid"], fields["reason"]) for event, fields in told] == [
        ("stopped", "5", "a leak"),
        ("resumed", "5", "mended"),
    ]


@pytest.mark.parametrize("where", ["all", "one"])
def test_the_settings_stop_as_well_and_only_they_start_again(build_house, where):
    house = build_house()
    if where == "all":
        stopped = house.config.model_copy(update={"enabled": False})
    else:
        demo = house.config.repositories["demo"].model_copy(update={"enabled": False})
        stopped = house.config.model_copy(update={"repositories": {"demo": demo}})
    now = [stopped]
    house.service.close()
    service = build(house.config, current=lambda: now[0])
    try:
        with pytest.raises(StoppedError, match=r"stopped by the operator: enabled = false in broker.toml") as caught:
            service.grants.grant(GrantRequest(repository="demo", task="t2"), "uid:0")
        assert "enabled = true" in caught.value.mend
        stop = service.stops.listing().stops[0]
        assert (stop.repository, stop.by) == (None if where == "all" else "demo", None)
        with pytest.raises(ConflictError) as refused:
            service.stops.set(StopRequest(repository=stop.repository, stopped=False), 0)
        assert "broker.toml" in refused.value.mend
        now[0] = house.config
        assert service.grants.grant(GrantRequest(repository="demo", task="t2"), "uid:0")
    finally:
        service.close()


def test_what_arrived_while_it_was_thrown_is_delivered_afterwards_once(house, reopened):
    house.grant("t1")
    throw(house)
    with pytest.raises(StoppedError):
        house.offer(house.good)
    service = reopened()
    assert "refs/heads/swarm/t1" not in house.branches()
    service.stops.set(StopRequest(stopped=False), 5)
    assert isinstance(house.offer(house.good), Receipt)
    assert len(service.pulls.listing("demo").pulls) == 1
