"""Changes one line of a Python function in one place: the classic mutation operators, and those that people's bugs ask
for (a wrong variable, a missing statement). Pure.

After DeMillo, Lipton and Sayward 1978 ("Hints on test data selection"), Offutt et al. 1996 for the choice of operators,
and Just et al. 2014 ("Are mutants a valid substitute for real faults in software testing?") for what they lack.
A change is made in the text, so that everything around it stays as it was written.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar

KINDS = (
    *("comparison", "off by one", "boolean", "arithmetic"),
    *("return value", "wrong variable", "missing statement", "wrong function"),
)
_COMPARED: dict[type[ast.cmpop], tuple[str, ...]] = {
    ast.Lt: ("<=", ">"),
    ast.LtE: ("<", ">="),
    ast.Gt: (">=", "<"),
    ast.GtE: (">", "<="),
    ast.Eq: ("!=",),
    ast.NotEq: ("==",),
    ast.In: ("not in",),
    ast.NotIn: ("in",),
}
_COUNTED: dict[type[ast.operator], tuple[str, ...]] = {
    ast.Add: ("-",),
    ast.Sub: ("+",),
    ast.Mult: ("+",),
    ast.FloorDiv: ("/", "%"),
    ast.Div: ("//", "*"),
    ast.Mod: ("//",),
    ast.Pow: ("*",),
}
_SIGNS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.FloorDiv: "//", ast.Div: "/", ast.Mod: "%", ast.Pow: "**"}
_TWINS = (
    *("min max", "any all", "upper lower", "append extend", "startswith endswith"),
    *("floor ceil", "find rfind", "lstrip rstrip", "isupper islower"),
)
_TWIN = {one: other for pair in _TWINS for one, other in (pair.split(), pair.split()[::-1])}
_LARGEST = 1000  # integers beyond this are no counting
_Operator = TypeVar("_Operator", ast.cmpop, ast.operator)


@dataclass(frozen=True)
class Mutant:
    """A changed module. ``line`` counts from 1; ``before`` and ``after`` are that line, stripped."""

    kind: str
    line: int
    before: str
    after: str
    source: str


@dataclass(frozen=True)
class _Change:
    kind: str
    line: int
    start: int  # in bytes of UTF-8, as `ast` counts
    end: int
    put: str


def mutants(source: str, name: str) -> tuple[Mutant, ...]:
    """Every single-line change of the function ``name`` that still compiles and is no other one's twin, in the order of
    the text. Raises SyntaxError for a source that is no Python, ValueError where there is no such function."""
    function = next((node for node in ast.walk(ast.parse(source)) if _is(node, name)), None)
    if function is None:
        raise ValueError(f"there is no function {name} in the module")
    lines = source.split("\n")
    found: dict[str, Mutant] = {}
    for change in sorted(_changes(function, source), key=lambda one: (one.line, one.start, one.kind, one.put)):
        made = _made(lines, change)
        if made is not None and made.source != source and _compiles(made.source):
            found.setdefault(made.source, made)
    return tuple(found.values())


def _is(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.FunctionDef) and node.name == name


def _made(lines: list[str], change: _Change) -> Mutant | None:
    before = lines[change.line - 1]
    raw = before.encode()
    after = (raw[: change.start] + change.put.encode() + raw[change.end :]).decode("utf-8", "replace")
    whole = [*lines[: change.line - 1], after, *lines[change.line :]]
    return Mutant(change.kind, change.line, before.strip(), after.strip(), "\n".join(whole))


def _compiles(source: str) -> bool:
    try:
        compile(source, "mutant", "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return False
    return True


def _changes(function: ast.AST, source: str) -> Iterator[_Change]:
    names, passed_over = _local_names(function), _inside_texts(function)
    for node in ast.walk(function):
        if id(node) in passed_over or not _one_line(node):
            continue
        if isinstance(node, ast.expr):
            yield from _of_operator(node, source)
            yield from _of_word(node, names)
        elif isinstance(node, ast.stmt):
            yield from _of_statement(node, source)


def _of_operator(node: ast.expr, source: str) -> Iterator[_Change]:
    match node:
        case ast.Compare():
            yield from _between(node, [node.left, *node.comparators], node.ops, _COMPARED, source)
        case ast.BinOp():
            yield from _between(node, [node.left, node.right], [node.op], _COUNTED, source)
        case ast.BoolOp():
            yield from _joined(node, source)
        case ast.UnaryOp(op=ast.Not()):
            yield _replaced("boolean", node, ast.unparse(node.operand))


def _of_word(node: ast.expr, names: tuple[str, ...]) -> Iterator[_Change]:
    match node:
        case ast.Constant():
            yield from _constant(node)
        case ast.Name(ctx=ast.Load()):
            yield from _named(node, names)
        case ast.Attribute(attr=attr) if attr in _TWIN:
            end = int(node.end_col_offset or 0)
            yield _Change("wrong function", node.lineno, end - len(attr.encode()), end, _TWIN[attr])


def _of_statement(node: ast.stmt, source: str) -> Iterator[_Change]:
    if isinstance(node, ast.AugAssign):
        yield from _augmented(node, source)
    if isinstance(node, ast.Return) and node.value is not None:
        yield _replaced("return value", node, f"return {_other(node.value)}")
    if isinstance(node, ast.Assign | ast.AugAssign | ast.Break | ast.Continue) or _a_call(node):
        yield _replaced("missing statement", node, "pass")


def _inside_texts(function: ast.AST) -> frozenset[int]:
    """Docstring and parts of f-strings, whose places `ast` tells wrongly before Python 3.12, by identity."""
    texts = [node for node in ast.walk(function) if isinstance(node, ast.JoinedStr)]
    first = function.body[0] if isinstance(function, ast.FunctionDef) else None
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
        texts.append(first)  # type: ignore[arg-type]
    return frozenset(id(node) for text in texts for node in ast.walk(text))


def _one_line(node: ast.AST) -> bool:
    return getattr(node, "lineno", None) is not None and node.lineno == node.end_lineno  # type: ignore[attr-defined]


def _a_call(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)


def _replaced(kind: str, node: ast.expr | ast.stmt, put: str) -> _Change:
    return _Change(kind, node.lineno, node.col_offset, int(node.end_col_offset or 0), put)


def _between(
    node: ast.expr,
    sides: list[ast.expr],
    operators: list[_Operator],
    others: dict[type[_Operator], tuple[str, ...]],
    source: str,
) -> Iterator[_Change]:
    """An operator between two expressions for another: found as what is neither of them nor a parenthesis."""
    line = source.split("\n")[node.lineno - 1].encode()
    kind = "comparison" if isinstance(node, ast.Compare) else "arithmetic"
    for left, right, operator in zip(sides, sides[1:], operators, strict=False):
        start, end = int(left.end_col_offset or 0), right.col_offset
        gap = line[start:end].decode("utf-8", "replace")
        word = gap.strip(" ()\\")
        if not word or "#" in word:
            continue
        at = start + len(gap[: gap.index(word)].encode())
        for put in others.get(type(operator), ()):
            yield _Change(kind, node.lineno, at, at + len(word.encode()), put)


def _augmented(node: ast.AugAssign, source: str) -> Iterator[_Change]:
    sign = _SIGNS.get(type(node.op))
    line = source.split("\n")[node.lineno - 1].encode()
    start = int(node.target.end_col_offset or 0)
    at = line.find(f"{sign}=".encode(), start) if sign else -1
    if at >= 0 and sign:
        for put in _COUNTED.get(type(node.op), ()):
            yield _Change("arithmetic", node.lineno, at, at + len(sign), put)


def _joined(node: ast.BoolOp, source: str) -> Iterator[_Change]:
    """One ``and`` for ``or``, or the other way round."""
    line = source.split("\n")[node.lineno - 1].encode()
    old, new = (b"and", "or") if isinstance(node.op, ast.And) else (b"or", "and")
    for left, right in zip(node.values, node.values[1:], strict=False):
        at = line.find(old, int(left.end_col_offset or 0), right.col_offset)
        if at >= 0:
            yield _Change("boolean", node.lineno, at, at + len(old), new)


def _constant(node: ast.Constant) -> Iterator[_Change]:
    if isinstance(node.value, bool):
        yield _replaced("boolean", node, str(not node.value))
    elif isinstance(node.value, int) and abs(node.value) <= _LARGEST:
        yield _replaced("off by one", node, str(node.value + 1))
        if node.value > 0:
            yield _replaced("off by one", node, str(node.value - 1))


def _named(node: ast.Name, names: tuple[str, ...]) -> Iterator[_Change]:
    if node.id in _TWIN:
        yield _replaced("wrong function", node, _TWIN[node.id])
    if node.id in names:
        for other in names:
            if other != node.id:
                yield _replaced("wrong variable", node, other)


def _other(value: ast.expr) -> str:
    """Another value to return: the opposite of a truth, else nothing."""
    if isinstance(value, ast.Compare | ast.BoolOp) or (
        isinstance(value, ast.UnaryOp) and isinstance(value.op, ast.Not)
    ):
        return f"not ({ast.unparse(value)})"
    return "None"


def _local_names(function: ast.AST) -> tuple[str, ...]:
    """Parameters and whatever is assigned to, in the order of their first place."""
    found: dict[str, None] = {}
    for node in ast.walk(function):
        if isinstance(node, ast.arg):
            found[node.arg] = None
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found[node.id] = None
    return tuple(found)
