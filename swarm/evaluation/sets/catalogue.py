"""The sets by name, and what each one needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from swarm.config_text import nearest
from swarm.errors import EvaluationError
from swarm.evaluation.case import CaseSet
from swarm.evaluation.sets import exercism, folders, harbor, humanevalfix, mutants, quixbugs, swebench, terminal_bench
from swarm.evaluation.sets.given import Given
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


def set_named(wanted: str, given: Given = Given()) -> CaseSet:  # noqa: B008  frozen
    """The set of a name: "humanevalfix", "mutants", "mutants:SEED", or NAME:PATH.

    Raises EvaluationError, with the mend, for a name that there is not and for a path that is missing or unfit.
    """
    name, _, rest = wanted.partition(":")
    if name not in CATALOGUE:
        like = nearest(name, tuple(CATALOGUE))
        raise EvaluationError(
            f"there is no set {name!r}", f"did you mean {like}?" if like else f"use one of: {', '.join(CATALOGUE)}"
        )
    needed = CATALOGUE[name].needs_path
    if needed and not rest:
        raise EvaluationError(f"the set {name} needs {needed}", f"name its path: {name}:PATH")
    if name in _WITH_PATH:
        return _WITH_PATH[name](Path(rest), given)
    if name == mutants.NAME:
        return mutants.Mutants(rest or "0")
    if rest:
        raise EvaluationError(f"the set {name} takes nothing after its name, and got {rest!r}", f"write {name}")
    return humanevalfix.HumanEvalFix()
