"""Legal moves, and what follows an attempt, for every ending."""

from __future__ import annotations

from itertools import product

import pytest

from swarm import lifecycle
from swarm.errors import IllegalMoveError
from swarm.lifecycle import (
    HELD,
    MOVES,
    after_delivery,
    after_word,
    carries,
    decide,
    may_still_pass,
    why_legal,
)
from swarm.types import (
    Attempt,
    AttemptResult,
    Budget,
    CheckReport,
    Conclusion,
    Ending,
    Failure,
    Fault,
    Outcome,
    Sealed,
    Spent,
    TaskState,
)

S = TaskState
LADDER = ("small", "medium", "large")
CHANGED = Sealed(base="b", tree="t", files=("a",), changed=True)
UNCHANGED = Sealed(base="b", tree="t", changed=False)
PASSED = CheckReport(base=None, proposal=None, verdict="passed", fixed=("x",))
FAILED = CheckReport(base=None, proposal=None, verdict="failed", reason="x broke")
NOT_RUN = CheckReport(base=None, proposal=None, verdict="not_run", reason="no command")


def attempt(tier: str = "small", number: int = 1) -> Attempt:
    return Attempt(id="t-1", task="t", number=number, tier=tier, strategy="agent", started=0.0)


def result(
    ending: Ending = "finished",
    sealed: Sealed | None = CHANGED,
    report: CheckReport | None = PASSED,
    fault: Fault | None = None,
) -> AttemptResult:
    return AttemptResult(
        conclusion=Conclusion(ending=ending, summary="said"), sealed=sealed, report=report, fault=fault
    )


def fault(kind: str) -> Fault:
    return Fault.model_validate({"kind": kind, "failure": Failure(what="w", why="y", mend="m")})


def decided(
    given: AttemptResult, *, tier: str = "small", attempts: int = 1, ladder: tuple[str, ...] = LADDER
) -> lifecycle.Decision:
    return decide(attempt(tier, attempts), given, Budget(attempts=3), Spent(attempts=attempts), ladder)


def test_every_final_state_can_be_reached_and_none_leads_on_by_itself() -> None:
    finals = {state for state in S if state.final}
    assert finals == {end for _, end in MOVES if end.final}
    for start, end in MOVES:
        if start.final and start not in HELD:
            assert end is S.QUEUED


def test_what_the_broker_holds_moves_on_by_the_brokers_word_alone() -> None:
    later = {(start, end) for start, end in MOVES if start.final and end is not S.QUEUED}
    assert later == {(S.NEEDS_PERSON, S.DELIVERED), (S.NEEDS_PERSON, S.REFUSED), (S.REFUSED, S.DELIVERED),
                     (S.REFUSED, S.NEEDS_PERSON)}  # fmt: skip


def test_what_the_broker_holds_is_told_and_may_still_pass() -> None:
    waiting = {"kind": "waiting", "proposal": "t", "reason": "stopped by a person"}
    state, why = after_word(waiting)
    assert state is S.NEEDS_PERSON
    assert "by itself" in why
    assert "stopped by a person" in why
    block, fatal = ({"rule": "r", "severity": severity, "message": "m"} for severity in ("block", "fatal"))
    assert may_still_pass(waiting)
    assert may_still_pass({"kind": "refusal", "findings": [block]})
    assert not may_still_pass({"kind": "refusal", "findings": [block, fatal]})
    assert not may_still_pass({"kind": "receipt"})


def test_what_was_delivered_stays_delivered() -> None:
    assert [end for start, end in MOVES if start is S.DELIVERED] == []


def test_every_other_pair_is_refused_with_both_names() -> None:
    for start, end in product(S, S):
        if (start, end) in MOVES:
            assert why_legal(start, end)
        else:
            with pytest.raises(IllegalMoveError, match=f"{start.value}.*{end.value}"):
                why_legal(start, end)


def test_passing_checks_deliver() -> None:
    assert decided(result()).kind == "deliver"


@pytest.mark.parametrize(
    ("given", "state"),
    [
        (result(sealed=UNCHANGED, report=None), S.NO_CHANGE),
        (result(sealed=None, report=None), S.NO_CHANGE),
        (result("no_change"), S.NO_CHANGE),
        (result("limit_hit"), S.LIMIT_HIT),
        (result("cancelled"), S.CANCELLED),
        (result("infra_failed"), S.INFRA_FAILED),
        (result(report=NOT_RUN), S.NEEDS_PERSON),
        (result(report=None), S.NEEDS_PERSON),
        (result(fault=fault("person")), S.NEEDS_PERSON),
        (result(fault=fault("lasting")), S.INFRA_FAILED),
    ],
)
def test_endings_are_told_apart(given: AttemptResult, state: TaskState) -> None:
    decision = decided(given)
    assert decision.kind == "end"
    assert decision.state is state
    assert decision.reason


@pytest.mark.parametrize("given", [result("gave_up"), result(report=FAILED)])
def test_an_agents_fault_climbs_and_never_repeats_on_its_tier(given: AttemptResult) -> None:
    decision = decided(given)
    assert (decision.kind, decision.tier, decision.wait) == ("climb", "medium", 0.0)


