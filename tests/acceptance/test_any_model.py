"""What a stack of real processes does whatever its model is: tasks once each, a killed daemon, a secret nowhere else.

The model is a pretend server that knows the fault; `test_one_task.py` has the real one.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from canary import started_by
from house import House
from proof import leaks, leaks_inside
from stack import Source, Stack, StackError
from tests.acceptance.conftest import SAMPLE, WORDS, MakeStack
from tests.acceptance.scripted import mends_the_sample, pool_of, scripted

NAP = "sleep 6.125"
SLOW = Source("sample", SAMPLE.folder, f"{NAP}; python3 -m pytest -q")

pytestmark = [pytest.mark.root, pytest.mark.timeout(400)]


@pytest.fixture
def pool() -> Iterator[str]:
    """The pool's part of the settings, of a model that always knows."""
    with scripted(mends_the_sample) as server:
        yield pool_of(server)


def test_same_key_twice_is_one_task_and_one_pull_request(make_stack: MakeStack, one_user: House, pool: str) -> None:
    stack, _ = make_stack(one_user, pool=pool)
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
    make_stack: MakeStack, one_user: House, pool: str, kind: str, data: dict[str, str]
) -> None:
    stack, _ = make_stack(one_user, pool=pool)
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


def test_secret_is_nowhere_else_while_a_sandbox_runs(make_stack: MakeStack, three_users: House, pool: str) -> None:
    stack, canary = make_stack(three_users, pool=pool, sources=(SLOW,))
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
