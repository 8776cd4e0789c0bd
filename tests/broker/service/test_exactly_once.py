"""Whatever breaks, and whenever: one branch, one pull request, a receipt. And of two brokers, one acts."""

from __future__ import annotations

import base64
import contextlib
import itertools
import json

import pytest

from broker.errors import FencedError, ForgeError
from broker.server import build
from broker.testing import PretendTracker
from broker.wire import Receipt
from tests.broker.service.dying import MOMENTS, NAMES, Fatal, Killed

pytestmark = pytest.mark.slow

CALLS = ("head", "find", "push", "open", "dress", "report")
QUICK_ROWS = [(name, "end", "before") for name in ("branch", "pull-request", "provenance")]
# What can be told apart from outside is quick; that a row which nobody saw changes nothing is proved in the long run.
ROW_MOMENTS = [
    pytest.param(moment, id="-".join(moment), marks=() if moment in QUICK_ROWS else pytest.mark.slow)
    for moment in MOMENTS
]
QUICK = {("push", "after"), ("open", "after"), ("find", "before")}
FAILING = [
    pytest.param(
        calls, moment, id=f"{moment}-{'+'.join(calls)}", marks=() if (*calls, moment) in QUICK else pytest.mark.slow
    )
    for count in (1, 2, 3)
    for calls in itertools.combinations(CALLS, count)
    for moment in ("before", "after")
]


def restarted(house, forge):
    """Another broker on the same state, as after a kill: the old one is not asked to close anything."""
    house.service = build(house.config, {"demo": forge}, {"demo": PretendTracker()})
    house.service.proposals.resume("reconciled")
    return house.service


def assert_delivered_once(house, forge, receipt):
    assert isinstance(receipt, Receipt)
    assert [pull.commit for pull in forge.pulls()] == [receipt.commit]
    assert forge.branches["swarm/t1"] == receipt.commit
    assert len(forge.pushes) == 1
    envelope = json.loads(house.service.desk.provenance.get("demo", receipt.number))
    assert receipt.commit.encode() in base64.b64decode(envelope["payload"])
    assert house.service.proposals.outbox().proposals == ()


@pytest.mark.parametrize("moment", ROW_MOMENTS)
def test_a_kill_at_any_row_is_finished_by_the_next_start(forged, moment):
    house, forge = forged()
    outbox = house.service.desk.outbox
    outbox.steps = Fatal(outbox.database)
    outbox.steps.moment = moment
    with pytest.raises(Killed):
        house.offer(house.good)
    with contextlib.closing(restarted(house, forge)) as service:
        receipt = service.proposals.status("t1-p")
        assert house.offer(house.good) == receipt
        assert set(service.desk.outbox.steps.results("t1-p")) == set(NAMES)
        assert_delivered_once(house, forge, receipt)


@pytest.mark.parametrize(("calls", "moment"), FAILING)
def test_a_forge_that_fails_at_any_calls_is_asked_again_until_it_is_done_once(forged, calls, moment):
    house, forge = forged(policy={"labels": ["agent"]})
    house.grant()
    for call in calls:
        getattr(forge, moment)[call] += [ForgeError("the line went dead", uncertain=True)]
    for _ in range(len(calls) + 1):
        with contextlib.suppress(ForgeError):
            receipt = house.offer(house.good)
            break
    assert_delivered_once(house, forge, receipt)


def test_a_lost_answer_is_looked_after_at_once_and_nobody_has_to_ask_again(forged):
    house, forge = forged()
    forge.after["push"].append(ForgeError("504", uncertain=True))
    forge.after["open"].append(ForgeError("504", uncertain=True))
    assert_delivered_once(house, forge, house.offer(house.good))


def test_a_forge_that_answers_an_open_with_an_error_although_it_opened_gives_one_pull_request_under_any_id(forged):
    house, forge = forged(policy={"labels": ["agent"]})
    forge.after["open"].append(ForgeError("504"))
    forge.before["find"] += [ForgeError("still down")] * 2
    with pytest.raises(ForgeError):
        house.offer(house.good)
    with pytest.raises(ForgeError):
        house.offer(house.good)
    assert_delivered_once(house, forge, house.offer(house.good, id="another"))


def test_the_same_tree_under_another_id_finishes_what_the_first_began(forged):
    house, forge = forged()
    forge.before["open"] += [ForgeError("down")]
    with pytest.raises(ForgeError):
        house.offer(house.good)
    receipt = house.offer(house.good, id="again")
    assert receipt.proposal == "t1-p"
    assert_delivered_once(house, forge, receipt)
    assert house.service.proposals.status("t1-p") == receipt


