"""Stacks for the acceptance tests: real broker, real daemon, real model, each test with its own folders."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from house import BROKER_USER, CHECKOUT, DAEMON_USER, House, account, of_one_user, of_three_users, remove_users
from stack import Layout, Source, Stack, prepare, weights

SAMPLE = Source("sample", CHECKOUT / "examples" / "sample-repository", "python3 -m pytest -q")
UNSOLVABLE = Source("unsolvable", Path(__file__).parent / "unsolvable", "python3 -m pytest -q")
WORDS = "Some tests of this repository fail. Find the fault in the package and mend it; do not change the tests."

collect_ignore = ["unsolvable"]  # a repository for the agent, not tests of ours

MakeStack = Callable[..., tuple[Stack, str]]


@pytest.fixture(scope="session")
def installed() -> Iterator[Path]:
    """A folder that every user can reach, for stacks and installations; removed at the end, users made with it too."""
    base = Path(tempfile.mkdtemp(prefix="swarm-acceptance-"))
    base.chmod(0o755)
    there = {name for name in (DAEMON_USER, BROKER_USER) if account(name)}
    yield base
    shutil.rmtree(base)
    remove_users({DAEMON_USER, BROKER_USER} - there) if os.getuid() == 0 else None


@pytest.fixture(scope="session")
def three_users(installed: Path) -> House:
    """Person, daemon and broker as three users, the daemon without the broker's code."""
    if os.getuid() != 0:
        pytest.skip("needs root: it makes users")
    return of_three_users(installed)[0]


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
