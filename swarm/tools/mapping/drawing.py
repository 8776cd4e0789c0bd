"""A map as text within a budget of characters: files by rank, in each its definitions by line. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from swarm.tools.mapping.definitions import Definition, Source
from swarm.tools.mapping.ranking import Scores


def draw(sources: Sequence[Source], ranks: Mapping[str, float], scores: Scores, budget: int) -> str:
    """As many definitions, the best first, as fit; the ranks alone decide the order."""
    order = sorted(scores, key=lambda key: (-scores[key], key[0], key[1].first))
    low, high = 0, min(len(order), budget // 4)
    best = ""
    while low <= high:
        middle = (low + high) // 2
        text = _drawn(sources, ranks, order[:middle])
        if len(text) <= budget:
            best, low = text, middle + 1
        else:
            high = middle - 1
    return best


def _drawn(sources: Sequence[Source], ranks: Mapping[str, float], chosen: Sequence[tuple[str, Definition]]) -> str:
    picked: dict[str, set[Definition]] = {}
    for path, one in chosen:
        picked.setdefault(path, set()).add(one)
    order = sorted((one for one in sources if one.path in picked), key=lambda one: (-ranks[one.path], one.path))
    return "\n\n".join(f"{one.path}:\n" + "\n".join(_lines(one, picked[one.path])) for one in order)


def _lines(source: Source, picked: set[Definition]) -> list[str]:
    """The chosen definitions of a file, each below what it lies in."""
    shown: list[str] = []
    around: list[tuple[Definition, int | None]] = []  # what encloses the present line, and where it is shown
    for one in sorted(source.definitions, key=lambda one: (one.first, -one.last)):
        while around and not (around[-1][0].first < one.first and one.last <= around[-1][0].last):
            around.pop()
        at = None
        if one in picked:
            for depth, (outer, where) in enumerate(around):
                if where is None:
                    shown.append(_line(outer, depth))
                    around[depth] = (outer, len(shown))
            shown.append(_line(one, len(around)))
            at = len(shown)
        around.append((one, at))
    return shown


def _line(one: Definition, depth: int) -> str:
    return f"{one.first:>5}  {'  ' * depth}{one.signature}"
