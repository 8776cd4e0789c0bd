"""Which of several finished attempts is taken, and when no more are needed. Pure.

Tests come first; among those that they cannot tell apart the patch that most attempts arrived at (as self-consistency
takes the most frequent answer: Wang et al., 2022; for patches: Agentless, Xia et al., 2024), then the smallest.
"""

from __future__ import annotations

import ast
import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from swarm.strategies.spectrum import parse
from swarm.strategies.trial import Verdict
from swarm.types import Frozen


class Vote(Frozen):
    """One attempt. ``patch`` names what it changed, as it is meant; ``size`` counts changed characters."""

    name: str
    changed: bool
    finished: bool
    verdict: Verdict
    patch: str = ""
    size: int = 0

    @property
    def behaviour(self) -> tuple[bool, tuple[str, ...], tuple[str, ...]]:
        """How the tests see it: what is alike here differs in no test."""
        return self.verdict.passed, tuple(sorted(self.verdict.fixed)), tuple(sorted(self.verdict.failing))


@dataclass(frozen=True)
class Choice:
    """The vote that is taken, and why."""

    vote: Vote
    agreed: int
    why: str


def choose(votes: Sequence[Vote]) -> Choice | None:
    """The best of those that changed anything; None where none did."""
    running = [vote for vote in votes if vote.changed]
    if not running:
        return None
    patches = Counter(vote.patch for vote in running)
    behaviours = Counter(vote.behaviour for vote in running)

    def worth(item: tuple[int, Vote]) -> tuple[float, ...]:
        number, vote = item
        found = vote.verdict
        tests = (found.passed, len(found.fixed) - len(found.broken), -len(found.failing))
        return (*tests, vote.finished, patches[vote.patch], behaviours[vote.behaviour], -vote.size, -number)

    best = max(enumerate(running), key=worth)[1]
    return Choice(best, patches[best.patch], _why(best, running, patches[best.patch]))


def decided(votes: Sequence[Vote], of: int, agree: int) -> bool:
    """Whether what is still to come need not be waited for.

    So many as ``agree`` attempts passed the tests with the same patch; or so many passed tests that had failed before,
    whatever their patches; or a majority of all ``of`` agree on a patch that no test speaks against.
    """
    passed = [vote for vote in votes if vote.changed and vote.finished and (vote.verdict.passed or not _known(vote))]
    most = max(Counter(vote.patch for vote in passed).values(), default=0)
    proved = sum(vote.verdict.proved for vote in passed)
    by_tests = max(Counter(vote.patch for vote in passed if vote.verdict.passed).values(), default=0)
    return by_tests >= agree or proved >= agree or most > of // 2


def named(files: Mapping[str, tuple[bytes | None, bytes | None]]) -> str:
    """Names a patch by what it means: files by path, before and after, None where there is none.

    Layout and comments of Python, and blanks elsewhere, make no difference.
    """
    whole = hashlib.sha256()
    for path, (_, after) in sorted(files.items()):
        whole.update(repr((path, None if after is None else _meaning(path, after))).encode())
    return whole.hexdigest()[:16]


def _meaning(path: str, content: bytes) -> str:
    text = content.decode("utf-8", "surrogateescape")
    if path.endswith(".py"):
        try:
            return ast.dump(parse(text))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            pass
    return " ".join(text.split())


def _known(vote: Vote) -> bool:
    return vote.verdict.known


def _why(best: Vote, running: Sequence[Vote], agreed: int) -> str:
    found = best.verdict
    passing = sum(vote.verdict.passed for vote in running)
    tests = "no tests were there to tell them apart"
    if found.known:
        tests = f"{passing} of {len(running)} pass the tests" + (
            "" if found.passed else ", this one fails least of them"
        )
    patch = f"{agreed} agree on its patch" if agreed > 1 else "no other made the same patch"
    return f"{best.name} is taken: {tests}; {patch}; {best.size} characters changed"
