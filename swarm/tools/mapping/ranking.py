"""Which definitions of a repository matter most: PageRank over who says whose names, as aider's map does. Pure.

Files are nodes; a file points to each that defines a name it mentions, the more so the more telling the name. The rank
of a file goes on to its definitions by the words through which it came. Source: aider, `aider/repomap.py`.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence

from swarm.tools.mapping.definitions import Definition, Source

_ROUNDS, _DAMPING = 40, 0.85
_OWN, _ASKED = 0.1, 3.0  # of a file's own rank, what goes to its definitions: mostly, and where they are asked for
_COMMON = 5  # files that define a word, above which it says little
_WORD = re.compile(r"[A-Za-z_$][\w$]*")
# Methods of every language's own strings, lists and maps: a mention of one says nothing of who else defines it.
_EVERYDAY_WORDS = """
    add all any append apply call catch clear close concat contains copy count decode delete encode end endswith
    each equals exists extend filter find finish first flush format forEach get has hash index indexOf init
    insert is_empty items iter join keys last len length list load lower main make map match max min new next
    open parse pop print push put read reduce remove render replace reverse run save search send set size slice
    sort split start startswith stop strip sub sum test then title toString trim update upper value values wait
    write
"""
_EVERYDAY = frozenset(_EVERYDAY_WORDS.split())
_TESTS = re.compile(
    r"(?:^|/)(?:tests?|spec|__tests__|testing)/|(?:^|/)(?:test_[^/]*|conftest\.py)$|[._-](?:test|spec)\.\w+$"
)
Scores = dict[tuple[str, Definition], float]


def rank(sources: Sequence[Source], about: str = "") -> tuple[dict[str, float], Scores]:
    """The rank of each file, and of each definition. ``about`` are words that matter now."""
    wanted = frozenset(_WORD.findall(about))
    owners = _owners(sources)
    weights = {source.path: _said(source, owners, wanted) for source in sources}
    named = frozenset(source.path for source in sources if _named(source.path, about, wanted))
    ranks = _walked(weights, _start(sources, named, wanted))
    came = _came(sources, weights, ranks)
    scores: Scores = {}
    for source in sources:
        for one in source.definitions:
            part = _ASKED if source.path in named or one.name in wanted else _OWN
            own = ranks[source.path] * part / len(source.definitions) * _telling(one.name, len(owners[one.name]))
            scores[source.path, one] = came.get((source.path, one.name), 0.0) + own
    return ranks, scores


def _owners(sources: Sequence[Source]) -> dict[str, tuple[str, ...]]:
    """The files that define each name."""
    owners: dict[str, set[str]] = defaultdict(set)
    for source in sources:
        for one in source.definitions:
            owners[one.name].add(source.path)
    return {name: tuple(sorted(paths)) for name, paths in owners.items()}


def _said(source: Source, owners: Mapping[str, Sequence[str]], wanted: frozenset[str]) -> dict[tuple[str, str], float]:
    """How strongly a file points to another by each name."""
    found: dict[tuple[str, str], float] = {}
    for word, times in source.mentions.items():
        there = owners.get(word, ())
        if not there or source.path in there:
            continue
        weight = _telling(word, len(there), wanted) * math.sqrt(times) / len(there)
        for path in there:
            found[path, word] = weight
    return found


def _telling(word: str, owners: int, wanted: frozenset[str] = frozenset()) -> float:
    """How much a name says: a long one of several words more, a private or common one less."""
    weight = 1.0
    if word in wanted:
        weight *= 10
    if len(word) >= 8 and ("_" in word.strip("_") or re.search(r"[a-z][A-Z]", word)):
        weight *= 5
    if word.startswith("_") or word in _EVERYDAY:
        weight *= 0.1
    if owners > _COMMON:
        weight *= 0.1
    return weight


def _named(path: str, about: str, wanted: frozenset[str]) -> bool:
    """Whether a file is spoken of by its path or name."""
    return path in about or path.rpartition("/")[2].partition(".")[0] in wanted


def _start(sources: Sequence[Source], named: frozenset[str], wanted: frozenset[str]) -> dict[str, float]:
    """Where the walk begins: everywhere, less in tests, more in files that are named or define what is."""
    start = {}
    for source in sources:
        weight = 0.3 if _TESTS.search(source.path) else 1.0
        weight *= 50 if source.path in named else 1
        weight *= 20 if any(one.name in wanted for one in source.definitions) else 1
        start[source.path] = weight
    total = sum(start.values()) or 1.0
    return {path: weight / total for path, weight in start.items()}


def _walked(weights: Mapping[str, Mapping[tuple[str, str], float]], start: Mapping[str, float]) -> dict[str, float]:
    """PageRank by power iteration; what a file without any pointer has goes back to the start."""
    links = {path: _links(said) for path, said in weights.items()}
    ranks = dict(start)
    for _ in range(_ROUNDS):
        lost = sum(ranks[path] for path, outgoing in links.items() if not outgoing)
        new = {path: (1 - _DAMPING + _DAMPING * lost) * share for path, share in start.items()}
        for path, outgoing in links.items():
            for target, share in outgoing:
                new[target] += _DAMPING * ranks[path] * share
        ranks = new
    return ranks


def _links(said: Mapping[tuple[str, str], float]) -> list[tuple[str, float]]:
    total = sum(said.values())
    merged: dict[str, float] = defaultdict(float)
    for (path, _), weight in said.items():
        merged[path] += weight / total
    return sorted(merged.items())


def _came(
    sources: Sequence[Source], weights: Mapping[str, Mapping[tuple[str, str], float]], ranks: Mapping[str, float]
) -> dict[tuple[str, str], float]:
    """How much rank came to each file by each name."""
    came: dict[tuple[str, str], float] = defaultdict(float)
    for source in sources:
        said = weights[source.path]
        total = sum(said.values())
        for target, weight in said.items():
            came[target] += ranks[source.path] * weight / total
    return came
