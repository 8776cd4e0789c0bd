"""What a repository's Dockerfile stands on, and that it does nothing but run commands and copy its own files. Pure.

An engine fetches on its own where a Dockerfile says so, with the host's network: parent images, ADD of an address,
COPY --from another image, a frontend in the first line. So what is not plainly harmless is refused, whatever it means.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from sandbox.errors import ImageError

_LONGEST = 64 * 1024
_WORDS = "ARG CMD ENTRYPOINT ENV EXPOSE LABEL MAINTAINER RUN SHELL STOPSIGNAL USER VOLUME WORKDIR"
_PLAIN = frozenset(re.split(" ", _WORDS))
_ODD_WORDS = ("<<", "--mount", "--network", "--security")
_ODD = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\x85\xa0\u1680\u2000-\u200f\u2028-\u202f\u205f-\u206f\u3000\ufeff]")
_DIRECTIVE = re.compile(r"#\s*[A-Za-z]+\s*=")
_VARIABLE = re.compile(r"\$(?:\{(?P<braced>[A-Za-z_]\w*)(?::-(?P<default>[^}$]*))?\}|(?P<bare>[A-Za-z_]\w*))")
_STAGE = re.compile(r"FROM\s+(?P<image>\S+)(?:\s+AS\s+(?P<name>[A-Za-z0-9][A-Za-z0-9_.-]*))?\s*\Z", re.IGNORECASE)


def parents_of(text: str, args: Mapping[str, str]) -> tuple[str, ...]:
    """The images that it is built on, ``args`` put in. Raises ImageError for what a repository may not ask for."""
    text = text.replace("\r\n", "\n").removeprefix("\ufeff")
    _insist_readable(text)
    known: dict[str, str] = {}
    stages: set[str] = set()
    parents: list[str] = []
    for line in _instructions(text):
        word, _, rest = line.partition(" ")
        word, rest = word.upper(), rest.strip()
        if word == "FROM":
            image, name = _stage(line, known)
            if image != "scratch" and image.lower() not in stages:
                parents.append(image)
            if name:
                stages.add(name.lower())
        elif word == "ARG" and not parents and not stages:
            known |= _argument(rest, args)
        elif word in {"COPY", "ADD"}:
            _copies(line, rest, stages)
        elif word not in _PLAIN or any(odd in rest for odd in _ODD_WORDS):
            raise ImageError(f"a repository's Dockerfile may not say {line[:200]!r}")
    if not parents and not stages:
        raise ImageError("the Dockerfile has no FROM line")
    return tuple(dict.fromkeys(parents))


def _insist_readable(text: str) -> None:
    if len(text) > _LONGEST:
        raise ImageError(f"the Dockerfile is longer than {_LONGEST} characters")
    if _ODD.search(text):  # parsers differ in where these end a line or a word
        raise ImageError("a repository's Dockerfile may hold no control characters, nor blanks out of the ordinary")


def _instructions(text: str) -> list[str]:
    """One line per instruction, comments and continuations taken out. Raises ImageError for a parser directive."""
    lines, held = [], ""
    for number, raw in enumerate(text.split("\n")):
        line = raw.strip(" \t")
        if not line or line.startswith("#"):
            if _DIRECTIVE.match(line) and number < 10:
                raise ImageError(f"a repository's Dockerfile may not choose its own parser: {line[:100]!r}")
            continue
        if line.endswith("\\"):
            held += line[:-1] + " "
            continue
        lines.append(_squeezed(held + line))
        held = ""
    if held.strip():
        lines.append(_squeezed(held))
    return lines


def _squeezed(text: str) -> str:
    return re.sub(r"[ \t]+", " ", text).strip(" ")


def _stage(line: str, known: Mapping[str, str]) -> tuple[str, str | None]:
    match = _STAGE.match(line)
    image = _expanded(match["image"], known) if match else ""
    if match is None or not image or "$" in image:
        raise ImageError(f"a repository's Dockerfile has to name what it is built on plainly, not {line[:200]!r}")
    return image, match["name"]


def _argument(rest: str, args: Mapping[str, str]) -> dict[str, str]:
    name, _, default = rest.partition("=")
    return {name: args.get(name, default.strip("\"'"))}


def _expanded(text: str, known: Mapping[str, str]) -> str:
    return _VARIABLE.sub(lambda m: known.get(m["braced"] or m["bare"], "") or m["default"] or "", text)


def _copies(line: str, rest: str, stages: set[str]) -> None:
    """Raises ImageError for a copy from anywhere but the context and earlier stages."""
    if "<<" in rest or "$" in rest or "://" in rest or rest.startswith("[") or re.search(r"\bgit@|\.git(#|\s|$)", rest):
        raise ImageError(f"a repository's Dockerfile may copy its own files alone, plainly named: {line[:200]!r}")
    for flag in re.findall(r"--[^\s]+", rest):
        name, _, value = flag.partition("=")
        if name == "--from" and (value.lower() in stages or value.isdigit()):
            continue
        if name not in {"--chown", "--chmod"}:
            raise ImageError(f"a repository's Dockerfile may not copy with {flag[:100]!r}")
