"""What Python code does to a test run besides asserting: skips, ends it, replaces things, loosens bounds. Pure."""

from __future__ import annotations

import ast
import re

from swarm.truth.asserting import called, dotted, words
from swarm.truth.syntax import Function, within

_SKIPS = frozenset({"skip", "skipif", "skipIf", "skipUnless", "xfail", "expectedFailure", "SkipTest", "importorskip"})
_SKIP_CALLS = re.compile(r"(pytest\.)?(skip|xfail|importorskip)|(.+\.)?skipTest|(unittest\.)?SkipTest")
_EXITS = re.compile(r"(sys\.|pytest\.)?exit|quit|(os\.)?_exit|os\.abort|os\.kill")
_LOOSER_UP = frozenset({"timeout", "abs", "rel", "atol", "rtol", "delta", "tolerance", "eps", "reruns", "max_runs"})
_LOOSER_DOWN = frozenset({"places", "decimal", "significant", "max_examples"})
_AROUND = re.compile(r"(set_?up|tear_?down)(_?(class|module|method|function))?|load_tests|asyncSetUp", re.IGNORECASE)
_PATCH = re.compile(
    r"(.+\.)?(mock|mocker|patch)\.(patch|object|dict|multiple)|(mock\.)?patch(\.\w+)?|.*monkeypatch\.set(attr|item)"
)


def exits_of(nodes: list[ast.stmt]) -> str:
    """The call with which these statements end the process, also within a block but never within a function."""
    for node in within(nodes):
        if isinstance(node, ast.Call) and _EXITS.fullmatch(dotted(node.func)):
            return words(node)
        if isinstance(node, ast.Raise) and node.exc is not None and "SystemExit" in words(node.exc):
            return words(node)
    return ""


def skip_mark(decorators: list[ast.expr]) -> str:
    """The mark by which a test is skipped or expected to fail; one that asks about a real condition counts too."""
    for each in decorators:
        target = each.func if isinstance(each, ast.Call) else each
        if dotted(target).rpartition(".")[2] in _SKIPS:
            return words(each)
    return ""


def skip_call(live: list[ast.stmt]) -> str:
    """The call with which these statements skip the test that they are of."""
    for node in within(live):
        if isinstance(node, ast.Call) and _SKIP_CALLS.fullmatch(dotted(node.func)):
            return words(node)
        if isinstance(node, ast.Raise) and node.exc is not None and words(node.exc).endswith("SkipTest"):
            return words(node)
    return ""


def module_skip(loose: list[ast.stmt]) -> str:
    """How a whole file is skipped: ``pytestmark``, ``pytest.skip(allow_module_level=True)``, ``raise SkipTest``."""
    for statement in loose:
        if isinstance(statement, ast.Assign) and any(words(each) == "pytestmark" for each in statement.targets):
            marks = statement.value.elts if isinstance(statement.value, ast.List | ast.Tuple) else [statement.value]
            if found := skip_mark(marks):
                return found
        if isinstance(statement, ast.Assign) and words(statement) == "__test__ = False":
            return words(statement)
    return skip_call(loose)


def cases(decorators: list[ast.expr]) -> int:
    """How many literal cases a parametrized test has; 0 where that cannot be told."""
    many = 0
    for each in decorators:
        if isinstance(each, ast.Call) and called(each) in {"parametrize", "expand"} and each.args:
            values = each.args[-1] if called(each) == "expand" or len(each.args) < 2 else each.args[1]
            if isinstance(values, ast.List | ast.Tuple | ast.Set):
                many = max(many, 1) * max(1, len(values.elts))
    return many


def around(node: Function) -> bool:
    """Whether a function runs around every test of its file or class, or takes an assertion's place."""
    auto = any("autouse=True" in words(each) for each in node.decorator_list)
    return auto or bool(_AROUND.fullmatch(node.name)) or node.name.startswith("assert")


def patches(nodes: list[ast.stmt], imported: frozenset[str]) -> frozenset[str]:
    """What these statements replace of what the file imported: by ``patch``, ``monkeypatch`` or ``module.name = …``."""
    found = set()
    for node in within(nodes):
        if isinstance(node, ast.Call) and node.args and _is_patch(node, imported):
            found.add(words(node.args[0]) if called(node) == "patch" else ", ".join(map(words, node.args[:2])))
        if isinstance(node, ast.Assign):
            found |= {words(each) for each in node.targets if _foreign(each, imported)}
    return frozenset(found)


def patched_by(decorators: list[ast.expr]) -> frozenset[str]:
    calls = (each for each in decorators if isinstance(each, ast.Call))
    return frozenset(words(each) for each in calls if _is_patch(each, frozenset()))


def _is_patch(call: ast.Call, imported: frozenset[str]) -> bool:
    source = dotted(call.func)
    if source == "setattr":
        return bool(call.args) and _root(call.args[0]) in imported
    return bool(_PATCH.fullmatch(source))


def _foreign(target: ast.expr, imported: frozenset[str]) -> bool:
    """Whether an assignment goes to something that was imported."""
    if isinstance(target, ast.Subscript):
        return words(target.value) in {"sys.modules", "builtins.__dict__"}
    return isinstance(target, ast.Attribute) and _root(target) in imported


def _root(node: ast.expr) -> str:
    """The name that a chain of attributes begins with."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def imported_names(tree: ast.Module) -> frozenset[str]:
    found = (each for each in ast.walk(tree) if isinstance(each, ast.Import | ast.ImportFrom))
    return frozenset((name.asname or name.name).partition(".")[0] for each in found for name in each.names)


def numbers(node: Function) -> dict[str, float]:
    """The loosest literal of each tolerance and time-out, larger always meaning looser."""
    found: dict[str, float] = {}
    for each in ast.walk(node):
        if not isinstance(each, ast.Call):
            continue
        given = [(word.arg or "", word.value) for word in each.keywords]
        given += [("timeout", each.args[0])] if called(each) == "timeout" and each.args else []
        for name, value in given:
            if (
                name in _LOOSER_UP | _LOOSER_DOWN
                and isinstance(value, ast.Constant)
                and isinstance(value.value, int | float)
            ):
                number = -float(value.value) if name in _LOOSER_DOWN else float(value.value)
                found[name] = max(found.get(name, number), number)
    return found


def _literal(node: ast.expr) -> float | None:
    """A literal number; None for any other, and for one that is too large to be one."""
    if not isinstance(node, ast.Constant) or not isinstance(node.value, int | float):
        return None
    try:
        return float(node.value)
    except OverflowError:
        return None
