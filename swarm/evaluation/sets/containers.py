"""What task folders made for containers come to here: files of the workspace, places that move, what cannot be had.

Such a task expects its files in a folder of the container, tests in /tests, and often a network while it is judged.
Here the files that its Dockerfile copies into that folder are the repository, and the folder is /work. Paths are
rewritten in what judges and in the reference solution; the agent is told of it in a line.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from sandbox.rules.profile import WORK
from swarm.evaluation.case import File
from swarm.evaluation.sets.reading import data, inside, plain, refuse, text, tree, within

JUDGE = ".judge"  # the folder of whatever judges, taken away from the agent's work first
DEFAULT = "/app"  # where tasks live whose Dockerfile names no folder
_EMPTY = File(path=".gitignore", content=b"")  # a repository cannot be empty
_NEEDS_NETWORK = re.compile(
    r"\b(?:apt-get|apt|apk|dnf|yum)\b.*\b(?:install|update|add)\b|\b(?:curl|wget|uvx)\s|\bpip3?\s+install\b"
    r"|\buv\s+(?:add|pip|sync|run)\b|\bnpm\s+(?:i|install|ci)\b|\bgit\s+clone\b"
)
_LONGEST = 2000  # characters of a line that are looked at
_YAML = 256 * 1024  # characters; more takes its parser minutes
_MOST_ALIASES = 20  # of one file; a hundred may stand for billions of lines
_BOUNDARY_BEFORE, _BOUNDARY_AFTER = r"(?<![\w./-])", r"(?![\w.-])"


def needs_network(script: str) -> bool:
    """Whether a script fetches something, as far as its words tell."""
    lines = (line.lstrip()[:_LONGEST] for line in script.split("\n"))
    return any(_NEEDS_NETWORK.search(line.partition(" #")[0]) for line in lines if not line.startswith("#"))


def working_folder(dockerfile: str) -> str:
    """The folder that the container's commands run in: the last absolute WORKDIR."""
    found = DEFAULT
    for word, rest in _instructions(dockerfile):
        if word == "WORKDIR" and re.fullmatch(r"/[\w./-]+", rest.strip()):
            found = rest.strip().rstrip("/") or DEFAULT
    return found


def copied(context: Path, dockerfile: str, folder: str) -> tuple[File, ...]:
    """What a Dockerfile copies out of its context into the folder, as files of a workspace; at least one file.

    A source that is no plain path (an address, a pattern, another stage) is left to the image. Raises EvaluationError.
    """
    found: dict[str, File] = {}
    for word, rest in _instructions(dockerfile):
        if word in {"COPY", "ADD"}:
            for source, target in _pairs(rest, folder):
                for file in _taken(context, source, target):
                    found[file.path] = file
    return tuple(found.values()) or (_EMPTY,)


def moved(said: str, folder: str) -> str:
    """A text with the container's places as they are here."""
    places = {"/logs": f"{WORK}/{JUDGE}/logs", "/tests": f"{WORK}/{JUDGE}/tests", folder: WORK}
    for old, new in places.items():
        said = re.sub(_BOUNDARY_BEFORE + re.escape(old) + _BOUNDARY_AFTER, new, said)
    return said


def judging(tests: Path, folder: str) -> tuple[File, ...]:
    """The folder of tests, at its place below `JUDGE`, the paths in its texts rewritten. Raises EvaluationError."""
    found = []
    for file in tree(tests, under=f"{JUDGE}/tests/"):
        try:
            content = moved(file.content.decode("utf-8"), folder).encode()
        except UnicodeDecodeError:
            content = file.content
        found.append(file.model_copy(update={"content": content}))
    return tuple(found)


def told(statement: str, folder: str) -> str:
    """The statement, with the line that says where things are."""
    return (
        f"{statement.rstrip()}\n\n(What is called {folder} here is your working folder, {WORK}. There is no network.)\n"
    )


def dockerfile_in(folder: Path) -> str:
    """The text of the Dockerfile of a folder, empty where there is none. Raises EvaluationError."""
    path = inside(folder, "Dockerfile")
    return text(path) if path.exists() else ""


def yaml_object(said: str, where: Path) -> dict[str, Any]:
    """A YAML text that is one mapping. Raises EvaluationError."""
    found = _yaml(said, where)
    if not isinstance(found, dict):
        refuse(where, "is no mapping", "write it as name: value")
    return {str(key): value for key, value in found.items()}


def yaml_list(said: str, where: Path) -> list[Any]:
    """A YAML text that is a list. Raises EvaluationError."""
    found = _yaml(said, where)
    if not isinstance(found, list):
        refuse(where, "is no list", "begin each entry with a dash")
    return found


def _yaml(said: str, where: Path) -> Any:
    if len(said) > _YAML:
        refuse(where, f"is longer than {_YAML} characters", "make it shorter")
    try:
        aliases = sum(isinstance(event, yaml.AliasEvent) for event in yaml.parse(said, Loader=yaml.SafeLoader))
        if aliases > _MOST_ALIASES:
            refuse(where, f"has more than {_MOST_ALIASES} aliases", "write out what they stand for")
        return yaml.safe_load(said)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        refuse(where, f"is no YAML: {' '.join(str(error).split())[:300]}", "mend it there")


def _instructions(dockerfile: str) -> Iterator[tuple[str, str]]:
    lines = [line for line in dockerfile.replace("\r\n", "\n").split("\n") if not line.lstrip().startswith("#")]
    for line in re.sub(r"\\[ \t]*\n", " ", "\n".join(lines)).split("\n"):
        word, _, rest = line.strip().partition(" ")
        if word:
            yield word.upper(), rest


def _pairs(rest: str, folder: str) -> Iterator[tuple[str, str]]:
    """Sources and, relative to the workspace, where they go; a target with a final ``/`` is a folder."""
    try:
        words = shlex.split(rest)
    except ValueError:
        return
    if any(word.startswith("--from") for word in words) or rest.lstrip().startswith("["):
        return
    *sources, target = [word for word in words if not word.startswith("--")] or [""]
    whole = target if target.startswith("/") else f"{folder}/{target}"
    if not (whole.rstrip("/") + "/").startswith(folder + "/"):
        return
    inside = whole.removeprefix(folder).lstrip("/")
    as_folder = target.endswith(("/", "/.")) or target in {".", "./", folder} or len(sources) > 1
    for source in sources:
        if "://" not in source and not re.search(r"[*?\[$]", source):
            yield source, (inside.rstrip("/.") + "/" if as_folder else inside).removeprefix("./").lstrip("/")


def _taken(context: Path, source: str, target: str) -> Iterator[File]:
    where = f"{context}/Dockerfile"
    path = context if source in {".", "./", "/"} else within(context, source.lstrip("/"), where)
    if path.is_dir():
        under = target if not target or target.endswith("/") else target + "/"
        left_out = frozenset({"Dockerfile", "docker-compose.yaml", ".dockerignore"}) if path == context else frozenset()
        yield from tree(path, under=under, leave_out=left_out)
    elif path.exists():
        name = target + path.name if not target or target.endswith("/") else target
        yield File(path=plain(name, where), content=data(path))
