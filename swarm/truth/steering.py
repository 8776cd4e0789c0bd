"""What decides which tests are run and how: settings of runners, conftest files, scripts of the test command. Pure."""

from __future__ import annotations

import ast
import configparser
import json
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

from swarm.evidence import named_in
from swarm.truth.asserting import words
from swarm.truth.effects import exits_of
from swarm.truth.finding import finding
from swarm.truth.syntax import Function, parsed
from swarm.types import Weakened

SETTINGS = 64 * 1024  # bytes of a settings file; reading TOML takes a second at worst
_INI = frozenset({"pytest.ini", ".pytest.ini", "tox.ini", "setup.cfg", ".coveragerc"})
_TOML = frozenset({"pyproject.toml", "pytest.toml", ".pytest.toml"})
_SECTIONS = ("pytest", "tool:pytest", "coverage:report", "report")
_KEYS = frozenset(
    {
        "addopts", "testpaths", "python_files", "python_classes", "python_functions", "norecursedirs",
        "collect_imported_tests",
        "timeout", "xfail_strict", "filterwarnings", "usefixtures", "pythonpath", "fail_under", "reruns", "strict",
    }
)  # fmt: skip
_LOOSER = {"timeout": 1, "reruns": 1, "fail_under": -1}  # with the sign of what is looser
_HOOK = re.compile(
    r"pytest_(collect|ignore_collect|runtest|pyfunc_call|itemcollected|deselected|session|report|configure|unconfigure"
    r"|cmdline|load_initial|exception|assertrepr|make)\w*"
)
_IGNORES = frozenset({"collect_ignore", "collect_ignore_glob", "pytest_plugins", "pytestmark"})
_RUNNER_FILE = re.compile(
    r"^(jest|vitest|karma|playwright|cypress|mocha|ava|wdio)\.config\.\w+$|^\.mocharc|^phpunit\.xml|^\.rspec$|^\.nycrc"
    r"|^karma\.conf\."
)
_STARTED_BY = {
    "make": re.compile(r"^(GNUm|M|m)akefile$"),
    "tox": re.compile(r"^tox\.ini$"),
    "nox": re.compile(r"^noxfile\.py$"),
}
_SCRIPTS = re.compile(r"test|check|lint|ci|verify|^pre|^post")
_RUNNERS_OF_NODE = ("jest", "vitest", "mocha", "ava", "c8", "nyc")
_CUSTOM = frozenset({"sitecustomize.py", "usercustomize.py"})
_SHADOWS = (sys.stdlib_module_names - {"test"}) | {
    "pytest", "_pytest", "pluggy", "iniconfig", "packaging", "exceptiongroup", "coverage", "nose2", "xdist",
    "hypothesis",
}  # fmt: skip


def steered(path: str, before: bytes | None, after: bytes | None, command: str) -> Iterator[Weakened]:
    """Findings of a file that steers tests, whether it was added, changed or deleted."""
    name = path.rpartition("/")[2]
    if name == "conftest.py":
        yield from _of_conftest(path, before, after)
    elif name in _INI | _TOML or name == "package.json":
        yield from _of_settings(path, before, after)
    elif name in _CUSTOM or (before is None and _shadows(path)):
        yield finding(
            "steered", path, "it is loaded in the place of a part of Python or of the test runner, or before it"
        )
    elif _RUNNER_FILE.search(name):
        yield finding("steered", path, f"settings of the test runner were {_how(before, after)}")
    if path in named_in(command) and name not in _INI | _TOML:
        yield finding("steered", path, f"the test command names it, and it was {_how(before, after)}")
    for program, file in _STARTED_BY.items():
        if re.search(rf"\b{program}\b", command) and file.match(name):
            yield finding("steered", path, f"the test command runs {program}, and this was {_how(before, after)}")


def _shadows(path: str) -> bool:
    """Whether a module at the top has the name of one that the runner imports: ``python -m`` looks there first."""
    top, slash, rest = path.partition("/")
    module = top if slash else top.removesuffix(".py")
    return module in _SHADOWS and (rest == "__init__.py" or (not slash and top.endswith(".py")))


