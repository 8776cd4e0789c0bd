"""Calls written as Python: Gemma's tool_code fences, Llama's [view(path="x")], print(default_api.view(...)). Pure."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

LONGEST = 100_000


def calls(source: str, order: Mapping[str, Sequence[str]]) -> list[tuple[str, dict[str, Any]]] | None:
    """The calls that a piece of Python is made of. None where it is anything else as well.

    ``order`` are the tools and their arguments, required ones first: a tool may be called by position.
    """
    if len(source) > LONGEST or "(" not in source:
        return None
    try:
        body = ast.parse(source.strip()).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    found: list[tuple[str, dict[str, Any]]] = []
    for statement in body:
        value = statement.value if isinstance(statement, ast.Expr | ast.Assign) else None
        told = value.elts if isinstance(value, ast.List | ast.Tuple) else [value]
        for one in told:
            call = _call(one, order)
            if call is None:
                return None
            found.append(call)
    return found or None


def _call(node: ast.expr | None, order: Mapping[str, Sequence[str]]) -> tuple[str, dict[str, Any]] | None:
    if not isinstance(node, ast.Call):
        return None
    name = _name(node.func)
    if name in ("print", "call") and len(node.args) == 1 and isinstance(node.args[0], ast.Call):
        return _call(node.args[0], order)
    if name == "call" and isinstance(node.func, ast.Attribute):  # Llama's `view.call(path="x")`
        name = _name(node.func.value)
    if name not in order or len(node.args) > len(order[name]):
        return None
    with suppress(ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        given = dict(zip(order[name], map(ast.literal_eval, node.args), strict=False))
        named = {keyword.arg: ast.literal_eval(keyword.value) for keyword in node.keywords if keyword.arg}
        if not given.keys() & named.keys() and all(keyword.arg for keyword in node.keywords):
            return name, given | named
    return None


def _name(node: ast.expr) -> str:
    """The last part of a dotted name."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""
