"""Stacks for the acceptance tests: real broker, real daemon, real model, each test with its own folders."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from house import CHECKOUT, House, of_one_user, of_three_users, remove_users
from stack import Layout, Source, Stack, prepare, weights

SAMPLE = Source("sample", CHECKOUT / "examples" / "sample-repository", "python3 -m pytest -q")
UNSOLVABLE = Source("unsolvable", Path(__file__).parent / "unsolvable", "python3 -m pytest -q")
WORDS = "Some tests of this repository fail. Find the fault in the package and mend it; do not change the tests."

collect_ignore = ["unsolvable"]  # a repository for the agent, not tests of ours

MakeStack = Callable[..., tuple[Stack, str]]


@pytest.fixture(scope="session")
def installed() -> Iterator[Path]:
    """A folder that every user can reach, for stacks and installations; removed at the end."""
    base = Path(tempfile.mkdtemp(prefix="swarm-acceptance-"))
    base.chmod(0o755)
    yield base
    shutil.rmtree(base)


@pytest.fixture(scope="module")
def three_users(installed: Path) -> Iterator[House]:
    """Person, daemon and broker as three users, the daemon without the broker's code; users made for it are removed.

    One at a time on this machine, since the users and their control group are the machine's.
    """
    if os.getuid() != 0:
        pytest.skip("needs root: it makes users")
    with Path("/run/agent-swarm-acceptance.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        house, made = of_three_users(installed)
        yield house
        remove_users(made)


@pytest.fixture(scope="session")
def one_user() -> House:
    """All as whoever runs the tests."""
    return of_one_user()


@pytest.fixture
def make_stack(installed: Path) -> Iterator[MakeStack]:
    """Start a stack for a house; every one is stopped at the end of the test, and its logs are shown."""
    stacks: list[Stack] = []

    def make(house: House, *, pool: str = "", sources: tuple[Source, ...] = (SAMPLE,)) -> tuple[Stack, str]:
        base = Path(tempfile.mkdtemp(prefix="s-", dir=installed))
        base.chmod(0o755)
        embedded = f'[pool.embedded]\nenabled = true\nweights = "{weights()}"'
        stack, canary = prepare(Layout(base), house, sources, pool or embedded)
        stacks.append(stack)
        stack.start()
        return stack, canary

    try:
        yield make
    finally:
        for stack in stacks:
            stack.stop()
            print(stack.broker.tail(), stack.daemon.tail(), sep="\n")  # noqa: T201 - pytest shows it when a test fails
