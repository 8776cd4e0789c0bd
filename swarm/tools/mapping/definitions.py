"""What a map is made of, as data: definitions in files, and which file is in which language."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

_ENDINGS = {
    "python": "py pyi", "javascript": "js jsx mjs cjs", "typescript": "ts mts cts", "tsx": "tsx", "go": "go",
    "rust": "rs", "java": "java", "c": "c h", "cpp": "cc cpp cxx hpp hh hxx", "ruby": "rb rake", "php": "php",
    "c_sharp": "cs", "kotlin": "kt kts", "swift": "swift", "scala": "scala", "lua": "lua", "shell": "sh bash",
}  # fmt: skip
LANGUAGES = {ending: language for language, endings in _ENDINGS.items() for ending in endings.split()}
"""A language's name by the ending of a file's name. Not every one has a grammar: the others are read by their lines."""

NAME, SIGNATURE = 100, 160  # characters kept of each


@dataclass(frozen=True)
class Definition:
    """A class, function or the like: its name, its first and last line from 1, and its first line's text."""

    name: str
    first: int
    last: int
    signature: str


@dataclass(frozen=True)
class Source:
    """A file as it is mapped: what it defines, and how often it mentions which name."""

    path: str
    definitions: tuple[Definition, ...] = ()
    mentions: Mapping[str, int] = field(default_factory=dict)


def language_of(path: str) -> str | None:
    """The language of a file by its name; None for one that is not mapped."""
    return LANGUAGES.get(path.rpartition(".")[2].lower()) if "." in path.rpartition("/")[2] else None
