"""What a test command comes to by way of the base's files: scripts that they start, rules that they include, plugins
that they load. Pure: by mentions in texts of the base alone, never in those of a change."""

from __future__ import annotations

import ast
import posixpath
import re
from collections import deque
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase

from swarm.evidence import named_in
from swarm.truth.steering import STARTED_BY, settings
from swarm.truth.syntax import parsed

_SPLIT = re.compile(r"[\s;&|<>()'\"=,:{}\[\]`]+")
_SCRIPT = re.compile(r"\.(sh|bash|zsh|ksh|bats|mk|mak|just)$")
_PROGRAM = re.compile(r"(test|check|verify)[\w-]*\.(py|js|mjs|cjs|ts|rb|pl|php|lua)$", re.IGNORECASE)
_TAKEN_IN = re.compile(
    r"^[ \t]*(?:-?include|sinclude|source|\.|import)[ \t]+(\S[^\n#]*)"
    r"|(?<!\S)(?:--config(?:-file)?|--rcfile|--makefile|-c)[ =](\S+)",
    re.MULTILINE,
)
_MODULE_RUN = re.compile(r"(?<!\S)-m[ \t]+([A-Za-z_][\w.]{0,200})")
_PLUGIN = re.compile(r"(?:^|(?<=[\s'\"=]))-p[\s'\",]{0,9}([A-Za-z_][\w.]{0,200})(?![\w./:-])")
_PLUGINS_SET = re.compile(r"\bPYTEST_PLUGINS['\"]?\s{0,9}[=:]\s{0,9}['\"]?([\w.,]{1,500})")
_PYTEST = re.compile(r"py\.?test", re.IGNORECASE)
_SYSTEM = re.compile(r"/(bin|dev|etc|home|opt|proc|tmp|usr|var)(/|$)")
_PROGRAMS = {
    **STARTED_BY,
    "hatch": ("hatch.toml", "pyproject.toml"),
    **dict.fromkeys(("pdm", "poe"), ("pyproject.toml",)),
}
_SETTINGS = ("pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml", "pyproject.toml", "setup.cfg", "tox.ini")
_CONFTESTS = ("conftest.py", "tests/conftest.py", "test/conftest.py")
_FILES, _DEPTH = 60, 3  # files that are read, and how many mentions may lead to one of them


class Walk:
    """Which files are to be read, and what of the ``changed`` ones they lead to (``found``).

    Ask for the `next` place, `take` what the base has there, until there is none.
    """

    def __init__(self, command: str, changed: Iterable[str]) -> None:
        self.found: frozenset[str] = frozenset()
        self._changed = frozenset(changed)
        self._left = _FILES
        self._depths: dict[str, int] = {}
        self._todo: deque[str] = deque()
        started = [name for program, names in _PROGRAMS.items() if _starts(command, program) for name in names]
        self._certain = {*started, *_modules_run(command)}
        named = sorted(word for word in named_in(command) if not word.startswith("-"))
        self._followed = {*self._certain, *named}
        self._queue([*self._certain_in_order(), *named, *_SETTINGS, *_CONFTESTS], 0)
        self._load(plugins("", command), 0)

    def next(self) -> str | None:
        """The next place to read; None when all is known, or enough was read."""
        if not self._todo or not self._left:
            return None
        self._left -= 1
        return self._todo.popleft()

    def take(self, place: str, text: str | None) -> None:
        """What the base has at a place; None where it has no file there."""
        depth = self._depths[place]
        runs = place in self._certain or is_script(place, text or "")
        if runs and place in self._changed:
            self.found |= {place}
        if text is None or depth >= _DEPTH:
            return
        self._load(plugins(place, text), depth + 1)
        if runs and place in self._followed:
            taken, others = mentions(place, text)
            self._certain |= set(self._queue(taken, depth + 1))
            self._followed |= set(self._queue(others, depth + 1)) | self._certain

    def _certain_in_order(self) -> list[str]:
        return sorted(self._certain)

    def _load(self, names: Iterable[str], depth: int) -> None:
        loaded = _of_modules(names, self._changed)
        self.found |= loaded
        self._queue(sorted(loaded), depth)

    def _queue(self, places: Iterable[str], depth: int) -> list[str]:
        """Put places behind those that are to be read, changed ones before them; a pattern is what fits it."""
        wanted = [_plain(place) for place in places]
        found = [each for place in wanted if place for each in self._fitting(place)]
        for each in found:
            if each not in self._depths:
                self._depths[each] = depth
                (self._todo.appendleft if each in self._changed else self._todo.append)(each)
        return found

    def _fitting(self, place: str) -> list[str]:
        if "*" not in place:
            return [place]
        return sorted(path for path in self._changed if fnmatchcase(path, place))


