"""A process of its own that reads definitions: ``python -m swarm.tools.mapping.reader LANGUAGE...``.

It loads the grammars, locks itself up, and only then reads files from standard input: a JSON line (language, size), and
so many bytes. For each it writes one JSON line: its definitions, and how often it mentions which name. Where the kernel
cannot lock it up no grammar is run: files are read by the look of their lines, in Python alone.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from swarm.tools.mapping import grammars, jail
from swarm.tools.mapping.definitions import NAME, SIGNATURE, Definition
from swarm.tools.mapping.grammars import Grammar
from swarm.tools.mapping.outline import mentions, outline

MOST = 2000  # definitions of one file


def main() -> None:
    """Read until the input ends."""
    loaded = {name: made for name in sys.argv[1:] if (made := grammars.load(name)) is not None}
    given, answers = sys.stdin.buffer, sys.stdout.buffer
    jail.limit()
    if not jail.lock():
        loaded = {}
    while line := given.readline():
        asked = json.loads(line)
        data = given.read(asked["size"])
        made = loaded.get(asked["language"])
        found, said = by_grammar(data, made) if made else by_lines(data)
        told = [[one.name, one.first, one.last, one.signature] for one in found]
        answers.write(json.dumps([told, said]).encode() + b"\n")
        answers.flush()


def by_lines(data: bytes) -> tuple[tuple[Definition, ...], dict[str, int]]:
    """Definitions and mentions by the look of a file's lines."""
    text = data.decode("utf-8", "replace")
    return outline(text, MOST), mentions(text, MOST)


def by_grammar(data: bytes, grammar: Grammar) -> tuple[tuple[Definition, ...], dict[str, int]]:
    """Definitions in the order of their lines, and mentions, as the file's grammar sees them."""
    found: dict[int, Definition] = {}
    said: dict[str, int] = {}
    for captures in grammar.captures(data):
        for node in captures.get("mention", ()):
            word = _text(data, node)
            if len(said) < MOST or word in said:
                said[word] = said.get(word, 0) + 1
        if "definition" in captures and "name" in captures and len(found) < MOST:
            name = captures["name"][0]
            found.setdefault(name.start_byte, _definition(data, name, captures["definition"][0]))
    return tuple(found[at] for at in sorted(found)), said


def _definition(data: bytes, name: Any, node: Any) -> Definition:
    start = data.rfind(b"\n", 0, name.start_byte) + 1
    line = data[start : start + 4 * SIGNATURE].partition(b"\n")[0].decode("utf-8", "replace")
    return Definition(_text(data, name), name.start_point[0] + 1, node.end_point[0] + 1, line.strip()[:SIGNATURE])


def _text(data: bytes, node: Any) -> str:
    return data[node.start_byte : min(node.end_byte, node.start_byte + NAME)].decode("utf-8", "replace")


if __name__ == "__main__":
    main()
