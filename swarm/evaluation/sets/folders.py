"""The project's own layout: ``folder:FOLDER``, one case or a folder of them. `docs/evaluation-sets.md` describes it.

A case is a folder with ``case.toml``, ``repository/``, ``hidden/`` and, where there is one, ``solution/`` or
``solution.patch``. The files of ``hidden/`` and ``solution/`` lie at the paths that they get in the workspace.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from swarm.evaluation.case import Case
from swarm.evaluation.sets.given import Given
from swarm.evaluation.sets.reading import folder, holding, made, refuse, text, toml, tree, within

NAME = "folder"
_ONE = "case.toml"
_COPIED = ("id", "title", "test_command", "setup", "setup_network", "look_first", "labels", "allowance", "blocked")
_KNOWN = frozenset({*_COPIED, "statement", "statement_file", "image", "licence", "hidden"})


class Folders:
    """The cases of a folder."""

    def __init__(self, path: Path, given: Given) -> None:
        self._top = folder(path, "cases, each with a case.toml")
        self._given = given
        self.name = f"{NAME}:{path}"
        self.origin = f"cases in {self._top}"

    @property
    def licence(self) -> str:
        """What all cases say, where all say the same. Raises EvaluationError."""
        said = {str(toml(path).get("licence", "unknown")) for path in self._files()}
        return said.pop() if len(said) == 1 else "unknown"

    def cases(self) -> Iterator[Case]:
        """The cases in the order of their folders' names. Raises EvaluationError."""
        for path in self._files():
            yield self._case(path.parent, path)

    def _files(self) -> list[Path]:
        found = holding(self._top, _ONE)
        if not found:
            refuse(self._top, f"holds no {_ONE}, nor does a folder in it", "name a case, or a folder of cases")
        return [place / _ONE for place in found]

    def _case(self, place: Path, where: Path) -> Case:
        told = toml(where)
        if unknown := sorted(set(told) - _KNOWN):
            refuse(where, f"has the unknown field {unknown[0]!r}", f"use some of {', '.join(sorted(_KNOWN))}")
        name = told.get("id", place.name)
        hidden = told.get("hidden")
        if not isinstance(hidden, dict) or "files" in hidden or "patch" in hidden:
            refuse(where, "has no table [hidden], or one that names files", "give it a command; files lie in hidden/")
        return made(
            where,
            **{**{key: told[key] for key in _COPIED if key in told}, "id": name},
            statement=_statement(told, place, where),
            files=tree(folder(place / "repository", "the case's repository, beside case.toml")),
            image=self._given.image_of(str(name), told.get("image")),
            hidden={**hidden, "files": tree(place / "hidden") if (place / "hidden").is_dir() else ()},
            solution=_solution(place),
        )


def _statement(told: dict[str, Any], place: Path, where: Path) -> Any:
    if ("statement" in told) == ("statement_file" in told):
        refuse(where, "needs either statement or statement_file", "write what is asked of the agent")
    if "statement" in told:
        return told["statement"]
    return text(within(place, str(told["statement_file"]), where))


def _solution(place: Path) -> dict[str, Any] | None:
    if (place / "solution.patch").exists():
        return {"patch": text(place / "solution.patch")}
    if (place / "solution").is_dir():
        return {"files": tree(place / "solution")}
    return None
