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

from swarm.evidence import RUNNER_FILE, Tested, named_in
from swarm.truth.asserting import words
from swarm.truth.effects import exits_of
from swarm.truth.finding import finding
from swarm.truth.syntax import parsed
from swarm.types import Weakened

SETTINGS = 64 * 1024  # bytes of a settings file; reading TOML takes a second at worst
_INI = frozenset({"pytest.ini", ".pytest.ini", "tox.ini", "setup.cfg", ".coveragerc"})
_TOML = frozenset({"pyproject.toml", "pytest.toml", ".pytest.toml"})
_NODE = frozenset({"package.json", "composer.json", "deno.json"})
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
    r"|cmdline|load_initial|exception|assertrepr|make|pycollect|generate_tests|fixture)\w*"
)
_TEST_MODULE = re.compile(r"test_.*|.*_test\.py")
_IGNORES = frozenset({"collect_ignore", "collect_ignore_glob", "pytest_plugins", "pytestmark"})
STARTED_BY = {
    "make": ("GNUmakefile", "makefile", "Makefile"),
    "gmake": ("GNUmakefile", "makefile", "Makefile"),
    "tox": ("tox.ini",),
    "nox": ("noxfile.py",),
    "just": ("justfile", "Justfile", ".justfile"),
    "task": ("Taskfile.yml", "Taskfile.yaml"),
    "rake": ("Rakefile", "rakefile"),
    "composer": ("composer.json",),
    "deno": ("deno.json", "deno.jsonc"),
    "npm": ("package.json",),
    "npx": ("package.json",),
    "yarn": ("package.json",),
    "pnpm": ("package.json",),
    "bun": ("package.json",),
}
"""Files that a program reads by their names, by the program."""
_SCRIPTS = re.compile(r"test|check|lint|ci|verify|^pre|^post")
_RUNNERS_OF_NODE = ("jest", "vitest", "mocha", "ava", "c8", "nyc")
_CUSTOM = frozenset({"sitecustomize.py", "usercustomize.py"})
_SHADOWS = (sys.stdlib_module_names - {"test"}) | {
    "pytest", "_pytest", "pluggy", "iniconfig", "packaging", "exceptiongroup", "coverage", "nose2", "xdist",
    "hypothesis",
}  # fmt: skip


def steered(path: str, before: bytes | None, after: bytes | None, tested: Tested) -> Iterator[Weakened]:
    """Findings of a file that steers tests, whether it was added, changed or deleted."""
    name = path.rpartition("/")[2]
    if name == "conftest.py" or (path in tested.reached and name.endswith(".py")):
        yield from _of_plugin(path, before, after)
    elif name.endswith(".py") and not _TEST_MODULE.match(name) and after is not None:
        yield from _hooks(path, parsed(before or b""), parsed(after))
    if name in _INI | _TOML | _NODE:
        yield from _of_settings(path, before, after)
    elif name in _CUSTOM or (before is None and _shadows(path)):
        yield finding(
            "steered", path, "it is loaded in the place of a part of Python or of the test runner, or before it"
        )
    elif RUNNER_FILE.search(path):
        yield finding("steered", path, f"settings of the test runner were {_how(before, after)}")
    if why := _started(path, tested):
        yield finding("steered", path, f"{why}, and it was {_how(before, after)}")


def _started(path: str, tested: Tested) -> str:
    """How the test command comes to run a file; empty where it does not, or where what counts of it was compared."""
    name = path.rpartition("/")[2]
    if name in _NODE or (path in tested.reached and name.endswith(".py") and path not in named_in(tested.command)):
        return ""
    if path in named_in(tested.command) and name not in _INI | _TOML:
        return "the test command names it"
    for program, files in STARTED_BY.items():
        if name in files and re.search(rf"\b{program}\b", tested.command):
            return f"the test command runs {program}"
    return "what the test command runs makes use of it" if path in tested.reached else ""


def _shadows(path: str) -> bool:
    """Whether a module at the top has the name of one that the runner imports: ``python -m`` looks there first."""
    top, slash, rest = path.partition("/")
    module = top if slash else top.removesuffix(".py")
    return module in _SHADOWS and (rest == "__init__.py" or (not slash and top.endswith(".py")))


def _of_plugin(path: str, before: bytes | None, after: bytes | None) -> Iterator[Weakened]:
    """Findings of a conftest, or of another module that the base has pytest load."""
    if after is None:
        yield finding("steered", path, "it is gone")
        return
    now, was = parsed(after), parsed(before or b"")
    if now is None:
        yield finding("unread", path, "it cannot be read")
        return
    yield from _hooks(path, was, now)
    if (ends := exits_of(now.body)) and ends != exits_of(was.body if was else []):
        yield finding("exit", path, f"importing it ends the run: {ends}")


def _hooks(path: str, was: ast.Module | None, now: ast.Module | None) -> Iterator[Weakened]:
    """Hooks of pytest that a module has and had not, or not so; outside a conftest they count once it is loaded."""
    old = _pieces(was) if was else {}
    for name, source in (_pieces(now) if now else {}).items():
        if old.get(name) != source:
            how = "changed" if name in old else "added"
            yield finding("steered", path, f"{name} was {how}: it decides which tests run or count")


def _pieces(tree: ast.Module) -> dict[str, str]:
    """What a module has of names that pytest asks for, wherever it defines, sets, imports or spells them."""
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        for name in _names(node):
            if _HOOK.fullmatch(name) or name in _IGNORES:
                found[name] = found.get(name, "") + _source(node)
    return found


def _names(node: ast.AST) -> list[str]:  # noqa: PLR0911  one line a kind of node
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            return [name]
        case ast.Assign(targets=targets):
            return [words(each) for each in targets]
        case ast.AnnAssign(target=target) | ast.AugAssign(target=target) | ast.NamedExpr(target=target):
            return [words(target)]
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name))):
            return [name]
        case ast.ImportFrom(names=names):
            return [each.asname or each.name for each in names]
        case ast.Constant(value=str() as text):
            return [text]
    return []


def _source(node: ast.AST) -> str:
    try:
        return ast.dump(node)
    except RecursionError:
        return "?"


def _of_settings(path: str, before: bytes | None, after: bytes | None) -> Iterator[Weakened]:
    old, new = settings(path, before), settings(path, after)
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


def settings(path: str, data: bytes | None) -> dict[str, Any] | None:
    """What steers tests in a settings file, flat; None where it cannot be read."""
    if data is None:
        return {}
    name = path.rpartition("/")[2]
    try:
        text = data[: SETTINGS + 1].decode("utf-8")
        if len(data) > SETTINGS:
            return None
        if name in _NODE:
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
        f"{table}.{key}": value
        for table in ("scripts", "tasks")
        for key, value in _table(_table(data).get(table)).items()
        if _SCRIPTS.search(key)
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
