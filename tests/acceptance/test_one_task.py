"""One task, from the command line to a pull request, with real processes and a real model."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

import pytest

from canary import started_by
from house import House
from proof import Proof, leaks, leaks_inside
from stack import Source, Stack, StackError
from tests.acceptance.conftest import SAMPLE, UNSOLVABLE, WORDS, MakeStack

NAP = "sleep 6.125"
SLOW = Source("sample", SAMPLE.folder, f"{NAP}; python3 -m pytest -q")

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


def test_same_key_twice_is_one_task_and_one_pull_request(make_stack: MakeStack, one_user: House) -> None:
    stack, _ = make_stack(one_user)
    words = ("submit", "--repo", "sample", "--idempotency-key", "once", "--wait", WORDS)
    first, second = (stack.swarm(*words, seconds=200) for _ in range(2))
    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    assert len(stack.pulls("sample")) == 1


@pytest.mark.parametrize(
    ("kind", "data"),
    [("phase_started", {"phase": "prepare"}), ("phase_started", {"phase": "work"}),
     ("phase_started", {"phase": "check"}), ("phase_started", {"phase": "deliver"})],
    ids=["while it prepares", "while it works", "while it checks", "while it delivers"],
)  # fmt: skip
def test_killed_daemon_goes_on_and_delivers_once(
    make_stack: MakeStack, one_user: House, kind: str, data: dict[str, str]
) -> None:
    stack, _ = make_stack(one_user)
    task = stack.submit("--repo", "sample", WORDS)
    stack.until_step(task, kind, **data)
    stack.daemon.kill()
    stack.start_daemon()
    view = stack.until_final(task)
    pulls, branches = stack.pulls("sample"), stack.branches("sample")
    if view["state"] == "delivered":
        assert [pull["branch"] for pull in pulls] == [view["branch"]]
        assert branches == sorted(["main", view["branch"]])
    else:  # not lost: what was made is kept, and nothing was pushed
        assert any(attempt["salvage"] for attempt in view["attempts"]), view
        assert pulls == []
        assert branches == ["main"]


def test_impossible_task_ends_honestly(make_stack: MakeStack, one_user: House) -> None:
    stack, _ = make_stack(one_user, sources=(UNSOLVABLE,))
    done = stack.swarm(
        "submit", "--repo", "unsolvable", "--attempts", "1", "--max-wall", "60", "--wait", WORDS, seconds=200
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


@pytest.mark.root
def test_secret_is_nowhere_else_while_a_sandbox_runs(make_stack: MakeStack, three_users: House) -> None:
    stack, canary = make_stack(three_users, sources=(SLOW,))
    task = stack.submit("--repo", "sample", WORDS)
    pid = process_inside(stack)
    wrong = [claim for claim in (*leaks(stack, canary), *leaks_inside(stack, canary, pid)) if not claim.holds]
    assert wrong == []
    assert stack.until_final(task)["state"] == "delivered"
    assert canary not in stack.swarm("logs", task, "--json").stdout
    assert [claim for claim in leaks(stack, canary) if not claim.holds] == []


def process_inside(stack: Stack, seconds: float = 90.0) -> int:
    """A process that sleeps in a sandbox of this stack."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for pid in started_by([stack.daemon.pid]):
            with suppress(OSError):
                if Path(f"/proc/{pid}/cmdline").read_bytes() == NAP.encode().replace(b" ", b"\0") + b"\0":
                    return pid
        time.sleep(0.1)
    raise StackError(f"no sandbox of the daemon runs {NAP}")
