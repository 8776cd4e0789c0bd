"""Task folders in the format of Harbor: ``harbor:FOLDER``, one task or a folder of them.

The format, from https://www.harborframework.com/docs/tasks: ``instruction.md``; ``task.toml`` with [metadata],
[verifier] timeout_sec, [agent] timeout_sec and [environment] docker_image; ``environment/Dockerfile``;
``tests/test.sh``, which leaves a number in /logs/verifier/reward.txt or reward.json; ``solution/solve.sh``. A task is
solved here by a reward of 1. What `containers` says holds: no network while it is judged, /work for the task's folder.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from swarm.evaluation.case import Case
from swarm.evaluation.sets import containers
from swarm.evaluation.sets.containers import JUDGE
from swarm.evaluation.sets.given import Given
from swarm.evaluation.sets.reading import folder, holding, inside, made, refuse, text, toml

NAME = "harbor"
_REWARD = f"{JUDGE}/logs/verifier"
_COMMAND = (
    f"mkdir -p {_REWARD}; bash {JUDGE}/tests/test.sh; "
    f'case "$(cat {_REWARD}/reward.txt 2>/dev/null)" in 1|1.0|1.00) exit 0;; esac; '
    f"grep -Eqs '\"reward\"[[:space:]]*:[[:space:]]*1(\\.0+)?[[:space:]]*[,}}]' {_REWARD}/reward.json"
)
_PYTEST = f"python3 -m pytest -rA {JUDGE}/tests/test_outputs.py"


class Harbor:
    """The tasks of a folder."""

    licence = "unknown"

    def __init__(self, path: Path, given: Given) -> None:
        self._top = folder(path, "Harbor tasks, each with a task.toml")
        self._given = given
        self.name = f"{NAME}:{path}"
        self.origin = f"Harbor tasks in {self._top}"

    def cases(self) -> Iterator[Case]:
        """The tasks in the order of their names. Raises EvaluationError."""
        tasks = holding(self._top, "task.toml")
        if not tasks:
            refuse(self._top, "holds no task.toml, nor does a folder in it", "name a Harbor task, or a folder of tasks")
        yield from map(self._case, tasks)

    def _case(self, task: Path) -> Case:
        told = toml(task / "task.toml")
        environment, place = _table(told, "environment", task), inside(task, "environment")
        dockerfile = containers.dockerfile_in(place)
        here = containers.working_folder(dockerfile)
        tests = inside(task, "tests")
        script = text(tests / "test.sh")
        command, blocked = judged_by(script, has_pytest=(tests / "test_outputs.py").exists())
        solution = inside(task, "solution/solve.sh")
        return made(
            task / "task.toml",
            id=task.name,
            statement=containers.told(text(task / "instruction.md"), here),
            files=containers.copied(place, dockerfile, here),
            image=self._given.image_of(task.name, environment.get("docker_image") or image_in(place)),
            hidden={
                "files": containers.judging(tests, here),
                "removed": (JUDGE,),
                "command": command or _COMMAND,
                "seconds": _table(told, "verifier", task).get("timeout_sec", 600.0),
            },
            solution={"script": containers.moved(text(solution), here)} if solution.exists() else None,
            allowance={"wall": _table(told, "agent", task).get("timeout_sec")},
            labels=labels_of(_table(told, "metadata", task)),
            blocked=blocked or several(place),
        )


def judged_by(script: str, *, has_pytest: bool) -> tuple[str, str]:
    """A command in place of the script, empty for the script itself, and why it cannot be judged, empty where it can.

    A script that fetches what it needs cannot run without a network. Most of those do so to get pytest and then run
    ``test_outputs.py``: that is done directly, with the pytest of the image.
    """
    if not containers.needs_network(script):
        return "", ""
    if has_pytest:
        return _PYTEST, ""
    return "", "its tests fetch what they need, and there is no network while a case is judged"


def image_in(place: Path) -> str | None:
    """The Dockerfile as an image to build, None where there is none."""
    return str(place / "Dockerfile") if (place / "Dockerfile").exists() else None


def several(place: Path) -> str:
    """Why an environment of several containers cannot be had; empty where it is one."""
    for name in ("docker-compose.yaml", "docker-compose.yml"):
        if (path := place / name).exists() and len(services(text(path), path)) > 1:
            return f"it needs several containers ({name})"
    return ""


def services(said: str, where: Path) -> list[str]:
    """The names of the services of a compose file. Raises EvaluationError."""
    found = containers.yaml_object(said, where).get("services") or {}
    return [str(name) for name in found] if isinstance(found, dict) else []


def _table(told: dict[str, Any], name: str, task: Path) -> dict[str, Any]:
    found = told.get(name, {})
    if not isinstance(found, dict):
        refuse(task / "task.toml", f"{name} is no table", f"write it as [{name}]")
    return found


def labels_of(metadata: dict[str, Any]) -> dict[str, str]:
    """The facts to group by."""
    found = {key: metadata.get(key) for key in ("difficulty", "category")}
    return {key: value[:200] for key, value in found.items() if isinstance(value, str) and value}
