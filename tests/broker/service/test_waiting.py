"""What may not go out now waits and is delivered later; nothing is lost, and nothing slips through meanwhile."""

from __future__ import annotations

import contextlib
import threading
import time

import pytest

from broker.errors import BudgetError, ConflictError, ForgeError, StoppedError
from broker.person_wire import Approval, StopRequest
from broker.server import build
from broker.service.resuming import Resumer
from broker.service.service import assemble
from broker.testing import PretendTracker
from broker.wire import Receipt, Waiting

pytestmark = pytest.mark.slow


def stop(house, *, stopped=True, repository="demo"):
    house.service.stops.set(StopRequest(repository=repository, stopped=stopped, reason="holidays"), by_uid=7)


def offered(house, task="t1", **more):
    """A good proposal, whose grant was given before everything was stopped."""
    return house.offer(house.good, task, **more)


@pytest.mark.parametrize("repository", ["demo", None])
def test_a_stop_keeps_a_proposal_until_a_person_lets_go(forged, repository):
    house, forge = forged()
    house.grant()
    stop(house, repository=repository)
    with pytest.raises(StoppedError, match="holidays"):
        offered(house)
    kept = house.service.proposals.kept("t1-p")
    assert (kept.state, "holidays" in kept.reason, kept.title) == ("waiting", True, "Fix clamp")
    assert forge.pushes == []
    standing = house.service.proposals.status("t1-p")
    assert isinstance(standing, Waiting)
    assert ("holidays" in standing.reason, standing.opens) == (True, None)
    assert house.service.proposals.resume() == 0
    stop(house, stopped=False, repository=repository)
    assert house.service.proposals.resume() == 1
    assert isinstance(house.service.proposals.status("t1-p"), Receipt)


def test_asked_again_it_is_delivered_and_costs_no_second_use(forged):
    house, forge = forged()
    house.grant()
    stop(house)
    for _ in range(2):
        with pytest.raises(StoppedError):
            offered(house)
    stop(house, stopped=False)
    assert isinstance(offered(house), Receipt)
    assert len(forge.pulls()) == 1


def test_a_stop_in_the_middle_of_a_delivery_ends_it_before_its_next_outward_step(forged):
    house, forge = forged()
    house.grant()
    forge.race = lambda: stop(house)
    with pytest.raises(StoppedError):
        offered(house)
    assert (len(forge.pushes), forge.pulls()) == (1, ())
    stop(house, stopped=False)
    house.service.proposals.resume()
    assert isinstance(house.service.proposals.status("t1-p"), Receipt)
    assert (len(forge.pushes), len(forge.pulls())) == (1, 1)


def test_a_stop_holds_over_a_restart_and_against_an_approval(forged):
    house, forge = forged()
    refusal = house.offer({"package.json": b"{}\n"})
    stop(house)
    with pytest.raises(StoppedError):
        house.service.proposals.approve("t1-p", Approval(digest=refusal.digest), by_uid=0)
    with contextlib.closing(build(house.config, {"demo": forge}, {"demo": PretendTracker()})) as service:
        house.service = service
        service.proposals.resume("reconciled")
        assert (service.proposals.kept("t1-p").state, forge.pushes) == ("waiting", [])
        stop(house, stopped=False)
        service.proposals.resume()
        assert isinstance(service.proposals.status("t1-p"), Receipt)


class Clock:
    """A clock that a test turns; noon of a Monday at first."""

    def __init__(self) -> None:
        self.now = 1_767_614_400.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def timed(forged):
    """A house whose broker goes by a clock of the test's own."""
    opened = []

    def make(**more):
        house, forge = forged(**more)
        desk, clock = house.service.desk, Clock()
        house.service.close()
        made = assemble(
            desk.current, mint=desk.mint, audit=type(desk.audit)(house.config.state / "audit.log"), clock=clock,
            provenance=desk.provenance, forges={"demo": forge}, trackers={"demo": PretendTracker()},
        )  # fmt: skip
        opened.append(made)
        house.service = made
        return house, forge, clock

    yield make
    for service in opened:
        service.close()


