"""What a Python test file demands, test by test, read from its syntax alone: nothing of it is run or imported. Pure.

Size is bounded before anything is parsed; what cannot be read is None, never an error.
"""

from __future__ import annotations

import ast
import hashlib
import re
import threading
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from swarm.truth.asserting import NOTHING, Check, called, of_assert, of_call, words

_PARSING = threading.Lock()  # over what Python warns of in a file, which is switched off for all threads at once
LIMIT = 256 * 1024  # bytes of a file that is read; parsing one takes a second at worst

_SKIPS = frozenset({"skip", "skipif", "skipIf", "skipUnless", "xfail", "expectedFailure", "SkipTest", "importorskip"})
_SKIP_CALLS = re.compile(r"(pytest\.)?(skip|xfail|importorskip)|(.+\.)?skipTest|(unittest\.)?SkipTest")
_EXITS = re.compile(r"(sys\.|pytest\.)?exit|quit|(os\.)?_exit|os\.abort|os\.kill")
_SWALLOW = frozenset({"Exception", "BaseException", "AssertionError"})
_LOOSER_UP = frozenset({"timeout", "abs", "rel", "atol", "rtol", "delta", "tolerance", "eps", "reruns", "max_runs"})
_LOOSER_DOWN = frozenset({"places", "decimal", "significant", "max_examples"})
_AROUND = re.compile(r"(set_?up|tear_?down)(_?(class|module|method|function))?|load_tests|asyncSetUp", re.IGNORECASE)
_PATCH = re.compile(
    r"(.+\.)?(mock|mocker|patch)\.(patch|object|dict|multiple)|(mock\.)?patch(\.\w+)?|.*monkeypatch\.set(attr|item)"
)

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class TestFacts:
    """One function of a test file. ``body`` is a digest of what it does, whatever it is called.

    ``idle`` are assertions that can never fail, or whose failure is swallowed; ``cases`` are literal parameter sets.
    ``calls`` says whether it calls anything but assertions, ``always`` whether it runs around every test.
    """

    __test__ = False

    checks: tuple[Check, ...] = ()
    idle: int = 0
    skip: str = ""
    exits: str = ""
    cases: int = 0
    patches: frozenset[str] = frozenset()
    calls: bool = False
    always: bool = False
    numbers: Mapping[str, float] = field(default_factory=dict)
    body: str = ""


@dataclass(frozen=True)
class FileFacts:
    """A test file: its functions by ``Class.name``, and what it does when it is imported."""

    functions: Mapping[str, TestFacts]
    skip: str = ""
    exits: str = ""
    patches: frozenset[str] = frozenset()

    @property
    def tests(self) -> dict[str, TestFacts]:
        """Those that a test runner finds by their names."""
        return {name: facts for name, facts in self.functions.items() if name.rpartition(".")[2].startswith("test")}


def read_python(source: bytes) -> FileFacts | None:
    """The facts of a test file. None where it is no Python that this one can read, or larger than LIMIT."""
    if (tree := parsed(source)) is None:
        return None
    found = dict(_functions(tree.body, ""))
    helpers = frozenset(
        name.rpartition(".")[2] for name, node in found.items() if any(of_check(each) for each in ast.walk(node))
    )
    imported = _imported(tree)
    functions = {name: _facts(node, helpers, imported, _class_marks(tree, name)) for name, node in found.items()}
    loose = [node for node in tree.body if not isinstance(node, Function | ast.ClassDef)]
    return FileFacts(functions, _module_skip(loose), exits_of(loose), _patches(loose, imported))


