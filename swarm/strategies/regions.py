"""Functions that may be at fault, and answers that hold one of them anew: found, read and put in place. Pure.

What a model writes is taken apart by its syntax tree: the function of that name alone, with the imports that it newly
needs, at the old one's indentation and with its docstring. Nothing else of the file moves by a byte.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from swarm.strategies.spectrum import Suspect, parse

LONGEST = 120  # lines of a function, or of a file that is taken whole
_FENCE = re.compile(r"```[\w+-]*\s*\n(.*?)(?:```|\Z)", re.DOTALL)

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Region:
    """Lines of a file that are written anew: a function, or the whole of a small file that is no Python.

    ``first`` and ``last`` count from 1; ``text`` is without the indentation.
    """

    file: str
    first: int
    last: int
    name: str
    text: str
    indent: str = ""
    imports: str = ""


def suspected(suspects: Iterable[Suspect], sources: Mapping[str, str], most: int) -> tuple[Region, ...]:
    """The regions of the most suspicious lines, each once."""
    found: dict[tuple[str, int], Region] = {}
    for suspect in suspects:
        region = around(suspect.file, sources[suspect.file], suspect.line)
        if region is not None:
            found.setdefault((region.file, region.first), region)
        if len(found) == most:
            break
    return tuple(found.values())


def named(words: str, sources: Mapping[str, str]) -> tuple[Region, ...]:
    """The functions of these files that the words name; where they name none, all that there are."""
    found = []
    for file, source in sources.items():
        found += [region for node in _functions(source) if (region := _of(file, source, node)) is not None]
    spoken = set(re.findall(r"\w+", words))
    return tuple(region for region in found if region.name in spoken) or tuple(found)


def around(file: str, source: str, line: int) -> Region | None:
    """The innermost function around a line; a small file of another language whole; else None."""
    if not file.endswith(".py"):
        rows = source.count("\n") + 1
        return Region(file, 1, rows, "", source.removesuffix("\n")) if rows <= LONGEST else None
    holding = [node for node in _functions(source) if _first(node) <= line <= (node.end_lineno or node.lineno)]
    inner = max(holding, key=_first, default=None)
    return _of(file, source, inner) if inner is not None else None


def written(answer: str, region: Region, source: str) -> str:
    """The region as an answer has it, at its own indentation; empty where the answer holds none that can be used."""
    blocks = [*reversed(_FENCE.findall(answer)), answer]
    if not region.name:
        return next((block.rstrip("\n") for block in blocks[:-1] if block.strip()), "")
    for block in blocks:
        code = textwrap.dedent(block).strip("\n")
        function = _function_in(code, region, source)
        if function:
            return function
    return ""


def replaced(source: str, region: Region, code: str) -> str:
    """The source with a region written anew; line ends as they are there."""
    lines = source.split("\n")
    end = "\r" if lines[region.first - 1].endswith("\r") else ""
    new = [f"{row}{end}" for row in code.split("\n")]
    if region.last == len(lines) and end:
        new[-1] = new[-1].removesuffix("\r")
    return "\n".join([*lines[: region.first - 1], *new, *lines[region.last :]])


def meaning(file: str, source: str) -> str:
    """What a source says, its layout, comments and docstrings aside; empty where it does not parse."""
    if not file.endswith(".py"):
        return " ".join(source.split())
    try:
        tree = parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ""
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            and ast.get_docstring(node) is not None
        ):
            node.body = node.body[1:] or [ast.Pass()]
    return ast.dump(tree)


def _function_in(code: str, region: Region, source: str) -> str:
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ""
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    nodes = [node for node in functions if node.name == region.name]
    if not nodes:
        return ""
    node = nodes[-1]
    rows = code.split("\n")[_first(node) - 1 : node.end_lineno]
    rows = textwrap.dedent("\n".join(rows)).split("\n")
    rows = _with_docstring(rows, region.text.split("\n"))
    if _only(rows) is None:  # odd line ends, or a docstring that could not be put back
        return ""
    if not region.indent:
        rows = [*_new_imports(tree, source), *rows]
    return "\n".join(f"{region.indent}{row}" if row.strip() else "" for row in rows)


def _with_docstring(rows: list[str], old: list[str]) -> list[str]:
    """The function with the docstring that it had: what it is to do is not for the model to say."""
    span, had = _docstring(rows), _docstring(old)
    if had is None:
        return rows
    kept = old[had[0] : had[1]]
    if span is not None:
        return [*rows[: span[0]], *kept, *rows[span[1] :]]
    start = _body(rows)
    return rows if start is None else [*rows[:start], *kept, *rows[start:]]


def _docstring(rows: Sequence[str]) -> tuple[int, int] | None:
    """Where the rows of a docstring begin and end; None where there is none, or it shares a row."""
    node = _only(rows)
    if node is None or ast.get_docstring(node, clean=False) is None or len(node.body) < 2:
        return None
    first = node.body[0]
    alone = first.lineno > node.lineno and node.body[1].lineno > (first.end_lineno or first.lineno)
    return (first.lineno - 1, first.end_lineno or first.lineno) if alone else None


def _body(rows: Sequence[str]) -> int | None:
    """The row that a function's body begins with."""
    node = _only(rows)
    return node.body[0].lineno - 1 if node is not None and node.body[0].lineno > node.lineno else None


def _only(rows: Sequence[str]) -> Function | None:
    try:
        body = ast.parse("\n".join(rows)).body
    except (SyntaxError, ValueError, RecursionError):
        return None
    node = body[0] if len(body) == 1 else None
    return node if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else None


def _new_imports(tree: ast.Module, source: str) -> list[str]:
    known = set(_imports(source))
    return [text for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)
            and (text := ast.unparse(node)) not in known]  # fmt: skip


def _imports(source: str) -> list[str]:
    try:
        body = parse(source).body
    except (SyntaxError, ValueError, RecursionError):
        return []
    return [ast.unparse(node) for node in body if isinstance(node, ast.Import | ast.ImportFrom)]


def _of(file: str, source: str, node: Function) -> Region | None:
    first, last = _first(node), node.end_lineno or node.lineno
    rows = [row.removesuffix("\r") for row in source.split("\n")[first - 1 : last]]
    indent = rows[0][: len(rows[0]) - len(rows[0].lstrip())]
    if last - first + 1 > LONGEST or not rows[0].strip():
        return None
    text = textwrap.dedent("\n".join(rows))
    return Region(file, first, last, node.name, text, indent, "\n".join(_imports(source)[:20]))


def _functions(source: str) -> list[Function]:
    try:
        return [node for node in ast.walk(parse(source)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    except (SyntaxError, ValueError, RecursionError):
        return []


def _first(node: Function) -> int:
    """The first line, decorators included."""
    return min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