def test_what_was_delivered_while_the_clock_ran_ahead_closes_nothing_once_it_is_right(timed):
    house, _, clock = timed(policy={"max_per_hour": 1})
    house.grant("t2", seconds=90 * 86_400)
    house.grant("t1", seconds=90 * 86_400)
    clock.now += 80 * 86_400
    assert isinstance(offered(house, "t1"), Receipt)
    clock.now -= 80 * 86_400
    assert isinstance(offered(house, "t2"), Receipt)


def test_over_the_hours_budget_it_waits_until_the_hour_is_over(timed):
    house, forge, clock = timed(policy={"max_per_hour": 1})
    offered(house, "t1")
    with pytest.raises(BudgetError, match="in the last hour") as told:
        offered(house, "t2")
    assert told.value.opens == pytest.approx(clock.now + 3600)
    assert house.service.proposals.resume() == 0
    assert len(forge.pushes) == 1
    clock.now += 3601
    assert house.service.proposals.resume() == 1
    assert isinstance(house.service.proposals.status("t2-p"), Receipt)


def test_out_of_hours_it_waits_for_the_morning(timed):
    house, forge, clock = timed(policy={"hours": ["mon-fri 08:00-18:00"]})
    house.grant()
    clock.now += 12 * 3600  # midnight
    with pytest.raises(BudgetError):
        offered(house)
    assert forge.pushes == []
    clock.now += 9 * 3600
    assert house.service.proposals.resume() == 1


def test_so_many_open_pull_requests_and_no_more_until_one_is_closed(timed):
    house, forge, clock = timed(policy={"max_open_pulls": 1})
    first = offered(house, "t1")
    with pytest.raises(BudgetError, match="are open"):
        offered(house, "t2")
    forge.close(first.number)
    clock.now += 121  # until then it is not asked again
    assert house.service.proposals.resume() == 1
    assert [pull.state for pull in forge.pulls()] == ["open", "closed"]


def test_the_forge_is_asked_about_open_pull_requests_only_where_there_may_be_too_many(timed):
    house, forge, _ = timed(policy={"max_open_pulls": 3})
    receipts = [offered(house, f"t{number}") for number in range(3)]
    for receipt in receipts[:2]:
        forge.close(receipt.number)
    asked = forge.before["pull"]
    asked.append(ForgeError("asked"))
    with pytest.raises(ForgeError, match="asked"):  # three may be open
        offered(house, "t4")
    assert isinstance(offered(house, "t4"), Receipt)
    assert isinstance(offered(house, "t5"), Receipt)
    with pytest.raises(BudgetError, match="3 pull requests are open"):
        offered(house, "t6")
    asked.append(ForgeError("asked"))
    with pytest.raises(BudgetError):  # and that is remembered for a while
        offered(house, "t6")
    assert len(asked) == 1


def test_a_person_discards_what_waits_and_it_is_never_delivered(forged):
    house, forge = forged(outbox_entries=1)
    house.grant()
    stop(house)
    with pytest.raises(StoppedError):
        offered(house)
    house.service.proposals.discard("t1-p", by_uid=7)
    stop(house, stopped=False)
    assert house.service.proposals.resume() == 0
    refusal = house.service.proposals.status("t1-p")
    assert (house.rules(refusal), forge.pushes) == ({"discarded"}, [])
    with pytest.raises(ConflictError, match="never be approved"):
        house.service.proposals.approve("t1-p", Approval(digest=refusal.digest), by_uid=0)
    assert house.service.proposals.outbox().entries_left == 1


def test_an_update_opens_nothing_and_is_not_held_up_by_what_is_open(forged, updates):
    house, forge = forged(policy={"max_open_pulls": 1})
    house.grant(uses=2)
    first = offered(house)
    assert isinstance(updates(house, forge, {"src/more.py": b"more = 1\n"}, first.commit), Receipt)


