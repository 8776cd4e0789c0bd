"""From what each test executed to the lines that are worth suspecting. Pure.

Spectrum-based fault localisation with Ochiai's coefficient (Abreu, Zoeteweij, van Gemund: On the Accuracy of
Spectrum-based Fault Localization, 2007). Nothing but the tests' outcomes and the executed lines goes in.
"""

from __future__ import annotations

import ast
import json
import math
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

_FUNCTION_LINES = 60
_AROUND = 6
_ALIKE = 0.8  # of a score, from which two lines are suspected about alike


@dataclass(frozen=True)
class Trace:
    """One test: its outcome and the lines it executed, by file."""

    test: str
    failed: bool
    lines: Mapping[str, frozenset[int]]


@dataclass(frozen=True)
class Suspect:
    """One line that may be at fault. ``text`` has no indentation; ``around`` is the function that holds it."""

    file: str
    line: int
    text: str
    score: float
    around: str
    function: str = ""


def read_traces(data: bytes) -> tuple[Trace, ...]:
    """What the probe wrote. Lines of any other form are passed over: the code under test may have written them."""
    traces = []
    for row in data.decode("utf-8", "replace").splitlines():
        try:
            item = json.loads(row)
            lines = {str(name): frozenset(int(number) for number in numbers) for name, numbers in item["lines"].items()}
            traces.append(Trace(str(item["test"]), bool(item["failed"]), lines))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            continue
    return tuple(traces)


def ochiai(traces: Sequence[Trace]) -> dict[tuple[str, int], float]:
    """Suspicion from 0 to 1 of every line that a failing test executed."""
    failing = sum(trace.failed for trace in traces)
    in_failed: Counter[tuple[str, int]] = Counter()
    in_passed: Counter[tuple[str, int]] = Counter()
    for trace in traces:
        counter = in_failed if trace.failed else in_passed
        counter.update((file, line) for file, lines in trace.lines.items() for line in lines)
    return {place: hits / math.sqrt(failing * (hits + in_passed[place])) for place, hits in in_failed.items()}


def suspects(scores: Mapping[tuple[str, int], float], sources: Mapping[str, str], limit: int) -> tuple[Suspect, ...]:
    """The most suspicious statements of ``sources``, highest score first, then in the order of the files."""
    found = []
    for file, source in sources.items():
        for line, head in statements(source).items():
            score = scores.get((file, head), 0.0)
            if score > 0:
                found.append(suspect(file, source, line, score))
    return tuple(sorted(found, key=lambda item: -item.score)[:limit])


def everywhere(sources: Mapping[str, str], limit: int) -> tuple[Suspect, ...]:
    """Every statement of ``sources`` alike, where nothing is known of what the tests executed."""
    found = [suspect(file, source, line, 1.0) for file, source in sources.items() for line in statements(source)]
    return tuple(found[:limit])


def statements(source: str) -> dict[int, int]:
    """Lines that hold a statement worth changing, with the first line of that statement.

    Of compound statements the head counts; imports, definitions, docstrings and the like do not. A source that is not
    Python gives every line that is neither blank nor looks like a comment.
    """
    try:
        tree = parse(source)
    except (SyntaxError, ValueError, RecursionError):
        rows = enumerate(source.split("\n"), 1)
        return {n: n for n, row in rows if row.strip() and not row.strip().startswith(("#", "//", "/*", "*"))}
    lines = source.split("\n")
    found = {}
    for head, last in _spans(tree):
        for line in range(head, last + 1):
            if lines[line - 1].strip() and not lines[line - 1].strip().startswith("#"):
                found[line] = head
    return dict(sorted(found.items()))


def _spans(tree: ast.Module) -> Iterator[tuple[int, int]]:
    """First and last line of every simple statement and of the head of every compound one."""
    passed_over = (
        ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom, ast.Global, ast.Nonlocal,
        ast.Pass, ast.Try, ast.Match,
    )  # fmt: skip
    for node in ast.walk(tree):
        if not isinstance(node, ast.stmt) or isinstance(node, passed_over):
            continue
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue  # a docstring, or an ellipsis
        body = getattr(node, "body", None)
        last = body[0].lineno - 1 if body else node.end_lineno or node.lineno
        yield node.lineno, max(node.lineno, last)


def parse(source: str) -> ast.Module:
    """The syntax tree, a byte order mark and a declared encoding respected. Raises SyntaxError, ValueError."""
    return ast.parse(source.encode("utf-8", "surrogateescape"))


def suspect(file: str, source: str, line: int, score: float) -> Suspect:
    """The line with the code around it."""
    lines = source.split("\n")
    first, last, name = _function(source, line)
    if last - first + 1 > _FUNCTION_LINES:
        first, last = max(first, line - 2 * _AROUND), min(last, line + 2 * _AROUND)
    around = textwrap.dedent("\n".join(row.rstrip("\r") for row in lines[first - 1 : last]))
    return Suspect(file, line, lines[line - 1].strip(), score, around, name)


def _function(source: str, line: int) -> tuple[int, int, str]:
    """First line, last line and name of the innermost function around a line; some lines and no name outside any."""
    count = source.count("\n") + 1
    window = (max(1, line - _AROUND), min(count, line + _AROUND), "")
    try:
        nodes: Iterable[ast.AST] = ast.walk(parse(source))
    except (SyntaxError, ValueError, RecursionError):
        return window
    functions = [node for node in nodes if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
    holding = [node for node in functions if node.lineno <= line <= (node.end_lineno or node.lineno)]
    if not holding:
        return window
    inner = max(holding, key=lambda node: node.lineno)
    return inner.lineno, inner.end_lineno or inner.lineno, inner.name


def batches(suspects: Sequence[Suspect], most: int) -> Iterator[Sequence[Suspect]]:
    """Lines that are suspected about alike go together, so that none waits for much less likely ones."""
    start = 0
    for index, suspect in enumerate(suspects):
        if index - start == most or suspect.score < _ALIKE * suspects[start].score:
            yield suspects[start:index]
            start = index
    if suspects:
        yield suspects[start:]
