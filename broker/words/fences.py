"""Code blocks and the prose between them. A block counts only when it is provably closed, and is written anew. Pure.

CommonMark 0.31, section 4.5: a fence at the left margin interrupts every paragraph, list and quotation, and the first
line of at least as many signs ends it. Only such fences are written; one that is never closed would swallow what the
broker says below it, so its sign goes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_OPENING = re.compile(r"([ \t]{0,12}(?:(?:[-*+]|\d{1,3}[.)])[ \t]{1,4})?)(`{3,}|~{3,})[ \t]*([^`\n]{0,200})")
_STRAY = re.compile(r"^([ \t>*+\-\d.)]*)(?:`{3,}(?=[^`\n]*$)|~{3,})", re.MULTILINE)
_RUN = re.compile(r"`+")
# Others are drawn, run or offered as a change: mermaid, plantuml, math, geojson, suggestion, ...
# fmt: off
LANGUAGES = frozenset({
    "asm", "awk", "bash", "bat", "c", "clojure", "cmake", "console", "cpp", "cs", "csharp", "css", "csv", "cython",
    "d", "dart", "diff", "dockerfile", "elixir", "elm", "erl", "erlang", "f90", "fish", "fortran", "fsharp", "go",
    "gradle", "graphql", "groovy", "h", "haskell", "hcl", "hs", "html", "http", "ini", "java", "javascript",
    "jinja", "js", "json", "jsx", "julia", "kotlin", "kt", "less", "lisp", "log", "lua", "make", "makefile",
    "matlab", "md", "meson", "nginx", "nim", "nix", "none", "objc", "ocaml", "patch", "perl", "php", "pl",
    "powershell", "proto", "protobuf", "ps1", "py", "pycon", "pyi", "python", "python3", "r", "rb", "rs", "rst",
    "ruby", "rust", "sass", "scala", "scss", "sh", "shell", "sql", "svelte", "swift", "tcl", "tex", "text", "tf",
    "toml", "ts", "tsx", "txt", "v", "vb", "verilog", "vhdl", "vim", "vue", "wat", "xml", "yaml", "yml", "zig",
    "zsh",
})
# fmt: on


@dataclass(frozen=True)
class Piece:
    """Lines of prose (no language) or of code ("text" where its language is not known)."""

    text: str
    language: str | None = None


def split(text: str) -> list[Piece]:
    """The pieces in order."""
    lines, at, open_for_good = text.split("\n"), 0, {"`": len(text) + 1, "~": len(text) + 1}
    pieces: list[Piece] = []
    prose: list[str] = []
    while at < len(lines):
        opening = _OPENING.fullmatch(lines[at])
        end = _closing(lines, at + 1, opening.group(2), open_for_good) if opening else None
        if opening is None or end is None:
            prose.append(lines[at])
            at += 1
            continue
        if marker := opening.group(1).strip():
            prose.append(marker)
        pieces += [Piece("\n".join(prose))] if prose else []
        prose = []
        pieces.append(_code(lines[at + 1 : end], len(opening.group(1)), opening.group(3)))
        at = end + 1
    return [*pieces, Piece("\n".join(prose))] if prose else pieces


def joined(pieces: list[Piece]) -> str:
    """The text again, each block of code within fences that its own lines cannot end."""
    return "\n".join(piece.text if piece.language is None else _fenced(piece) for piece in pieces)


def without_strays(prose: str) -> str:
    """Prose in which no line begins a block of code."""
    return _STRAY.sub(r"\1", prose)


def _closing(lines: list[str], start: int, sign: str, open_for_good: dict[str, int]) -> int | None:
    if len(sign) >= open_for_good[sign[0]]:  # or a text of nothing but openings would cost its length squared
        return None
    for number in range(start, len(lines)):
        line = lines[number].strip()
        if len(line) >= len(sign) and not line.strip(sign[0]):
            return number
    open_for_good[sign[0]] = len(sign)
    return None


def _code(lines: list[str], indent: int, info: str) -> Piece:
    word = info.strip().partition(" ")[0].lower()
    kept = [line[min(indent, len(line) - len(line.lstrip(" \t"))) :] for line in lines]
    return Piece("\n".join(kept), word if word in LANGUAGES else "text")


def _fenced(piece: Piece) -> str:
    longest = max((len(run) for run in _RUN.findall(piece.text)), default=0)
    sign = "`" * max(3, longest + 1)
    body = f"{piece.text}\n" if piece.text else ""
    return f"{sign}{piece.language}\n{body}{sign}"
