"""What the workflows of a repository's own continuous integration run, as hints: words of the repository, shown as data
and never run. Pure, and no YAML: lines alone are looked at."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from swarm.knowledge.cleaning import line

MOST = 8  # hints
_LONGEST = 160
_RUN = re.compile(r"^(?P<blank> *)(?:- +)?(?:run|script|command): *(?P<rest>.*)$")
_BLOCK = re.compile(r"^[|>][+-]?\d?$")
_TELLS = re.compile(
    r"\b(?:pytest|tox|nox|unittest|pip install|uv (?:sync|run|pip)|poetry|hatch|make|npm|yarn|pnpm|bun|cargo"
    r"|go (?:test|build)|mvn|gradlew?|composer|phpunit|bundle|rspec|rake|cmake|ctest|mix|dotnet|deno"
    r"|apt(?:-get)? install)\b"
)


def hints(texts: Mapping[str, str]) -> tuple[str, ...]:
    """The commands of these files that install or test, one line each, cleaned; MOST at most."""
    found = (
        line(command, _LONGEST) for text in texts.values() for command in _commands(text) if _TELLS.search(command)
    )
    return tuple(dict.fromkeys(each for each in found if each))[:MOST]


def _commands(text: str) -> Iterator[str]:
    """Each command line below a ``run:``, also of a block."""
    inside: int | None = None
    for raw in text.splitlines():
        depth = len(raw) - len(raw.lstrip(" "))
        if inside is not None and raw.strip() and depth > inside:
            yield raw.strip()
            continue
        inside = None if raw.strip() else inside
        if (match := _RUN.match(raw[:2000])) is None:
            continue
        rest = match["rest"].strip()
        if not rest or _BLOCK.match(rest):
            inside = depth
        else:
            yield rest.strip("'\"")