def _of_conftest(path: str, before: bytes | None, after: bytes | None) -> Iterator[Weakened]:
    if after is None:
        yield finding("steered", path, "it is gone")
        return
    now, was = parsed(after), parsed(before or b"")
    if now is None:
        yield finding("unread", path, "it cannot be read")
        return
    old = _pieces(was) if was else {}
    for name, source in _pieces(now).items():
        if old.get(name) != source and (_HOOK.fullmatch(name) or name in _IGNORES):
            how = "changed" if name in old else "added"
            yield finding("steered", path, f"{name} was {how}: it decides which tests run or count")
    if (ends := exits_of(now.body)) and ends != exits_of(was.body if was else []):
        yield finding("exit", path, f"importing it ends the run: {ends}")


def _pieces(tree: ast.Module) -> dict[str, str]:
    """Functions and names that a module sets, with what each is."""
    found: dict[str, str] = {}
    todo: list[ast.stmt] = list(tree.body)
    for node in todo:
        if isinstance(node, ast.If | ast.Try):
            todo += node.body
        elif isinstance(node, Function):
            found[node.name] = _source(node)
        elif isinstance(node, ast.Assign):
            found |= {words(target): _source(node) for target in node.targets}
    return found


def _source(node: ast.AST) -> str:
    try:
        return ast.dump(node)
    except RecursionError:
        return "?"


def _of_settings(path: str, before: bytes | None, after: bytes | None) -> Iterator[Weakened]:
    old, new = _settings(path, before), _settings(path, after)
    if new is None or old is None:
        yield finding("unread", path, "it cannot be read")
        return
    for key in sorted(old.keys() | new.keys()):
        was, now = old.get(key), new.get(key)
        if was == now:
            continue
        sign = _LOOSER.get(key.rpartition(".")[2], 0)
        if sign and _number(was) is not None and _number(now) is not None:
            if sign * (_number(now) or 0.0) > sign * (_number(was) or 0.0):
                yield finding("loosened", path, f"{key} was {was} and is {now}")
            continue
        yield finding("steered", path, f"{key} is {_short(now)} and was {_short(was)}")


def _settings(path: str, data: bytes | None) -> dict[str, Any] | None:
    """What steers tests in a settings file, flat; None where it cannot be read."""
    if data is None:
        return {}
    name = path.rpartition("/")[2]
    try:
        text = data[: SETTINGS + 1].decode("utf-8")
        if len(data) > SETTINGS:
            return None
        if name == "package.json":
            return _of_node(json.loads(text))
        return _of_toml(tomllib.loads(text), whole=name != "pyproject.toml") if name in _TOML else _of_ini(text)
    except (ValueError, RecursionError, configparser.Error):
        return None


def _of_ini(text: str) -> dict[str, Any]:
    parser = configparser.RawConfigParser(strict=False)
    parser.read_string(text)
    sections = (each for each in _SECTIONS if parser.has_section(each))
    return {f"{each}.{key}": value for each in sections for key, value in parser.items(each) if key in _KEYS}


def _of_toml(data: Mapping[str, Any], *, whole: bool) -> dict[str, Any]:
    if whole:
        tables = {"pytest": data.get("pytest", data)}
    else:
        tool = _table(data.get("tool"))
        tables = {
            "pytest": {**_table(tool.get("pytest")), **_table(_table(tool.get("pytest")).get("ini_options"))},
            "coverage": _table(_table(tool.get("coverage")).get("report")),
        }
    return {
        f"{name}.{key}": value for name, table in tables.items() for key, value in _table(table).items() if key in _KEYS
    }


def _of_node(data: Any) -> dict[str, Any]:
    found = {
        f"scripts.{key}": value for key, value in _table(_table(data).get("scripts")).items() if _SCRIPTS.search(key)
    }
    return found | {key: _table(data)[key] for key in _RUNNERS_OF_NODE if key in _table(data)}


def _table(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _number(value: Any) -> float | None:
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def _short(value: Any) -> str:
    return "not set" if value is None else " ".join(str(value).split())[:80]


def _how(before: bytes | None, after: bytes | None) -> str:
    return "added" if before is None else "deleted" if after is None else "changed"
