"""What a Python test file demands, test by test, read from its syntax alone: nothing of it is run or imported. Pure."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from swarm.truth.asserting import NOTHING, Check, of_call
from swarm.truth.effects import (
    around,
    cases,
    exits_of,
    imported_names,
    module_skip,
    numbers,
    patched_by,
    patches,
    skip_call,
    skip_mark,
)
from swarm.truth.syntax import Function, alive, never, of_check, parsed, walked

_MARKS = 50  # decorators of classes that are looked at for each of their functions


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
    found = {name: (node, marks) for name, node, marks in _functions(tree.body, "", [])}
    asserting = ((name, any(of_check(each) for each in ast.walk(node))) for name, (node, _) in found.items())
    helpers = frozenset(name.rpartition(".")[2] for name, checks in asserting if checks)
    imported = imported_names(tree)
    functions = {name: _facts(node, helpers, imported, marks) for name, (node, marks) in found.items()}
    loose = [node for node in tree.body if not isinstance(node, Function | ast.ClassDef)]
    return FileFacts(functions, module_skip(loose), exits_of(loose), patches(loose, imported))


def _functions(
    body: list[ast.stmt], prefix: str, marks: list[ast.expr]
) -> Iterator[tuple[str, Function, list[ast.expr]]]:
    """Functions and methods by their names, each with the decorators of the classes that it lies in."""
    for node in body:
        if isinstance(node, Function):
            yield prefix + node.name, node, marks
        elif isinstance(node, ast.ClassDef) and prefix.count(".") < 3:
            yield from _functions(node.body, f"{prefix}{node.name}.", [*marks, *node.decorator_list])
        elif isinstance(node, ast.Try) or (isinstance(node, ast.If) and not never(node.test)):
            yield from _functions(node.body, prefix, marks)


def _facts(node: Function, helpers: frozenset[str], imported: frozenset[str], marks: list[ast.expr]) -> TestFacts:
    live = list(alive(node.body))
    inside = [each for statement in live for each in walked(statement)]
    checks = [check for each in inside if (check := of_check(each, helpers)) is not None]
    everything = sum(of_check(each, helpers) is not None for each in ast.walk(node))
    real = tuple(check for check in checks if check.strength != NOTHING)
    return TestFacts(
        checks=real,
        idle=everything - len(real),
        skip=skip_mark([*node.decorator_list, *marks[:_MARKS]]) or skip_call(live),
        exits=exits_of(live),
        cases=cases(node.decorator_list),
        patches=patches(node.body, imported) | patched_by(node.decorator_list),
        calls=any(isinstance(each, ast.Call) and of_call(each) is None for each in inside),
        always=around(node),
        numbers=numbers(node),
        body=_digest(node.body),
    )


def _digest(body: list[ast.stmt]) -> str:
    try:
        return hashlib.sha256("\n".join(map(ast.dump, body)).encode("utf-8", "replace")).hexdigest()
    except RecursionError:
        return ""