def test_explain_tells_stops_and_budgets_by_the_same_code(timed):
    house, _, _ = timed(policy={"max_per_hour": 1})
    offered(house, "t1")
    tree = house.agent.tree(house.grant("t2").base_commit, house.good)
    proposal, pack = house.proposal(tree, "t2"), house.agent.pack(tree, house.grant("t2").base_commit)
    over = house.service.proposals.explain(proposal, pack)
    assert ([finding.rule for finding in over.findings], over.allowed) == (["over-budget"], False)
    stop(house)
    assert [finding.rule for finding in house.service.proposals.explain(proposal, pack).findings] == ["stopped"]
    assert house.service.proposals.outbox().proposals == ()


def test_a_waiting_proposal_still_counts_in_the_outbox(forged):
    house, _ = forged(outbox_entries=1)
    house.grant()
    stop(house)
    with pytest.raises(StoppedError):
        offered(house)
    assert house.service.proposals.outbox().entries_left == 0


def test_the_resumer_delivers_by_itself_and_ends(forged):
    house, forge = forged()
    forge.before["push"].append(ForgeError("down"))
    with pytest.raises(ForgeError):
        offered(house)
    resumer = Resumer(house.service.proposals, fenced=lambda _error: None, seconds=60.0)
    resumer.start()
    resumer.hint()
    deadline = time.monotonic() + 20
    while not forge.pulls() and time.monotonic() < deadline:
        time.sleep(0.02)
    resumer.close()
    assert isinstance(house.service.proposals.status("t1-p"), Receipt)


def test_the_resumer_outlives_whatever_goes_wrong():
    class Failing:
        calls = 0

        def unfinished(self):
            if not self.calls:
                self.calls += 1
                raise OSError
            return frozenset({"demo"})

        def resume(self, event, ending, repository):
            assert not ending()
            assert repository == "demo"
            self.calls += 1
            raise IndexError

    failing = Failing()
    resumer = Resumer(failing, fenced=lambda _error: None, seconds=0.001)
    resumer.start()
    deadline = time.monotonic() + 20
    while failing.calls < 3 and time.monotonic() < deadline:
        time.sleep(0.001)
    resumer.close()
    assert failing.calls >= 3


def test_a_repository_whose_forge_is_silent_holds_up_no_other():
    silent, served = threading.Event(), []

    class Two:
        def unfinished(self):
            return frozenset({"silent", "well"})

        def resume(self, event, ending, repository):
            served.append((repository, event))
            if repository == "silent":
                silent.wait(20)

    resumer = Resumer(Two(), fenced=lambda _error: None, seconds=0.001)
    resumer.start()
    deadline = time.monotonic() + 20
    while served.count(("well", "resumed")) < 3 and time.monotonic() < deadline:
        time.sleep(0.001)
    assert served.count(("silent", "reconciled")) == 1
    assert served.count(("silent", "resumed")) == 0
    silent.set()
    resumer.close()
    assert served.count(("well", "resumed")) >= 3


def test_the_resumer_of_a_broker_that_was_overtaken_says_so_and_stops(forged):
    house, forge = forged()
    forge.before["push"].append(ForgeError("down"))
    with pytest.raises(ForgeError):
        offered(house)
    told = []
    with contextlib.closing(build(house.config, {"demo": forge}, {"demo": PretendTracker()})):
        resumer = Resumer(house.service.proposals, fenced=told.append, seconds=60.0)
        resumer.start()
        resumer.hint()
        deadline = time.monotonic() + 20
        while not told and time.monotonic() < deadline:
            time.sleep(0.02)
        resumer.close()
    assert "another broker" in str(told[0])
    assert forge.pushes == []


# --- what the forge does not take, and what it does not have any more


