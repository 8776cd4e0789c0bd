"""A Python file as a syntax tree, and which of its statements can make a test fail: what is swallowed or never reached
cannot. Pure; size is bounded before anything is parsed, and what cannot be read is None, never an error."""

from __future__ import annotations

import ast
import threading
import warnings
from collections.abc import Iterator

from swarm.truth.asserting import Check, called, of_assert, of_call, words

LIMIT = 256 * 1024  # bytes of a file that is read; parsing one takes a second at worst
_PARSING = threading.Lock()  # over what Python warns of in a file, which is switched off for all threads at once
_SWALLOW = frozenset({"Exception", "BaseException", "AssertionError"})
Function = ast.FunctionDef | ast.AsyncFunctionDef


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


def of_check(node: ast.AST, helpers: frozenset[str] = frozenset()) -> Check | None:
    """The assertion that a node is; None where it is none."""
    if isinstance(node, ast.Assert):
        return of_assert(node)
    return of_call(node, helpers) if isinstance(node, ast.Call) else None


def alive(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements up to the first that always leaves."""
    for statement in body:
        yield statement
        if isinstance(statement, ast.Return | ast.Raise | ast.Continue | ast.Break):
            return


def walked(node: ast.AST) -> Iterator[ast.AST]:
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
                todo += alive(current.body if value else current.orelse)
            case ast.If():
                todo += [current.test, *alive(current.body), *alive(current.orelse)]
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


def within(nodes: list[ast.stmt]) -> Iterator[ast.AST]:
    """All nodes that run when these do, functions and classes left out."""
    todo: list[ast.AST] = list(reversed(nodes))
    while todo:
        node = todo.pop()
        yield node
        if not isinstance(node, Function | ast.ClassDef | ast.Lambda):
            todo += reversed(list(ast.iter_child_nodes(node)))


def never(test: ast.expr) -> bool:
    return isinstance(test, ast.Constant) and not test.value
