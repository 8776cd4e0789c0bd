"""Which files of a repository tell agents how to work in it, and what of them is told. Pure.

After the conventions of agents.md (the nearest AGENTS.md counts), of Claude Code (``@path`` imports), of Copilot,
Cursor, Windsurf, Cline and Gemini. Symbolic links and equal files are told once; imports never leave the repository.
"""

from __future__ import annotations

import fnmatch
import posixpath
import re
from collections.abc import Iterable, Sequence

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
FILES = 24  # that are told, imports among them
READ = 200  # that are looked into before those that do not fit are left out
_DEEPEST = 12  # folders on the way to a path
_FOR_PEOPLE = re.compile(r"(^|/)CONTRIBUTING\.md$")
_RULES = re.compile(r"\.(md|mdc|txt)$")
_IMPORT = re.compile(r"(?:^|(?<=\s))@([\w./-]{1,200}\.(?:md|mdc|txt))(?=$|[\s,;:)])", re.MULTILINE)
_FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
_MATTER = re.compile(r"\A\ufeff?---[ \t]*\r?\n(.{0,4000}?)^---[ \t]*\r?$\n?", re.DOTALL | re.MULTILINE)
_KEY = re.compile(r"([A-Za-z_]\w{0,50})[ \t]*:(.*)")
_COMMENT = re.compile(r"(^|[ \t])#.*")
_COMMA = re.compile(r",(?![^{}]*\})")  # but for those between braces
_BRACES = re.compile(r"\{([^{}]{0,200})\}")
_GLOBS = 50


def places(paths: Iterable[str], looked_at: Sequence[str], chosen: Sequence[str] | None = None) -> tuple[str, ...]:
    """The guides among a tree's ``paths``, in the order to be read: the top's first, the nearest to ``looked_at`` last;
    READ at most, as `fewer` has it.

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
    return fewer([path for path in dict.fromkeys(wanted) if path in there], READ, READ)


def fewer(places: Sequence[str], most: int = FILES, rules: int = FILES // 2) -> tuple[str, ...]:
    """At most so many of these, in their order: the top's own are kept before the nearest, these before those that are
    farther from what the task is about, and at last so many ``rules``, which leave room for what the others import."""
    ranked = sorted(places, key=_rank)
    free = sum(not _in_rules(path) for path in ranked)
    kept = set(ranked[: min(most, free + rules)])
    return tuple(path for path in places if path in kept)


def _rank(path: str) -> tuple[int, int]:
    if posixpath.basename(path) not in NESTED:
        return (3 if _in_rules(path) else 2, 0)
    return (1, -path.count("/")) if "/" in path else (0, 0)


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
    said = _said(matter[1])
    if said.get("alwaysApply", "").lower() == "true":
        return True
    globs = [each.strip(" '\"[]") for each in _COMMA.split(said.get("globs") or said.get("applyTo") or "")]
    globs = [one for each in globs[:_GLOBS] if each for one in _alternatives(each)][:_GLOBS]
    if not globs:
        return said.get("alwaysApply", "").lower() != "false"
    return any(_fits(path, each) for path in looked_at for each in globs) or "**" in globs or "**/*" in globs


def told(texts: Sequence[tuple[str, str]]) -> tuple[Guide, ...]:
    """Guides of these paths and raw texts, cleaned and bounded. Where there is too much, the last, which are nearest to
    what the task is about, keep their words longest, and rules are the first to lose theirs; one that says what another
    says already is left out."""
    cleaned: dict[str, tuple[str, str]] = {}
    for path, text in texts:
        words = visible(_MATTER.sub("", text, count=1)).strip()
        if words:
            cleaned.setdefault(words, (path, text))
    room = GUIDES
    found: dict[str, Guide] = {}
    backwards = list(reversed(cleaned.items()))
    for words, (path, text) in sorted(backwards, key=lambda each: _in_rules(each[1][0])):
        kept = _cut(words, min(HEAD if _FOR_PEOPLE.search(path) else GUIDE, room))
        if kept:
            left_out = max(0, len(text.strip()) - len(kept))
            found[words] = Guide(path=line(path, 4096), text=kept, left_out=left_out)
            room -= len(kept)
    return tuple(found[words] for words in cleaned if words in found)


def _folders(looked_at: Sequence[str]) -> list[str]:
    """Every folder on the way to each path, with its closing slash, the outer ones first."""
    found: dict[str, None] = {}
    for path in looked_at:
        parts = [part for part in posixpath.normpath(path).split("/") if part not in {"", ".", ".."}][:_DEEPEST]
        found |= dict.fromkeys("/".join(parts[:end]) + "/" for end in range(1, len(parts) + 1))
    return sorted(found, key=lambda folder: (folder.count("/"), folder))


def _in_rules(path: str) -> bool:
    return path.startswith(FOLDERS) and bool(_RULES.search(path))


def _said(matter: str) -> dict[str, str]:
    """Front matter by its keys, the items of a list with commas between them. What Cursor writes is not always YAML."""
    said: dict[str, str] = {}
    key = ""
    for each in matter.splitlines():
        words = _COMMENT.sub("", each)
        if found := _KEY.match(words):
            key, said[found[1]] = found[1], found[2].strip()
        elif key and words.strip():
            said[key] += "," + words.strip().removeprefix("-").strip()
    return said


def _alternatives(pattern: str) -> list[str]:
    """The patterns that one with braces stands for; none of those that stand for more than _GLOBS."""
    done: list[str] = []
    todo = [pattern]
    while todo and len(done) + len(todo) <= _GLOBS:
        each = todo.pop()
        if (found := _BRACES.search(each)) is None:
            done.append(each)
        else:
            todo += [each[: found.start()] + one.strip() + each[found.end() :] for one in found[1].split(",")]
    return done


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