def test_what_the_forge_does_not_take_is_told_and_stops_nothing(forged):
    house, forge = forged(policy={"labels": ["agent"], "reviewers": ["nobody"]})
    forge.will_not_wear = ("nobody may not be asked for a review",)
    receipt = offered(house)
    assert [(one.rule, one.severity, one.message) for one in receipt.warnings] == [
        ("dressing", "warn", "nobody may not be asked for a review")
    ]
    assert forge.dressed[receipt.number].labels == ("agent",)


@pytest.mark.parametrize("call", ["dress", "report"])
def test_a_label_or_status_that_fails_is_a_warning_and_never_a_second_pull_request(forged, call):
    house, forge = forged(policy={"labels": ["agent"]})
    forge.before[call].append(ForgeError("403"))
    receipt = offered(house)
    assert len(receipt.warnings) == len(forge.pulls()) == 1


def test_a_base_that_is_gone_is_told_and_one_that_moved_is_a_warning(forged):
    house, forge = forged()
    house.grant("t1")
    house.grant("t2")
    main = forge.branches["main"]
    moved = forge.git.commit_tree(forge.git.tree_of(main), (main,), "on\n", house.config.identity, 0)
    forge.branches["main"] = moved
    receipt = offered(house, "t1")
    assert [warning.rule for warning in receipt.warnings] == ["base-moved"]
    del forge.branches["main"]
    assert house.rules(offered(house, "t2")) == {"base-gone"}


def test_a_base_that_the_policy_no_longer_names_is_refused(forged):
    house, forge = forged()
    forge.branches["release"] = forge.branches["main"]
    house.grant("t1", base="release")
    demo = house.config.repositories["demo"]
    policy = demo.policy.model_copy(update={"bases": ()})
    narrower = house.config.model_copy(update={"repositories": {"demo": demo.model_copy(update={"policy": policy})}})
    house.service.close()
    with contextlib.closing(build(narrower, {"demo": forge}, {"demo": PretendTracker()})) as service:
        house.service = service
        assert house.rules(offered(house)) == {"base-not-allowed"}


def test_a_pull_request_is_a_draft_and_closes_the_tasks_own_issue_alone(forged):
    house, forge = forged()
    house.grant("t1", issue=12)
    offered(house, body="Closes #99, fixes #12.")
    (pull,) = forge.pulls()
    assert pull.draft
    assert [line for line in pull.body.splitlines() if "Closes #" in line] == ["Closes #12"]


# --- rounds of the resumer


def test_a_forge_that_refuses_this_very_content_is_a_refusal_and_not_asked_again(forged):
    house, forge = forged()
    forge.before["push"].append(ForgeError("push protection found a secret", reason="secret"))
    refusal = offered(house)
    assert house.rules(refusal) == {"forge-refused"}
    assert offered(house) == refusal
    assert forge.pushes == []
    word = Approval(digest=refusal.digest)
    assert isinstance(house.service.proposals.approve("t1-p", word, by_uid=0), Receipt)


def test_one_proposal_that_always_fails_does_not_hold_up_the_others(forged):
    house, forge = forged()
    house.grant("bad")
    house.grant("good")
    forge.before["push"] += [ForgeError("down")] * 2
    for task in ("bad", "good"):
        with pytest.raises(ForgeError):
            offered(house, task)
    forge.before["push"] += [ForgeError("never")]
    assert house.service.proposals.resume() == 0
    assert house.service.proposals.resume() == 2
    assert [pull.task for pull in forge.pulls()] == ["bad", "good"]


def test_altered_content_of_one_proposal_does_not_hold_up_the_others(forged):
    house, forge = forged()
    forge.before["push"] += [ForgeError("down")] * 2
    for task in ("a", "b"):
        with pytest.raises(ForgeError):
            offered(house, task)
    (house.config.state / "outbox" / "a-p.proposal").unlink()
    assert house.service.proposals.resume() == 1
    assert [pull.task for pull in forge.pulls()] == ["b"]


