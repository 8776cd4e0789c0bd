"""Makes a case out of one Python function: its module, a test that the agent sees, and tests that judge. Pure.

Tests come as a function ``check`` full of assertions, the form of HumanEval (Chen et al. 2021, arXiv:2107.03374). Each
plain assertion becomes a test of its own, so that a judge counts them one by one; anything else stays whole.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from swarm.evaluation.case import Allowance, Case, File, Hidden, Solution

SECONDS = 20.0  # for all tests of a function; a sound one needs well under a second
COMMAND = "python3 -m unittest -v -b"  # -b: what a function prints stays out of the lines that tell of the tests
_HEAD = "import unittest\n\nfrom {module} import *\n{more}\n\nclass Test{kind}(unittest.TestCase):\n"


@dataclass(frozen=True)
class Checks:
    """What a ``check`` function holds: lines that all tests begin with, and a statement or several for each test."""

    setting: tuple[str, ...]
    tests: tuple[str, ...]
    plain: bool  # whether each test is one assertion

    def chosen(self, numbers: Sequence[int]) -> Checks:
        """Only some of the tests, by their places."""
        return Checks(self.setting, tuple(self.tests[number] for number in numbers), self.plain)


@dataclass(frozen=True)
class Function:
    """A function under repair. ``buggy`` and ``sound`` are whole modules of the name ``module``."""

    name: str
    module: str
    buggy: str
    sound: str


def read_checks(source: str, name: str) -> Checks:
    """Take a ``check`` apart; its parameter stands for the function ``name``. Raises SyntaxError and ValueError."""
    found = ast.parse(source)
    checks = [node for node in found.body if isinstance(node, ast.FunctionDef) and node.name == "check"]
    if len(checks) != 1 or len(checks[0].args.args) != 1:
        raise ValueError("there is no function check(candidate) in the tests")
    (check,) = checks
    others = [node for node in found.body if node is not check and not _called(node) and not _metadata(node)]
    setting = [ast.unparse(node) for node in others]
    parameter = check.args.args[0].arg
    if parameter != name:
        setting.append(f"{parameter} = {name}")
    body = [node for node in check.body if not _trivial(node)]
    if all(isinstance(node, ast.Assert) for node in body):
        return Checks(tuple(setting), tuple(_said(node) for node in body), plain=True)
    return Checks(tuple(setting), ("\n".join(ast.unparse(node) for node in body),), plain=False)


def module_of_tests(checks: Checks, module: str, kind: str) -> str:
    """The tests as a module of unittest."""
    lines = []
    for number, test in enumerate(checks.tests, start=1):
        lines.append(f"    def {_method(number)}(self):")
        lines += [f"        {line}" for line in test.split("\n")] + [""]
    return _HEAD.format(module=module, more="\n".join(checks.setting), kind=kind) + "\n".join(lines)


def case_of(
    name: str, function: Function, seen: Checks | None, judging: Checks, fails: Sequence[int], labels: dict[str, str]
) -> Case:
    """The case: ``seen`` is what the agent may run, ``judging`` what it never meets, and ``fails`` the places of those
    that the buggy function fails."""
    file, visible, hidden = f"{function.module}.py", f"test_{function.module}", f"test_hidden_{function.module}"
    files = [File(path=file, content=function.buggy.encode())]
    if seen is not None:
        files.append(File(path=f"{visible}.py", content=module_of_tests(seen, function.module, "Seen").encode()))
    names = [f"{hidden}.TestHidden.{_method(number + 1)}" for number in range(len(judging.tests))]
    return Case(
        id=name,
        title=f"Repair {function.name}",
        statement=_statement(function, seen is not None),
        files=tuple(files),
        hidden=Hidden(
            files=(File(path=f"{hidden}.py", content=module_of_tests(judging, function.module, "Hidden").encode()),),
            command=f"{COMMAND} {hidden}",
            seconds=SECONDS,
            fail_to_pass=tuple(names[number] for number in fails),
            pass_to_pass=tuple(one for number, one in enumerate(names) if number not in set(fails)),
            paths=(file,),
        ),
        test_command=f"{COMMAND} {visible}" if seen is not None else None,
        solution=Solution(files=(File(path=file, content=function.sound.encode()),)),
        allowance=Allowance(),
        look_first=(file,),
        labels=labels,
    )


def module_name(name: str) -> str:
    """A module for a function: its own name, unless Python has a module of that name."""
    return f"{name}_function" if name in sys.stdlib_module_names else name


def _statement(function: Function, tested: bool) -> str:  # noqa: FBT001  a fact about the one
    told = f"Tests of it are in test_{function.module}.py." if tested else "There are no tests of it here."
    return (
        f"The function {function.name} in {function.module}.py has a bug: it does not do what its description says. "
        f"Find the bug and repair the function in {function.module}.py, with as small a change as will do. "
        f"{told} It is judged by others that are not here, so go by its description. Do not change a test."
    )


def _method(number: int) -> str:
    return f"test_{number:02}"


def _said(node: ast.stmt) -> str:
    """An assertion in the words of unittest where it compares two values, so that a failure shows them."""
    if not isinstance(node, ast.Assert):  # the caller has looked
        raise TypeError(type(node).__name__)
    test = node.test
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Eq):
        return f"self.assertEqual({ast.unparse(test.left)}, {ast.unparse(test.comparators[0])})"
    return f"self.assertTrue({ast.unparse(test)})"


def _trivial(node: ast.stmt) -> bool:
    """``assert True``, which HumanEval has here and there, and bare strings."""
    if isinstance(node, ast.Assert):
        return isinstance(node.test, ast.Constant) and bool(node.test.value)
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _called(node: ast.stmt) -> bool:
    """The call ``check(...)`` at the end."""
    value = node.value if isinstance(node, ast.Expr) else None
    return isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "check"


def _metadata(node: ast.stmt) -> bool:
    return isinstance(node, ast.Assign) and any(
        isinstance(one, ast.Name) and one.id == "METADATA" for one in node.targets
    )
