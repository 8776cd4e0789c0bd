"""How much one assertion of a Python test demands, and what it says. Pure, over a syntax tree that may be hostile."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

EXACT, BOUNDED, VAGUE, NOTHING = 3, 2, 1, 0
"""An exact value or error; a range, a member or a type of error; that something is there; nothing at all."""

_EXACT_CALLS = frozenset({"assertEqual", "assertEquals", "assertIs", "assertIsNone", "assertFalse", "assertRaises"})
_EXACT_ENDS = ("Equal", "Regex", "_called_with", "_called_once_with", "_has_calls", "_equal", "_equals")
_VAGUE_CALLS = frozenset({"assertTrue", "assertIsNotNone", "assertIsInstance", "assertNotEqual", "assertIsNot"})
_CALLED = ("assert", "expect", "verify", "should")
_NAMED = frozenset({"raises", "warns", "fail", "deprecated_call"})
_BROAD = frozenset({"Exception", "BaseException"})
_SIGNS = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="}
_WORDS = 120
_NODES, _DOTS = 400, 8


@dataclass(frozen=True)
class Check:
    """One assertion: what it demands, what it looks at (``subject``) and what it wants of that (``wanted``)."""

    strength: int
    subject: str = ""
    wanted: str = ""


def of_assert(statement: ast.Assert) -> Check:
    """An ``assert``."""
    return _of_test(statement.test)


def of_call(call: ast.Call, helpers: frozenset[str] = frozenset()) -> Check | None:  # noqa: PLR0911  one line a kind
    """A call that asserts, such as ``self.assertEqual(a, b)`` or ``pytest.raises(E)``; None for any other.

    ``helpers`` are functions of the same file that assert.
    """
    name = called(call)
    if name in helpers:
        return Check(EXACT)
    if name in _NAMED:
        broad = name == "raises" and bool(call.args) and _last(call.args[0]) in _BROAD
        return Check(VAGUE if broad else EXACT, name, words(call.args[0]) if call.args else "")
    if not name.lower().lstrip("_").startswith(_CALLED):
        return None
    if name in {"assertTrue", "assert_", "assertFalse"} and call.args:
        inner = _of_test(call.args[0]) if name != "assertFalse" else _of_denial(call.args[0])
        return inner if inner.strength in {NOTHING, EXACT} else Check(inner.strength, inner.subject, inner.wanted)
    if len(call.args) >= 2 and same(call.args[0], call.args[1]) and "Not" not in name:
        return Check(NOTHING)
    if name in {"assertIsNone", "assertIsNotNone"} and call.args and isinstance(call.args[0], ast.Constant):
        return Check(NOTHING)
    subject = f"{name} {words(call.args[0])}" if call.args else name
    return Check(_of_name(name), subject, words(call.args[1]) if len(call.args) > 1 else "")


def called(call: ast.Call) -> str:
    """The last word of what is called."""
    return _last(call.func)


def words(node: ast.AST) -> str:
    """Source of a node, cut to a line; empty for one of more than _NODES nodes, which nobody would read anyway."""
    try:
        return " ".join(ast.unparse(node).split())[:_WORDS] if _small(node) else ""
    except (RecursionError, ValueError):
        return ""


def dotted(node: ast.AST) -> str:
    """A name with its attributes, as ``os.path.join``; empty for anything else, and for more than _DOTS of them."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute) and len(parts) < _DOTS:
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return f"?.{'.'.join(reversed(parts))}" if parts and isinstance(node, ast.Call) else ""
    return ".".join([node.id, *reversed(parts)])


def same(one: ast.AST, other: ast.AST) -> bool:
    """Whether two nodes say the same; one of more than _NODES nodes is like no other."""
    try:
        return _small(one) and _small(other) and ast.dump(one) == ast.dump(other)
    except RecursionError:
        return False


def _small(node: ast.AST) -> bool:
    """Whether a node is so small that it may be looked at again for each that it lies in."""
    todo: list[Iterator[ast.AST]] = [iter((node,))]
    seen = 0
    while todo and seen <= _NODES:
        child = next(todo[-1], None)
        if child is None:
            todo.pop()
        else:
            seen += 1
            todo.append(ast.iter_child_nodes(child))
    return seen <= _NODES


def _of_name(name: str) -> int:
    if name in _VAGUE_CALLS:
        return VAGUE
    return EXACT if name in _EXACT_CALLS or name.endswith(_EXACT_ENDS) else BOUNDED


def _of_test(test: ast.expr) -> Check:  # noqa: C901, PLR0911  one line a kind of expression
    match test:
        case ast.Constant(value=value):
            return Check(NOTHING if value else EXACT, "", words(test))
        case ast.Tuple(elts=[_, *_]) | ast.List(elts=[_, *_]) | ast.Lambda() | ast.JoinedStr():
            return Check(NOTHING)
        case ast.BoolOp(op=ast.Or(), values=values):
            parts = [_of_test(value) for value in values[:20]]
            weakest = min(part.strength for part in parts)
            return Check(NOTHING if weakest == NOTHING else VAGUE, words(test))
        case ast.BoolOp(op=ast.And(), values=values):
            return max((_of_test(value) for value in values[:20]), key=lambda part: part.strength)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return _of_denial(operand)
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            return _of_comparison(left, op, right)
        case ast.Compare():
            return Check(BOUNDED, words(test))
        case ast.Call() if called(test) == "isinstance" and len(test.args) == 2:
            return Check(
                NOTHING if _last(test.args[1]) == "object" else VAGUE, words(test.args[0]), words(test.args[1])
            )
        case ast.Call() if called(test) in {"all", "any"}:
            return Check(BOUNDED, words(test))
        case ast.IfExp(body=body, orelse=orelse):
            parts = [_of_test(body), _of_test(orelse)]
            return Check(NOTHING if min(each.strength for each in parts) == NOTHING else VAGUE, words(test))
        case ast.NamedExpr(value=value):
            return _of_test(value)
    return Check(VAGUE, words(test))


def _of_denial(test: ast.expr) -> Check:
    if isinstance(test, ast.Constant):
        return Check(EXACT if test.value else NOTHING)
    return Check(BOUNDED, f"not {words(test)}")


def _of_comparison(left: ast.expr, op: ast.cmpop, right: ast.expr) -> Check:  # noqa: PLR0911  one line a kind
    if same(left, right) and isinstance(op, ast.Eq | ast.Is | ast.LtE | ast.GtE):
        return Check(NOTHING)
    if isinstance(left, ast.Constant) and isinstance(right, ast.Constant):
        return Check(NOTHING)
    if isinstance(left, ast.Call) and called(left) == "len" and isinstance(op, ast.GtE) and _is_zero(right):
        return Check(NOTHING)
    match op:
        case ast.Eq():
            return Check(EXACT, f"{words(left)} ==", words(_exactly(right)))
        case ast.Is():
            return Check(EXACT, f"{words(left)} is", words(right))
        case ast.NotEq() | ast.IsNot():
            return Check(VAGUE, words(left))
        case ast.In() | ast.NotIn():
            sign = "has" if isinstance(op, ast.In) else "has not"
            return Check(BOUNDED, f"{words(right)} {sign}", words(left))
    return Check(BOUNDED, f"{words(left)} {_SIGNS.get(type(op), '?')}", words(right))


def _exactly(node: ast.expr) -> ast.expr:
    """What is compared with, without how closely: tolerances are looked at as numbers."""
    return node.args[0] if isinstance(node, ast.Call) and called(node) == "approx" and node.args else node


def _is_zero(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value == 0


def _last(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""