def test_a_forge_that_is_down_all_night_is_one_line_in_the_log_and_one_call_a_round(forged):
    house, forge = forged()
    house.grant("t1")
    house.grant("t2")
    forge.before["push"] += [ForgeError("down")] * 7
    for task in ("t1", "t2"):
        with pytest.raises(ForgeError):
            offered(house, task)
    for _ in range(5):
        assert house.service.proposals.resume() == 0
    assert forge.before["push"] == []
    events = [entry.event for entry in house.service.log(0).entries]
    assert (events.count("failed"), events.count("not-resumed")) == (2, 0)


def test_a_forge_that_says_when_is_not_asked_before(timed):
    house, forge, clock = timed()
    house.grant()
    forge.before["push"] += [ForgeError("slow down", when=clock.now + 600)] * 2
    with pytest.raises(ForgeError):
        offered(house)
    assert house.service.proposals.resume() == 0  # asked once more, and told when
    assert house.service.proposals.resume() == 0
    assert forge.before["push"] == []
    clock.now += 601
    assert house.service.proposals.resume() == 1


def test_labels_that_a_busy_forge_does_not_take_now_are_put_on_later_and_at_last_given_up(forged):
    house, forge = forged(policy={"labels": ["agent"]})
    forge.before["dress"] += [ForgeError("slow down", reason="limit")] * 2
    with pytest.raises(ForgeError):
        offered(house)
    assert house.service.proposals.resume() == 0
    assert house.service.proposals.resume() == 1
    receipt = house.service.proposals.status("t1-p")
    assert (receipt.warnings, forge.dressed[receipt.number].labels, len(forge.pulls())) == ((), ("agent",), 1)
    forge.before["dress"] += [ForgeError("slow down", reason="limit")] * 5
    with pytest.raises(ForgeError):
        offered(house, "t2")
    while not house.service.proposals.resume():
        assert forge.before["dress"]
    assert [warning.rule for warning in house.service.proposals.status("t2-p").warnings] == ["dressing"]


def test_what_was_put_on_once_is_not_put_on_again_after_a_restart(forged):
    house, forge = forged(policy={"reviewers": ["ann"]})
    forge.will_not_wear = ("ann is away",)
    forge.before["report"] += [ForgeError("slow down", reason="limit")]
    with pytest.raises(ForgeError):
        offered(house)
    forge.dressed.clear()  # a person took it off
    house.service.proposals.resume()
    receipt = house.service.proposals.status("t1-p")
    assert (forge.dressed, [warning.message for warning in receipt.warnings]) == ({}, ["ann is away"])


def test_a_task_granted_anew_after_its_pull_request_was_closed_opens_another(forged):
    house, forge = forged()
    first = offered(house)
    forge.close(first.number)
    del forge.branches["swarm/t1"]
    house.grants.clear()
    again = house.offer({"src/more.py": b"more = 1\n"}, id="anew")
    assert (again.number, [pull.state for pull in forge.pulls()]) == (2, ["open", "closed"])


def test_one_that_waits_says_why_and_when_it_is_worth_asking_again(timed):
    house, forge, clock = timed(policy={"hours": ["mon-fri 08:00-18:00"]})
    clock.now += 12 * 3600  # midnight
    with pytest.raises(BudgetError) as told:
        offered(house)
    standing = house.service.proposals.status("t1-p")
    assert (standing.reason, standing.opens) == (str(told.value), told.value.opens)
    clock.now += 9 * 3600
    forge.before["push"] += [ForgeError("slow down", when=clock.now + 600)]
    house.service.proposals.resume()
    assert house.service.proposals.status("t1-p") == Waiting(proposal="t1-p", reason="slow down", opens=clock.now + 600)
    assert house.service.proposals.kept("t1-p").reason == "slow down"
    clock.now += 601
    house.service.proposals.resume()
    assert isinstance(house.service.proposals.status("t1-p"), Receipt)
    assert house.service.proposals.kept("t1-p").reason == ""
