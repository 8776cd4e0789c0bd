"""Which files of a repository tell agents how to work in it, and what of them is told. Pure.

After the conventions of agents.md (the nearest AGENTS.md counts), of Claude Code (``@path`` imports), of Copilot,
Cursor, Windsurf, Cline and Gemini. Symbolic links and equal files are told once; imports never leave the repository.
"""

from __future__ import annotations

import fnmatch
import posixpath
import re
from collections.abc import Iterable, Iterator, Sequence

from swarm.knowledge.cleaning import line, visible
from swarm.known import GUIDE, GUIDES, Guide

NESTED = ("AGENTS.md", "AGENT.md", "CLAUDE.md", "GEMINI.md")
"""Looked for at the top and in every folder on the way to a path of the task."""
TOP = (
    ".github/copilot-instructions.md", ".cursorrules", ".windsurfrules", ".clinerules", "CONVENTIONS.md",
    "CONTRIBUTING.md", ".github/CONTRIBUTING.md", "docs/CONTRIBUTING.md",
)  # fmt: skip
FOLDERS = (".cursor/rules/", ".windsurf/rules/", ".clinerules/", ".github/instructions/")
HEAD = 4000  # characters of what is written for people first
FILES = 24  # that are read, imports among them
_DEEPEST = 12  # folders on the way to a path
_FOR_PEOPLE = re.compile(r"(^|/)CONTRIBUTING\.md$")
_RULES = re.compile(r"\.(md|mdc|txt)$")
_IMPORT = re.compile(r"(?:^|(?<=\s))@([\w./-]{1,200}\.(?:md|mdc|txt))(?=$|[\s,;:)])", re.MULTILINE)
_FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
_MATTER = re.compile(r"\A---\n(.{0,2000}?)\n---\n", re.DOTALL)


def places(paths: Iterable[str], looked_at: Sequence[str], chosen: Sequence[str] | None = None) -> tuple[str, ...]:
    """The guides among a tree's ``paths``, in the order to be read: the top's first, the nearest to ``looked_at`` last.

    ``chosen`` are the only names that count, of files or whole paths; None is every one that is known.
    """
    there = set(paths)
    folders = _folders(looked_at)
    wanted = [f"{folder}{name}" for folder in ("", *folders) for name in NESTED]
    wanted[len(NESTED) : len(NESTED)] = [*TOP, *sorted(path for path in there if _in_rules(path))]
    if chosen is not None:
        names = set(chosen)
        wanted = [path for path in wanted if path in names or posixpath.basename(path) in names]
        wanted += [path for path in chosen if "/" in path or path not in wanted]
    return tuple(path for path in dict.fromkeys(wanted) if path in there)[:FILES]


def imports(path: str, text: str) -> tuple[str, ...]:
    """What a guide takes in by ``@path``, relative to it; what would lie outside the repository is none."""
    folder = posixpath.dirname(path)
    found = []
    for match in _IMPORT.finditer(_FENCE.sub("", text)):
        joined = posixpath.normpath(posixpath.join(folder, match[1]))
        if not match[1].startswith("/") and not joined.startswith("../") and joined != "..":
            found.append(joined)
    return tuple(dict.fromkeys(found))


def applies(text: str, looked_at: Sequence[str]) -> bool:
    """Whether a rule file with front matter (``globs``, ``applyTo``, ``alwaysApply``) is for these paths."""
    if (matter := _MATTER.match(text)) is None:
        return True
    said = dict(_pairs(matter[1]))
    if said.get("alwaysApply", "").lower() == "true":
        return True
    globs = [each.strip(" '\"[]") for each in (said.get("globs") or said.get("applyTo") or "").split(",")]
    globs = [each for each in globs if each][:50]
    if not globs:
        return said.get("alwaysApply", "").lower() != "false"
    return any(_fits(path, each) for path in looked_at for each in globs) or "**" in globs or "**/*" in globs


def told(texts: Sequence[tuple[str, str]]) -> tuple[Guide, ...]:
    """Guides of these paths and raw texts, cleaned and bounded. Where there is too much, the last, which are nearest to
    what the task is about, keep their words longest; one that says what another says already is left out."""
    cleaned: dict[str, tuple[str, str]] = {}
    for path, text in texts:
        words = visible(_MATTER.sub("", text, count=1)).strip()
        if words:
            cleaned.setdefault(words, (path, text))
    room = GUIDES
    found: list[Guide] = []
    for words, (path, text) in reversed(cleaned.items()):
        kept = _cut(words, min(HEAD if _FOR_PEOPLE.search(path) else GUIDE, room))
        if kept:
            found.append(Guide(path=line(path, 4096), text=kept, left_out=max(0, len(text.strip()) - len(kept))))
            room -= len(kept)
    return tuple(reversed(found))


def _folders(looked_at: Sequence[str]) -> list[str]:
    """Every folder on the way to each path, with its closing slash, the outer ones first."""
    found: dict[str, None] = {}
    for path in looked_at:
        parts = [part for part in posixpath.normpath(path).split("/") if part not in {"", ".", ".."}][:_DEEPEST]
        found |= dict.fromkeys("/".join(parts[:end]) + "/" for end in range(1, len(parts) + 1))
    return sorted(found, key=lambda folder: (folder.count("/"), folder))


def _in_rules(path: str) -> bool:
    return path.startswith(FOLDERS) and bool(_RULES.search(path))


def _pairs(matter: str) -> Iterator[tuple[str, str]]:
    for each in matter.splitlines():
        key, colon, value = each.partition(":")
        if colon:
            yield key.strip(), value.strip()


def _fits(path: str, pattern: str) -> bool:
    """Whether a path, or anything below it, can fit a pattern."""
    plain = pattern.replace("**/", "")
    return (
        fnmatch.fnmatchcase(path, pattern)
        or fnmatch.fnmatchcase(path, plain)
        or pattern.startswith(f"{path.rstrip('/')}/")
    )


def _cut(words: str, most: int) -> str:
    """The head, up to a line's end."""
    if len(words) <= most:
        return words
    head = words[: max(0, most)]
    return head[: head.rfind("\n") + 1].rstrip() or head