@pytest.mark.parametrize(("given", "state"), [(result("gave_up"), S.GAVE_UP), (result(report=FAILED), S.CHECKS_FAILED)])
def test_an_agents_fault_ends_at_the_top_when_pinned_and_when_attempts_are_spent(
    given: AttemptResult, state: TaskState
) -> None:
    assert decided(given, tier="large").state is state
    assert decided(given, ladder=()).state is state
    assert decided(given, attempts=3).state is state


def test_a_passing_fault_waits_longer_each_time_and_stays_on_its_tier() -> None:
    first, second = decided(result(fault=fault("passing"))), decided(result(fault=fault("passing")), attempts=2)
    assert (first.kind, first.tier) == ("retry", "small")
    assert 0 < first.wait < second.wait


def test_a_passing_fault_ends_when_the_one_count_of_attempts_is_spent() -> None:
    decision = decided(result(fault=fault("passing")), attempts=3)
    assert decision.state is S.INFRA_FAILED
    assert "3 attempts" in decision.reason


def test_a_delivery_ends_by_the_brokers_word_alone() -> None:
    receipt = {"kind": "receipt", "pull_request": "1", "url": "http://forge/1"}
    refusal = {"kind": "refusal", "findings": [{"rule": "protected", "message": "not that file"}]}
    assert after_delivery(Outcome(result=result(), verdict=receipt)) == (S.DELIVERED, "pull request http://forge/1")
    assert after_delivery(Outcome(result=result(), verdict=refusal)) == (S.REFUSED, "protected: not that file")
    assert after_delivery(Outcome(result=result(), fault=fault("passing")))[0] is S.NEEDS_PERSON


def test_a_proposal_that_only_waits_for_a_person_is_not_called_refused() -> None:
    ask = {"rule": "approval", "severity": "ask", "message": "a person approves every proposal"}
    told = {"rule": "base-moved", "severity": "warn", "message": "main has moved on"}
    verdict = {"kind": "refusal", "proposal": "t-1-p", "waits": True, "findings": [ask, told]}
    state, why = after_delivery(Outcome(result=result(), verdict=verdict))
    assert state is S.NEEDS_PERSON
    assert why == "approval: a person approves every proposal; a person approves it: swarm-broker proposals show t-1-p"
    refused = {**verdict, "waits": False, "findings": [{**ask, "rule": "secret", "severity": "block"}, told]}
    state, why = after_delivery(Outcome(result=result(), verdict=refused))
    assert (state, "base-moved" in why) == (S.REFUSED, False)


def test_only_finished_work_that_changed_something_is_carried_over() -> None:
    assert carries(S.NEEDS_PERSON, result())
    assert carries(S.QUEUED, result(report=None))
    assert not carries(S.REFUSED, result())
    assert not carries(S.CHECKS_FAILED, result(report=FAILED))
    assert not carries(S.NEEDS_PERSON, result("limit_hit"))
    assert not carries(S.NEEDS_PERSON, result(sealed=UNCHANGED))
    assert not carries(S.NEEDS_PERSON, None)


def taught(ending: Ending, report: CheckReport | None = None) -> AttemptResult:
    told = result(ending, report=report)
    return told.model_copy(update={"conclusion": told.conclusion.model_copy(update={"lessons": "It edited: a.py"})})


@pytest.mark.parametrize("given", [taught("gave_up"), taught("finished", FAILED)])
@pytest.mark.parametrize("ladder", [(), ("small",)])
def test_lessons_are_worth_a_fresh_attempt_where_no_tier_is_above(
    given: AttemptResult, ladder: tuple[str, ...]
) -> None:
    decision = decide(attempt(), given, Budget(attempts=2), Spent(attempts=1), ladder)
    assert (decision.kind, decision.tier, decision.wait) == ("retry", "small", 0.0)


def test_a_tier_above_comes_before_a_fresh_attempt() -> None:
    decision = decide(attempt(), taught("gave_up"), Budget(attempts=2), Spent(attempts=1), ("small", "large"))
    assert (decision.kind, decision.tier) == ("climb", "large")


@pytest.mark.parametrize(
    "spent", [Spent(attempts=2), Spent(attempts=1, tokens=310_000), Spent(attempts=1, steps=46), Spent(wall=1400.0)]
)
def test_a_fresh_attempt_is_not_begun_on_the_rest_of_a_budget(spent: Spent) -> None:
    decision = decide(attempt(), taught("gave_up"), Budget(attempts=2), spent, ())
    assert (decision.kind, decision.state) == ("end", TaskState.GAVE_UP)


@pytest.mark.parametrize("ending", ["limit_hit", "asked", "cancelled"])
def test_lessons_alone_begin_nothing_again(ending: Ending) -> None:
    assert decide(attempt(), taught(ending), Budget(attempts=9), Spent(attempts=1), ("small", "large")).kind == "end"


def test_a_question_waits_for_a_person_in_one_line() -> None:
    asked = AttemptResult(conclusion=Conclusion(ending="asked", summary="Which\none?"), sealed=CHANGED)
    decision = decide(attempt(), asked, Budget(), Spent(attempts=1), ("small", "large"))
    assert (decision.state, decision.reason) == (TaskState.NEEDS_PERSON, "the agent asks: Which one?")