def test_of_two_brokers_on_one_outbox_the_newer_acts_and_the_other_is_told(forged):
    house, forge = forged()
    house.grant()
    older = house.service
    with contextlib.closing(build(house.config, {"demo": forge}, {"demo": PretendTracker()})) as newer:
        with pytest.raises(FencedError, match="another broker has taken over"):
            house.offer(house.good)
        assert forge.pushes == []
        older.proposals.resume()  # there is nothing to be done, and nothing is
        house.service = newer
        assert_delivered_once(house, forge, house.offer(house.good))


def test_a_broker_that_is_overtaken_in_the_middle_takes_no_further_step(forged):
    house, forge = forged()
    newer = []

    def overtake():
        newer.append(build(house.config, {"demo": forge}, {"demo": PretendTracker()}))

    forge.race = overtake
    with pytest.raises(FencedError):
        house.offer(house.good)
    assert forge.pulls() == ()
    house.service.close()
    house.service = newer[0]
    house.service.proposals.resume("reconciled")
    assert_delivered_once(house, forge, house.service.proposals.status("t1-p"))
    house.service.close()


def test_a_policy_that_changes_between_two_tries_gives_the_same_commit(forged):
    house, forge = forged()
    forge.before["open"] += [ForgeError("down")]
    with pytest.raises(ForgeError):
        house.offer(house.good)
    demo = house.config.repositories["demo"]
    policy = demo.policy.model_copy(update={"title_prefix": "[other] "})
    changed = house.config.model_copy(update={"repositories": {"demo": demo.model_copy(update={"policy": policy})}})
    house.service.close()
    with contextlib.closing(build(changed, {"demo": forge}, {"demo": PretendTracker()})) as service:
        service.proposals.resume("reconciled")
        house.service = service
        assert_delivered_once(house, forge, service.proposals.status("t1-p"))


def test_content_that_was_changed_on_disk_is_never_delivered(forged):
    house, forge = forged()
    forge.before["push"] += [ForgeError("down")]
    with pytest.raises(ForgeError):
        house.offer(house.good)
    (file,) = (house.config.state / "outbox").iterdir()
    file.write_bytes(file.read_bytes().replace(b"Fix clamp", b"Fix CLAMP"))
    house.service.proposals.resume()
    assert forge.pushes == []
    said = [entry for entry in house.service.log(0).entries if entry.event == "not-resumed"]
    assert "is not what arrived" in said[0].fields["reason"]


@pytest.mark.parametrize("left", [b"", b"SWP1", b"\xff" * 4000])
def test_content_that_was_damaged_on_disk_stops_neither_the_start_nor_the_others(forged, left):
    house, forge = forged()
    forge.before["push"] += [ForgeError("down")] * 2
    for task in ("t1", "t2"):
        with pytest.raises(ForgeError):
            house.offer(house.good, task)
    (house.config.state / "outbox" / "t1-p.proposal").write_bytes(left)
    with contextlib.closing(restarted(house, forge)) as service:
        assert isinstance(service.proposals.status("t2-p"), Receipt)
        assert "cannot be read any more" in service.log(0).model_dump_json()
        assert "cannot be read any more" in service.proposals.kept("t1-p").reason
        service.proposals.discard("t1-p", by_uid=0)


def test_a_fault_of_the_brokers_own_in_one_stops_neither_the_start_nor_the_others(forged):
    house, forge = forged()
    for task, failure in (("t1", RuntimeError), ("t2", ForgeError)):
        forge.before["push"].append(failure("hunter2"))
        with pytest.raises(failure):
            house.offer(house.good, task)
    forge.before["push"].append(RuntimeError("hunter2"))
    with contextlib.closing(restarted(house, forge)) as service:
        assert isinstance(service.proposals.status("t2-p"), Receipt)
        said = [entry for entry in service.log(0).entries if entry.event in {"failed", "not-reconciled"}]
        assert [entry.fields["proposal"] for entry in said] == ["t1-p", "t2-p", "t1-p"]
        assert said[-1].fields["reason"] == "a fault of the broker's own: RuntimeError"
        assert service.proposals.resume() == 1


def test_steps_are_as_many_as_are_written_down():
    assert NAMES == ("rebuilt", "branch", "compared", "pull-request", "dressed", "status", "provenance")
