"""Task folders in the format of Terminal-Bench: ``terminal-bench:FOLDER``, one task or a folder of them.

The format, from https://www.tbench.ai/docs/task-tutorial and the task model of its trial handler: ``task.yaml`` with
instruction (in older tasks descriptions, the one with the key "base"), max_agent_timeout_sec (360),
max_test_timeout_sec (60) and parser_name; ``Dockerfile`` and ``docker-compose.yaml``; ``run-tests.sh``; ``tests/``,
found through TEST_DIR; ``solution.sh``, or ``solution.yaml`` with a list of commands. What `containers` says holds.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from swarm.evaluation.case import Case, File
from swarm.evaluation.sets import containers
from swarm.evaluation.sets.containers import JUDGE
from swarm.evaluation.sets.given import Given
from swarm.evaluation.sets.harbor import image_in, judged_by, labels_of, several
from swarm.evaluation.sets.reading import data, folder, holding, inside, made, refuse, text

NAME = "terminal-bench"
_SCRIPT = "run-tests.sh"
_PARSERS = ("pytest",)  # of which an exit code of 0 says the same as the parser


class TerminalBench:
    """The tasks of a folder."""

    licence = "unknown"

    def __init__(self, path: Path, given: Given) -> None:
        self._top = folder(path, "Terminal-Bench tasks, each with a task.yaml")
        self._given = given
        self.name = f"{NAME}:{path}"
        self.origin = f"Terminal-Bench tasks in {self._top}"

    def cases(self) -> Iterator[Case]:
        """The tasks in the order of their names. Raises EvaluationError."""
        tasks = holding(self._top, "task.yaml")
        if not tasks:
            refuse(self._top, "holds no task.yaml, nor does a folder in it", "name a task, or a folder of tasks")
        yield from map(self._case, tasks)

    def _case(self, task: Path) -> Case:
        where = task / "task.yaml"
        told = containers.yaml_object(text(where), where)
        dockerfile = containers.dockerfile_in(task)
        here = containers.working_folder(dockerfile)
        script = text(task / _SCRIPT) if (task / _SCRIPT).exists() else ""
        tests = inside(task, "tests")
        command, blocked = judged_by(script or "curl x", has_pytest=(tests / "test_outputs.py").exists())
        files = containers.judging(tests, here) if tests.exists() else ()
        if script:
            moved = containers.moved(script, here).encode()
            files = (*files, File(path=f"{JUDGE}/{_SCRIPT}", content=moved, executable=True))
        return made(
            where,
            id=task.name,
            statement=containers.told(_instruction(told, where), here),
            files=containers.copied(task, dockerfile, here),
            image=self._given.image_of(task.name, image_in(task)),
            hidden={
                "files": files,
                "removed": (JUDGE,),
                "command": command or f"bash {JUDGE}/{_SCRIPT}",
                "env": {"TEST_DIR": f"{JUDGE}/tests"},
                "seconds": told.get("max_test_timeout_sec", 60.0),
            },
            solution=_solution(task, here),
            allowance={"wall": told.get("max_agent_timeout_sec", 360.0)},
            labels=labels_of(told),
            blocked=blocked or several(task) or _unread(told),
        )


def _instruction(told: dict[str, Any], where: Path) -> str:
    found = told.get("instruction")
    for one in told.get("descriptions") or ():
        if isinstance(one, dict) and one.get("key") == "base":
            found = found or one.get("description")
    if not isinstance(found, str) or not found.strip():
        refuse(where, "has no instruction", "write what is asked as instruction: |-")
    return found


def _solution(task: Path, here: str) -> dict[str, str] | None:
    if (task / "solution.sh").exists():
        return {"script": containers.moved(data(task / "solution.sh").decode("utf-8", "replace"), here)}
    if not (path := task / "solution.yaml").exists():
        return None
    commands = [one.get("command") for one in containers.yaml_list(text(path), path) if isinstance(one, dict)]
    lines = [command for command in commands if isinstance(command, str)]
    return {"script": containers.moved("\n".join(lines), here)} if lines else None


def _unread(told: dict[str, Any]) -> str:
    parser = told.get("parser_name", "pytest")
    return "" if parser in _PARSERS else f"its results need the parser {parser!r}, which there is not"
