"""Finds out, for a person, how a repository is tested: without a set-up first, then with what its files suggest to
install, each kind of tools by itself."""

from __future__ import annotations

from collections.abc import Callable

from sandbox.errors import SetUpError
from swarm.knowledge.ecosystems import Environment
from swarm.knowledge.proving import SECONDS, Fresh, Proved, Tried, prove
from swarm.types import Frozen

KINDS = 3  # of tools that are set up, one after the other


class Examination(Frozen):
    """``proved`` is None where none of what was ``tried`` runs tests; ``setup`` is what it needs to have been run."""

    proved: Proved | None = None
    setup: tuple[str, ...] = ()
    tried: tuple[Tried, ...] = ()


async def examine(
    found: Environment, opened: Callable[[tuple[str, ...]], Fresh], *, network: bool, seconds: float = SECONDS
) -> Examination:
    """The first command that is seen to run tests. ``opened(setup)`` gives fresh sandboxes with a set-up done.

    Without ``network`` nothing is installed. A set-up that fails is told, and no error. Raises SandboxError else.
    """
    plain = [each for each in found.tests if not each.installed]
    proved, tried = await prove(opened(()), plain, seconds=seconds)
    if proved is not None or not network:
        return Examination(proved=proved, tried=tried)
    kinds = dict.fromkeys(each.kind for each in (*found.tests, *found.setup) if each.kind)
    for kind in list(kinds)[:KINDS]:
        setup = tuple(each.command for each in found.setup if each.kind == kind)
        tests = [each for each in found.tests if each.kind == kind]
        tests.sort(key=lambda each: not each.installed)
        if not setup or not tests:
            continue
        try:
            proved, more = await prove(opened(setup), tests, seconds=seconds)
        except SetUpError as error:
            more = (Tried(command=" && ".join(setup), why=tests[0].why, went=f"the set-up failed: {error}"),)
        tried += more
        if proved is not None:
            return Examination(proved=proved, setup=setup, tried=tried)
    return Examination(tried=tried)