def parsed(source: bytes) -> ast.Module | None:
    """The syntax tree of a file of at most LIMIT bytes; None for anything else."""
    if len(source) > LIMIT:
        return None
    text = source.decode("utf-8-sig", "replace")  # a codec that the file names could take as long as it likes
    with _PARSING, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return ast.parse(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None


def exits_of(nodes: list[ast.stmt]) -> str:
    """The call with which these statements end the process, also within a block but never within a function."""
    for node in _within(nodes):
        if isinstance(node, ast.Call) and _EXITS.fullmatch(words(node.func)):
            return words(node)
        if isinstance(node, ast.Raise) and node.exc is not None and "SystemExit" in words(node.exc):
            return words(node)
    return ""


def of_check(node: ast.AST, helpers: frozenset[str] = frozenset()) -> Check | None:
    """The assertion that a node is; None where it is none."""
    if isinstance(node, ast.Assert):
        return of_assert(node)
    return of_call(node, helpers) if isinstance(node, ast.Call) else None


def _functions(body: list[ast.stmt], prefix: str) -> Iterator[tuple[str, Function]]:
    for node in body:
        if isinstance(node, Function):
            yield prefix + node.name, node
        elif isinstance(node, ast.ClassDef) and prefix.count(".") < 3:
            yield from _functions(node.body, f"{prefix}{node.name}.")
        elif isinstance(node, ast.Try) or (isinstance(node, ast.If) and not _never(node.test)):
            yield from _functions(node.body, prefix)


def _never(test: ast.expr) -> bool:
    return isinstance(test, ast.Constant) and not test.value


def _facts(node: Function, helpers: frozenset[str], imported: frozenset[str], marks: list[ast.expr]) -> TestFacts:
    helpers -= {node.name}
    live = list(_alive(node.body))
    inside = [each for statement in live for each in _walked(statement)]
    checks = [check for each in inside if (check := of_check(each, helpers)) is not None]
    everything = sum(of_check(each, helpers) is not None for each in ast.walk(node))
    real = tuple(check for check in checks if check.strength != NOTHING)
    decorators = [*node.decorator_list, *marks]
    return TestFacts(
        checks=real,
        idle=everything - len(real),
        skip=_skip(decorators) or _called_skip(live),
        exits=exits_of(live),
        cases=_cases(node.decorator_list),
        patches=_patches(node.body, imported) | _patched_by(node.decorator_list),
        calls=any(isinstance(each, ast.Call) and of_call(each) is None for each in inside),
        always=_always(node),
        numbers=_numbers(node),
        body=_digest(node.body),
    )


def _always(node: Function) -> bool:
    """Whether a function runs around every test of its file or class, or takes an assertion's place."""
    auto = any("autouse=True" in words(each) for each in node.decorator_list)
    return auto or bool(_AROUND.fullmatch(node.name)) or node.name.startswith("assert")


def _alive(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements up to the first that always leaves."""
    for statement in body:
        yield statement
        if isinstance(statement, ast.Return | ast.Raise | ast.Continue | ast.Break):
            return


def _walked(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes below one whose failures count: not what a broad handler swallows, nor what is never reached."""
    todo = [node]
    while todo:
        current = todo.pop()
        yield current
        match current:
            case ast.Try() if any(map(_swallows, current.handlers)):
                todo += [*current.handlers, *current.orelse, *current.finalbody]
            case ast.With() | ast.AsyncWith() if any(_suppresses(item.context_expr) for item in current.items):
                todo += [item.context_expr for item in current.items]
            case ast.If(test=ast.Constant(value=value)):
                todo += _alive(current.body if value else current.orelse)
            case ast.If():
                todo += [current.test, *_alive(current.body), *_alive(current.orelse)]
            case ast.While(test=ast.Constant(value=value)) if not value:
                todo += current.orelse
            case ast.For(iter=ast.List(elts=[]) | ast.Tuple(elts=[])):
                todo += current.orelse
            case _:
                todo += ast.iter_child_nodes(current)


def _swallows(handler: ast.ExceptHandler) -> bool:
    """Whether a handler takes failed assertions and lets the test go on as if there had been none."""
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    broad = any(kind is None or words(kind).rpartition(".")[2] in _SWALLOW for kind in kinds)
    answers = any(
        isinstance(node, ast.Raise) or of_check(node) is not None for part in handler.body for node in ast.walk(part)
    )
    return broad and not answers


def _suppresses(context: ast.expr) -> bool:
    if not isinstance(context, ast.Call) or called(context) not in {"suppress", "raises", "assertRaises"}:
        return False
    return any(words(each).rpartition(".")[2] in _SWALLOW for each in context.args)


def _skip(decorators: list[ast.expr]) -> str:
    """The mark by which a test is skipped or expected to fail; one that asks about a real condition counts too."""
    for each in decorators:
        target = each.func if isinstance(each, ast.Call) else each
        if words(target).rpartition(".")[2] in _SKIPS:
            return words(each)
    return ""


def _called_skip(live: list[ast.stmt]) -> str:
    for node in _within(live):
        if isinstance(node, ast.Call) and _SKIP_CALLS.fullmatch(words(node.func)):
            return words(node)
        if isinstance(node, ast.Raise) and node.exc is not None and words(node.exc).endswith("SkipTest"):
            return words(node)
    return ""


def _module_skip(loose: list[ast.stmt]) -> str:
    """How a whole file is skipped: ``pytestmark``, ``pytest.skip(allow_module_level=True)``, ``raise SkipTest``."""
    for statement in loose:
        if isinstance(statement, ast.Assign) and any(words(each) == "pytestmark" for each in statement.targets):
            marks = statement.value.elts if isinstance(statement.value, ast.List | ast.Tuple) else [statement.value]
            if found := _skip(marks):
                return found
        if isinstance(statement, ast.Assign) and words(statement) == "__test__ = False":
            return words(statement)
    return _called_skip(loose)


def _class_marks(tree: ast.Module, name: str) -> list[ast.expr]:
    """Decorators of the classes that a function lies in."""
    marks: list[ast.expr] = []
    body = tree.body
    for part in name.split(".")[:-1]:
        held = next((node for node in body if isinstance(node, ast.ClassDef) and node.name == part), None)
        if held is None:
            break
        marks += held.decorator_list
        body = held.body
    return marks


def _within(nodes: list[ast.stmt]) -> Iterator[ast.AST]:
    """All nodes that run when these do, functions and classes left out."""
    todo: list[ast.AST] = list(reversed(nodes))
    while todo:
        node = todo.pop()
        yield node
        if not isinstance(node, Function | ast.ClassDef | ast.Lambda):
            todo += reversed(list(ast.iter_child_nodes(node)))


def _cases(decorators: list[ast.expr]) -> int:
    """How many literal cases a parametrized test has; 0 where that cannot be told."""
    many = 0
    for each in decorators:
        if isinstance(each, ast.Call) and called(each) in {"parametrize", "expand"} and each.args:
            values = each.args[-1] if called(each) == "expand" or len(each.args) < 2 else each.args[1]
            if isinstance(values, ast.List | ast.Tuple | ast.Set):
                many = max(many, 1) * max(1, len(values.elts))
    return many


def _patches(nodes: list[ast.stmt], imported: frozenset[str]) -> frozenset[str]:
    """What these statements replace of what the file imported: by ``patch``, ``monkeypatch`` or ``module.name = …``."""
    found = set()
    for node in _within(nodes):
        if isinstance(node, ast.Call) and node.args and _is_patch(node, imported):
            found.add(words(node.args[0]) if called(node) == "patch" else ", ".join(map(words, node.args[:2])))
        if isinstance(node, ast.Assign):
            found |= {words(each) for each in node.targets if _foreign(each, imported)}
    return frozenset(found)


def _patched_by(decorators: list[ast.expr]) -> frozenset[str]:
    calls = (each for each in decorators if isinstance(each, ast.Call))
    return frozenset(words(each) for each in calls if _is_patch(each, frozenset()))


def _is_patch(call: ast.Call, imported: frozenset[str]) -> bool:
    source = words(call.func)
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


def _imported(tree: ast.Module) -> frozenset[str]:
    found = (each for each in ast.walk(tree) if isinstance(each, ast.Import | ast.ImportFrom))
    return frozenset((name.asname or name.name).partition(".")[0] for each in found for name in each.names)


def _numbers(node: Function) -> dict[str, float]:
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


def _digest(body: list[ast.stmt]) -> str:
    try:
        return hashlib.sha256("\n".join(map(ast.dump, body)).encode("utf-8", "replace")).hexdigest()
    except RecursionError:
        return ""
