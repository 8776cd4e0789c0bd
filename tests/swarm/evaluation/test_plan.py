"""The same plan makes the same tries under the same names, and says in words how it differs from another."""

from __future__ import annotations

import re

import pytest

from swarm.evaluation.plan import Way, changes
from swarm.types import Budget, Task, TaskRequest
from tests.swarm.evaluation.conftest import case, plan_of


def test_each_case_is_tried_in_every_way_before_the_next() -> None:
    plan = plan_of([case("a"), case("b", statement="other")], "agent", "nothing", repeat=2)
    order = [(each.case, each.number, each.way.strategy) for each in plan.tries()]
    assert order[:4] == [("a", 1, "agent"), ("a", 1, "nothing"), ("a", 2, "agent"), ("a", 2, "nothing")]
    assert len(order) == 8


def test_a_seed_decides_the_names_and_nothing_else_does() -> None:
    plan = plan_of([case("a")], "agent", repeat=3)
    again = plan_of([case("a")], "agent", repeat=3, started=5.0)
    other = plan_of([case("a")], "agent", repeat=3, seed=1)
    assert [each.key for each in plan.tries()] == [each.key for each in again.tries()]
    assert not {each.key for each in plan.tries()} & {each.key for each in other.tries()}
    assert len({each.key for each in plan.tries()}) == 3


@pytest.mark.parametrize("name", ["../../etc", "/", "...", "a b", "<b>", "ünï", "x" * 200, "CON", "-rf"])
def test_no_hostile_id_gets_into_a_folders_name(name: str) -> None:
    planned = next(plan_of([case(name)], "agent").tries())
    assert re.fullmatch(r"([a-z0-9]+(-[a-z0-9]+)*-)?[0-9a-f]{16}", planned.folder)
    assert len(planned.folder) < 64
    Task(id=planned.task, request=TaskRequest(repository="a", instructions="b"), budget=Budget(), created=0.0)


def test_cases_with_like_ids_have_folders_of_their_own() -> None:
    plan = plan_of([case("a/b"), case("a.b", statement="other"), case("a b", statement="third")], "agent")
    assert len({each.folder for each in plan.tries()}) == 3


def test_what_differs_is_said_in_words() -> None:
    before = plan_of([case("a"), case("b")], "agent", started=1.0)
    assert changes(before, plan_of([case("a"), case("b")], "agent", started=2.0)) == ()
    now = plan_of([case("a", statement="other"), case("c")], "auto", seed=3, budget=Budget(tokens=5, attempts=1))
    told = " ".join(changes(before, now))
    assert "ways was agent on small and is auto on small" in told
    assert "seed was 0 and is 3" in told
    assert "tokens 5" in told
    assert "1 changed (a), 1 gone (b), 1 new (c)" in told
    turned = before.model_copy(update={"cases": dict(reversed(before.cases.items()))})
    assert changes(before, turned) == ()


def test_a_way_that_asks_no_model_is_named_without_a_tier() -> None:
    assert Way(strategy="nothing", tier="-").name == "nothing"
