"""A trial holds what was changed against the tests that the work began with, wherever the change put others."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from swarm.strategies import change, trial

TESTS = "sh tests/check.sh"
FILES = {"m.py": "return 7\n", "tests/check.sh": "grep -q 'return 1' m.py\n"}
WEAK = "exit 0\n"


def deletes(work: Path) -> None:
    shutil.rmtree(work / "tests")
    (work / "tests").mkdir()
    (work / "tests/check.sh").write_text(WEAK)


def links(work: Path) -> None:
    shutil.rmtree(work / "tests")
    (work / "other").mkdir()
    (work / "other/check.sh").write_text(WEAK)
    (work / "tests").symlink_to("other")


@pytest.mark.parametrize("act", [deletes, links])
async def test_tests_of_the_change_s_own_do_not_vouch_for_it(desk, act) -> None:
    at = await desk(FILES, test_command=TESTS)
    async with at.sandbox.fork() as first:
        base = await trial.tests_of(at.work, first)
        act(at.sandbox.work)
        told = await change.told(first, at.sandbox)
        assert "tests/check.sh" in told.paths
        verdict = await trial.tried(at.work, base, at.sandbox, first, told.paths)
    assert not verdict.passed


async def test_a_file_where_the_tests_were_is_no_broken_machinery(desk) -> None:
    at = await desk({**FILES, "run.sh": "exit 0\n"}, test_command="sh run.sh")
    async with at.sandbox.fork() as first:
        base = await trial.tests_of(at.work, first)
        shutil.rmtree(at.sandbox.work / "tests")
        (at.sandbox.work / "tests").write_text("a file")
        told = await change.told(first, at.sandbox)
        assert (await trial.tried(at.work, base, at.sandbox, first, told.paths)).passed
