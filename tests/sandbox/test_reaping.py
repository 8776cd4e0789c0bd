"""What may be removed of the sandboxes left behind: never unsaved work, never another's that may hold some."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sandbox.reaping import prune_plan, unsaved
from sandbox.types import LeftBehind

WORK = {"task": "t", "attempt": "t-1", "repository": "demo", "base": "b" * 40, "kind": "work"}


def left(name: str = "swarm-x", *, ours: bool = True, living: bool = True, created: float = 0.0, **labels: str):
    return LeftBehind(name=name, labels=labels, created=created, living=living, ours=ours)


found = st.builds(
    LeftBehind,
    name=st.text(min_size=1, max_size=5),
    labels=st.dictionaries(
        st.sampled_from(["kind", "task", "fork"]), st.sampled_from(["work", "check", "unused", "odd", "x"]), max_size=3
    ),
    created=st.floats(0, 1e9),
    living=st.booleans(),
    ours=st.booleans(),
)


@given(st.lists(found, max_size=10), st.booleans())
def test_unsaved_work_is_never_removed_and_each_is_judged_once(all_found, all_owners) -> None:
    plan = prune_plan(all_found, all_owners=all_owners)
    assert sorted(each.left.name for each in plan.judged) == sorted(each.name for each in all_found)
    assert not any(unsaved(each) for each in plan.removed)
    assert all(each.ours or all_owners for each in plan.removed)
    assert all(each.why for each in plan.judged)


@given(st.lists(found, max_size=10))
def test_of_anothers_living_ones_only_those_without_a_label_go(all_found) -> None:
    plan = prune_plan(all_found, all_owners=True)
    assert all(each.ours or not each.living or not each.labels for each in plan.removed)


def test_an_attempts_own_workspace_is_kept_and_its_copies_and_checks_go() -> None:
    forked, check, unused = {**WORK, "fork": "swarm-a"}, {**WORK, "kind": "check"}, {"kind": "unused"}
    plan = prune_plan(
        [
            left("swarm-a", **WORK),
            left("swarm-b", **forked),
            left("swarm-c", **check),
            left("swarm-d", **unused),
            left("swarm-e", living=False, **WORK),
        ]
    )
    assert [each.left.name for each in plan.kept] == ["swarm-a"]
    assert "t-1" in plan.kept[0].why
    assert [each.name for each in plan.removed] == ["swarm-b", "swarm-c", "swarm-d", "swarm-e"]


def test_one_that_anothers_daemon_held_ready_may_hold_work() -> None:
    plan = prune_plan([left("swarm-a", ours=False, kind="warm"), left("swarm-b", ours=False)], all_owners=True)
    assert [each.name for each in plan.removed] == ["swarm-b"]


def test_a_label_that_nobody_knows_is_left_alone() -> None:
    assert prune_plan([left(kind="experiment")]).removed == ()


def test_the_oldest_comes_first() -> None:
    plan = prune_plan([left("swarm-b", created=2.0), left("swarm-a", created=1.0)])
    assert [each.left.name for each in plan.judged] == ["swarm-a", "swarm-b"]
