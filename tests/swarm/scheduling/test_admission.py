"""Whether a task may start: every reason that there is, none that is not, and what a person is told."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarm.scheduling.admission import may_run, waits_for
from swarm.scheduling.facts import Busy, Candidate, Caps, Hold, HostFacts, Running

HOST = HostFacts("here", frozenset({"gpu"}), slots=2)
TASK = Candidate("t1", "web", "ann", "small", pull="t1")
NAMES = st.sampled_from(["a", "b", ""])
BUSY = st.builds(
    Busy, task=st.uuids().map(str), repository=NAMES, user=NAMES, tier=NAMES, host=st.sampled_from(["here", "there"])
)


def busy(task: str = "t0", **more: object) -> Busy:
    return replace(Busy(task, "web", "ann", "small", pull=task, host="there"), **more)


def test_nothing_in_the_way_is_no_reason() -> None:
    assert may_run(TASK, Running(), Caps(), HOST) == ""


@pytest.mark.parametrize(
    ("candidate", "running", "caps", "told"),
    [
        (replace(TASK, needs=2), Running(), Caps(), "2 tasks that it needs"),
        (replace(TASK, mutex="m"), Running((busy(mutex="m"),)), Caps(), 'mutex "m"'),
        (replace(TASK, pull="t0"), Running((busy(),)), Caps(), "the same pull request"),
        (TASK, Running(holds=(Hold("fleet", "the disk is full"),)), Caps(), "the disk is full"),
        (TASK, Running(holds=(Hold("repository:web", "broken"),)), Caps(), "broken"),
        (replace(TASK, not_before=70.0), Running(now=60.0), Caps(), "tried again in 10 s"),
        (replace(TASK, requires=("gpu", "arch=aarch64")), Running(), Caps(), "needs a host with arch=aarch64"),
        (TASK, Running((busy(),)), Caps(fleet=1), "1 of at most 1 tasks run"),
        (TASK, Running((busy(),)), Caps(per_repository=1), "of repository web"),
        (TASK, Running((busy(),)), Caps(users={"ann": 1}), "of user ann"),
        (TASK, Running((busy(),)), Caps(tiers={"small": 1}), "of tier small"),
        (TASK, Running((busy(host="here"), busy("t2", host="here"))), Caps(), "all 2 of here are busy"),
    ],
)
def test_each_reason_is_told(candidate: Candidate, running: Running, caps: Caps, told: str) -> None:
    assert told in may_run(candidate, running, caps, HOST)


def test_a_hold_on_what_is_fresh_spares_work_that_this_host_has_begun_and_that_alone() -> None:
    running = Running(holds=(Hold("fleet", "waits for the broker: refused", fresh=True),))
    assert may_run(replace(TASK, begun="here"), running, Caps(), HOST) == ""
    for begun in ("", "there"):
        assert may_run(replace(TASK, begun=begun), running, Caps(), HOST) == "waits for the broker: refused"
    full = Running(holds=(Hold("fleet", "the disk is full"),))
    assert may_run(replace(TASK, begun="here"), full, Caps(), HOST) == "the disk is full"


def test_what_only_waits_for_the_broker_takes_no_slot_but_keeps_its_mutex() -> None:
    waiting = (busy(host="here", delivering=True, mutex="m"), busy("t2", host="here", delivering=True))
    caps = Caps(fleet=1, per_repository=1, per_user=1, per_tier=1)
    assert may_run(TASK, Running(waiting), caps, HOST) == ""
    assert may_run(replace(TASK, mutex="m"), Running(waiting), caps, HOST)


def test_a_cap_of_its_own_goes_before_the_general_one() -> None:
    caps = Caps(per_repository=1, repositories={"web": 5})
    assert may_run(TASK, Running((busy(),)), caps, HOST) == ""


@settings(max_examples=60)
@given(st.lists(BUSY, max_size=6), st.integers(1, 3), NAMES, NAMES, NAMES)
def test_whatever_starts_passes_no_cap(running: list[Busy], cap: int, repository: str, user: str, tier: str) -> None:
    task = Candidate("new", repository, user, tier, pull="new")
    caps = Caps(fleet=4, per_repository=cap, per_user=cap, per_tier=cap)
    if may_run(task, Running(tuple(running)), caps, HOST) == "":
        after = [*running, busy("new", repository=repository, user=user, tier=tier, host="here")]
        assert len(after) <= 4
        assert sum(one.host == "here" for one in after) <= HOST.slots
        for kind, name in (("repository", repository), ("user", user), ("tier", tier)):
            assert sum(getattr(one, kind) == name for one in after) <= cap


@settings(max_examples=60)
@given(st.lists(BUSY, max_size=6), st.integers(1, 3))
def test_more_that_runs_never_lets_a_task_start(running: list[Busy], cap: int) -> None:
    caps = Caps(fleet=4, per_repository=cap, per_user=cap)
    few = may_run(TASK, Running(tuple(running[:-1])), caps, HOST)
    assert not (few and may_run(TASK, Running(tuple(running)), caps, HOST) == "")


class TestOfManyHosts:
    def test_one_that_may_start_it_is_enough(self) -> None:
        full = HostFacts("full", slots=1)
        assert waits_for(TASK, Running((busy(host="full"),)), Caps(), (full, HOST)) == ""

    def test_no_host_at_all_is_told(self) -> None:
        assert "no daemon" in waits_for(TASK, Running(), Caps(), ())

    def test_labels_that_no_host_has_are_told(self) -> None:
        told = waits_for(replace(TASK, requires=("tpu",)), Running(), Caps(), (HOST, HostFacts("other")))
        assert "none of here, other" in told

    def test_a_host_that_could_never_take_it_is_not_what_is_told_of(self) -> None:
        task = replace(TASK, requires=("gpu",))
        plain = HostFacts("plain", slots=5)
        full = (busy(host="here"), busy("t2", host="here"))
        assert "all 2 of here" in waits_for(task, Running(full), Caps(), (plain, HOST))
