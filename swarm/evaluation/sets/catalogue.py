"""The sets by name, and what each one needs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

from swarm.config_text import nearest
from swarm.errors import EvaluationError
from swarm.evaluation.case import Case, CaseSet
from swarm.evaluation.sets import exercism, folders, harbor, humanevalfix, mutants, quixbugs, swebench, terminal_bench
from swarm.evaluation.sets.given import Given
from swarm.evaluation.sets.reading import refuse
from swarm.types import Frozen


class Entry(Frozen):
    """What a list of sets shows of one. ``needs_path`` is what has to follow its name and a colon; empty: nothing."""

    name: str
    summary: str
    origin: str
    licence: str
    needs_path: str = ""


_ENTRIES = (
    Entry(
        name=humanevalfix.NAME,
        summary="82 Python functions with a bug made by hand; shipped",
        origin=humanevalfix.HumanEvalFix.origin,
        licence="MIT",
    ),
    Entry(
        name=mutants.NAME,
        summary="single-line mutants of HumanEval's solutions, made on the fly; others by mutants:SEED (any text)",
        origin=f"the package {mutants.PACKAGE} (OpenAI), by pip install 'agent-swarm[eval]'",
        licence="MIT",
    ),
    Entry(
        name=quixbugs.NAME,
        summary="40 classic algorithms with one faulty line, Python",
        origin="a clone of jkoppel/QuixBugs",
        licence="MIT",
        needs_path="a clone",
    ),
    Entry(
        name=exercism.NAME,
        summary="practice exercises of a track: Python, Go, Rust, Ruby, Bash",
        origin="a clone of a track of exercism",
        licence="MIT",
        needs_path="a clone",
    ),
    Entry(
        name=harbor.NAME,
        summary="task folders in Harbor's format",
        origin="the user's",
        licence="unknown",
        needs_path="a task, or a folder of tasks",
    ),
    Entry(
        name=terminal_bench.NAME,
        summary="task folders in Terminal-Bench's format",
        origin="the user's",
        licence="unknown",
        needs_path="a task, or a folder of tasks",
    ),
    Entry(
        name=swebench.NAME,
        summary="rows as SWE-bench has them, over local repositories",
        origin="the user's",
        licence="unknown",
        needs_path="a JSON or JSONL file",
    ),
    Entry(
        name=folders.NAME,
        summary="cases in the project's own layout",
        origin="the user's",
        licence="unknown",
        needs_path="a case, or a folder of cases",
    ),
)
CATALOGUE: Mapping[str, Entry] = MappingProxyType({entry.name: entry for entry in _ENTRIES})
_WITH_PATH: Mapping[str, Callable[[Path, Given], CaseSet]] = MappingProxyType(
    {
        quixbugs.NAME: lambda path, _: quixbugs.QuixBugs(path),
        exercism.NAME: lambda path, _: exercism.Exercism(path),
        harbor.NAME: harbor.Harbor,
        terminal_bench.NAME: terminal_bench.TerminalBench,
        swebench.NAME: swebench.SweRows,
        folders.NAME: folders.Folders,
    }
)


class Guarded:
    """A set out of a user's folder: what the system says of a place in it is told as the other refusals are."""

    def __init__(self, inner: CaseSet) -> None:
        self._inner = inner
        self.name, self.origin = inner.name, inner.origin

    @property
    def licence(self) -> str:
        """As the set tells it. Raises EvaluationError."""
        with _readable(self.name):
            return self._inner.licence

    def cases(self) -> Iterator[Case]:
        """As the set has them. Raises EvaluationError."""
        with _readable(self.name):
            yield from self._inner.cases()


@contextmanager
def _readable(name: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        refuse(str(error.filename or name)[:200], error.strerror or str(error), "make it readable, or leave it out")


def set_named(wanted: str, given: Given = Given()) -> CaseSet:  # noqa: B008  frozen
    """The set of a name: "humanevalfix", "mutants", "mutants:SEED", or NAME:PATH.

    Raises EvaluationError, with the mend, for a name that there is not and for a path that is missing or unfit.
    """
    name, _, rest = wanted.partition(":")
    if any("\ud800" <= letter <= "\udfff" for letter in wanted):
        raise EvaluationError(f"the name of the set, {wanted[:200]!r}, is not UTF-8", "give its folder another name")
    if name not in CATALOGUE:
        like = nearest(name, tuple(CATALOGUE))
        raise EvaluationError(
            f"there is no set {name[:200]!r}",
            f"did you mean {like}?" if like else f"use one of: {', '.join(CATALOGUE)}",
        )
    needed = CATALOGUE[name].needs_path
    if needed and not rest:
        raise EvaluationError(f"the set {name} needs {needed}", f"name its path: {name}:PATH")
    if name in _WITH_PATH:
        with _readable(wanted):
            return Guarded(_WITH_PATH[name](Path(rest), given))
    if name == mutants.NAME:
        return mutants.Mutants(rest or "0")
    if rest:
        raise EvaluationError(f"the set {name} takes nothing after its name, and got {rest!r}", f"write {name}")
    return humanevalfix.HumanEvalFix()
