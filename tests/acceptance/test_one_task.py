"""One task, from the command line to a pull request or to an honest end, with real processes and a real model."""

from __future__ import annotations

import pytest

from house import House
from proof import Proof
from tests.acceptance.conftest import UNSOLVABLE, WORDS, MakeStack

pytestmark = [pytest.mark.model, pytest.mark.timeout(400)]


@pytest.fixture(params=["one_user", pytest.param("three_users", marks=pytest.mark.root)])
def house(request: pytest.FixtureRequest) -> House:
    """Each of the two ways to run a stack."""
    found: House = request.getfixturevalue(request.param)
    return found


def test_task_becomes_a_pull_request_that_holds_what_was_said(make_stack: MakeStack, house: House) -> None:
    stack, canary = make_stack(house)
    done = stack.swarm("submit", "--repo", "sample", "--wait", WORDS, seconds=200)
    assert done.returncode == 0, done.stdout + done.stderr
    view = stack.newest()
    assert view["state"] == "delivered"
    assert view["report"]["base"]["failed"]
    assert view["report"]["proposal"]["failed"] == []
    assert view["report"]["fixed"]
    wrong = [claim for claim in Proof(stack, canary, view).claims() if not claim.holds]
    assert wrong == []
    assert len(stack.pulls("sample")) == 1
    assert stack.branches("sample") == sorted(["main", view["branch"]])


def test_impossible_task_ends_honestly(make_stack: MakeStack, one_user: House) -> None:
    stack, _ = make_stack(one_user, sources=(UNSOLVABLE,))
    done = stack.swarm(
        "submit", "--repo", "unsolvable", "--attempts", "1", "--max-wall", "30", "--wait", WORDS, seconds=200
    )
    view = stack.newest()
    assert view["state"] in {"gave_up", "limit_hit", "checks_failed"}, view
    assert done.returncode in {11, 12, 13}
    assert view["reason"]
    assert stack.pulls("unsolvable") == []
    assert stack.branches("unsolvable") == ["main"]
    assert all(attempt["salvage"] for attempt in view["attempts"]), view
    listed = stack.swarm("salvage", "list", "--json")
    assert view["attempts"][0]["salvage"] in listed.stdout