def is_script(path: str, text: str) -> bool:
    """Whether a file that is mentioned is one that runs tests, and no data or program of the project's own."""
    name = path.rpartition("/")[2]
    return bool(_SCRIPT.search(name) or _PROGRAM.search(name)) or ("." not in name and text.startswith("#!"))


def mentions(path: str, text: str) -> tuple[list[str], list[str]]:
    """What a text takes in whatever its name, as by ``include``, and scripts that it may start: paths or patterns."""
    taken = [word for match in _TAKEN_IN.finditer(text) for word in _SPLIT.split(match[1] or match[2])]
    words = [word for word in _SPLIT.split(text) if _SCRIPT.search(word) or _PROGRAM.search(word) or _runs(word)]
    first, second = ([each for word in dict.fromkeys(some) for each in _places(path, word)] for some in (taken, words))
    return first, [*second, *_modules_run(text)]


def plugins(path: str, text: str) -> tuple[str, ...]:
    """Modules that a text has pytest load: ``-p``, ``PYTEST_PLUGINS``, and ``pytest_plugins`` of a conftest."""
    if path.endswith(".py"):
        return tuple(dict.fromkeys(_set_in(text)))
    steered = settings(path, text.encode("utf-8", "replace")) if path.rpartition("/")[2] in _SETTINGS else None
    options = [str(value) for key, value in (steered or {}).items() if key.endswith(".addopts")]
    lines = [line for line in text.replace("\\\n", " ").splitlines() if _PYTEST.search(line)]
    found = [name for each in [*options, *lines] for name in _PLUGIN.findall(each)]
    found += [name for match in _PLUGINS_SET.finditer(text) for name in match[1].split(",")]
    return tuple(dict.fromkeys(filter(None, found)))


def _starts(command: str, program: str) -> bool:
    return bool(re.search(rf"(?<![\w/-]){program}\b", command))


def _modules_run(text: str) -> list[str]:
    """Files of modules that are run by ``-m``, where their names say that they test."""
    return [path for each in _MODULE_RUN.findall(text) if _PROGRAM.search(path := each.replace(".", "/") + ".py")]


def _of_modules(names: Iterable[str], files: Iterable[str]) -> frozenset[str]:
    """Those of these files that are one of the modules, whatever folder they are looked for in."""
    kinds = [rf"{re.escape(name.replace('.', '/'))}(/__init__)?\.(py|pyc|pyd|[\w.-]*so)" for name in names]
    found = re.compile(rf"(^|.*/)({'|'.join(kinds)})") if kinds else None
    return frozenset(path for path in files if found and found.fullmatch(path))


def _runs(word: str) -> bool:
    """Whether a word may be a script without an ending; its content has to say so."""
    name = word.rpartition("/")[2]
    return bool(name) and "/" in word and "." not in name and len(word) <= 200


def _places(path: str, word: str) -> Iterator[str]:
    """Where a word may lead: beside the file that says it, or from the top; what comes of a variable is left out."""
    word = word.lstrip("@+!-")
    if _SYSTEM.match(word):
        return
    if word.startswith(("$", "/")):
        word = word.partition("/")[2]
    for base in dict.fromkeys((posixpath.dirname(path), "")):
        if word and (place := _plain(posixpath.join(base, word))):
            yield place


def _plain(path: str) -> str:
    """A path within the repository; empty for any other."""
    if not path or path.startswith("/") or "\0" in path or "$" in path or len(path) > 1000:
        return ""
    normal = posixpath.normpath(path)
    return "" if normal in {".", ".."} or normal.startswith("../") else normal


def _set_in(text: str) -> Iterator[str]:
    tree = parsed(text.encode("utf-8", "replace"))
    for node in tree.body if tree else ():
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(each, ast.Name) and each.id == "pytest_plugins" for each in targets):
            for each in ast.walk(node):
                if isinstance(each, ast.Constant) and isinstance(each.value, str):
                    yield each.value
