"""What a repository's Dockerfile stands on, and that it does nothing but run commands and copy its own files. Pure.

An engine fetches on its own where a Dockerfile says so, with the host's network: parent images, ADD of an address,
COPY --from another image, a frontend in the first line. So what is not plainly harmless is refused, whatever it means,
and the engine never reads the repository's own text, only what was understood here, written anew: one line for each
instruction, parents and stages with their plain names. Two readings cannot differ where there is one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from sandbox.errors import ImageError
from sandbox.images.sources import reference

LONGEST = 64 * 1024
_WORDS = "CMD ENTRYPOINT ENV EXPOSE LABEL MAINTAINER RUN SHELL STOPSIGNAL USER VOLUME WORKDIR"
_PLAIN = frozenset(re.split(" ", _WORDS))
_ODD = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\x85\xa0\u1680\u2000-\u200f\u2028-\u202f\u205f-\u206f\u3000\ufeff\ufffd]")
_DIRECTIVE = re.compile(r"#\s*[A-Za-z]+\s*=")
_INSTRUCTION = re.compile(r"(?P<word>[A-Za-z]+)[ \t]+(?P<rest>\S.*)\Z", re.DOTALL)
_VARIABLE = re.compile(r"\$(?:\{(?P<braced>[A-Za-z_]\w*)(?::-(?P<default>[^}$]*))?\}|(?P<bare>[A-Za-z_]\w*))", re.ASCII)
_STAGE = re.compile(r"(?P<image>\S+)(?:[ \t]+AS[ \t]+(?P<name>[A-Za-z][A-Za-z0-9_.-]*))?\Z", re.IGNORECASE)
_ARGUMENT = re.compile(
    r"(?P<name>[A-Za-z_]\w*)(?:=(?:\"(?P<double>[^\"'$\\`]*)\"|'(?P<single>[^\"'$\\`]*)'|(?P<bare>[^\s\"'$\\`]*)))?\Z",
    re.ASCII,
)
_COPY_FLAG = re.compile(r"--(?:chown|chmod)=[\w:.-]+\Z", re.ASCII)
_FROM_FLAG = re.compile(r"--from=(?P<stage>[A-Za-z0-9][A-Za-z0-9_.-]*)\Z")
_COPIED = re.compile(r"[\w./*?\[\]+,=~@%-]+\Z")  # no colon, so no address; no quote, variable or escape
_REPOSITORY = re.compile(r"(?i)@|\.git\b|\A(?:www\.)?(?:github|gitlab|bitbucket)\.")  # what ADD might fetch with git
_BUILDERS_OWN = ("BUILDKIT_", "DOCKERFILE_", "BUILDAH_")  # BUILDKIT_SYNTAX names a frontend that is fetched and run


@dataclass(frozen=True)
class Recipe:
    """A Dockerfile that was understood: what it is built on, the text for the engine, and the arguments it declares."""

    parents: tuple[str, ...]
    text: str
    args: Mapping[str, str]


def read_dockerfile(text: str, args: Mapping[str, str]) -> Recipe:
    """Understand a repository's Dockerfile, ``args`` put in. Raises ImageError for what it may not ask for."""
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    _insist_readable(text)
    reading = _Reading(args)
    lines = [reading.take(line) for line in _instructions(text)]
    if not reading.stages:
        raise ImageError("the Dockerfile has no FROM line")
    declared = {name: value for name, value in args.items() if name in reading.declared}
    return Recipe(tuple(dict.fromkeys(reading.parents)), "\n".join([*lines, ""]), declared)


def _insist_readable(text: str) -> None:
    if len(text) > LONGEST:
        raise ImageError(f"the Dockerfile is longer than {LONGEST} characters")
    if _ODD.search(text):  # parsers differ in where these end a line or a word
        raise ImageError("a repository's Dockerfile may hold no control characters, nor blanks out of the ordinary")


def _instructions(text: str) -> list[str]:
    """One line per instruction, comments and continuations taken out. Raises ImageError for a parser directive.

    A continuation is joined without a blank between, as the engines do.
    """
    lines: list[str] = []
    held: str | None = None
    for raw in text.split("\n"):
        line = raw.strip(" \t")
        if not line or line.startswith("#"):
            if not lines and held is None and _DIRECTIVE.match(line):
                raise ImageError(f"a repository's Dockerfile may not choose its own parser: {line[:100]!r}")
            continue
        whole = raw.lstrip(" \t") if held is None else held + raw
        if line.endswith("\\"):
            held = whole.rstrip(" \t")[:-1]
            if held.endswith("\\"):
                raise ImageError(f"a repository's Dockerfile may end no line in two backslashes: {line[-100:]!r}")
            continue
        lines.append(whole.strip(" \t"))
        held = None
    if held is not None:
        raise ImageError("the Dockerfile ends within an instruction")
    return lines


@dataclass
class _Reading:
    """What is known so far, from one instruction to the next. ``stages`` holds a name for each FROM, perhaps empty."""

    args: Mapping[str, str]
    stages: list[str] = field(default_factory=list)
    parents: list[str] = field(default_factory=list)
    declared: set[str] = field(default_factory=set)
    known: dict[str, str | None] = field(default_factory=dict)

    def take(self, line: str) -> str:
        """The instruction as the engine shall read it. Raises ImageError."""
        match = _INSTRUCTION.match(line)
        word, rest = (match["word"].upper(), match["rest"]) if match else ("", "")
        if word == "FROM":
            return self._from(line, rest)
        if word == "ARG":
            return self._argument(line, rest)
        if not self.stages:
            raise ImageError(f"the Dockerfile has {line[:200]!r} before its first FROM line")
        if word in {"COPY", "ADD"}:
            return f"{word} {self._copy(line, word, rest)}"
        if word not in _PLAIN or rest.startswith("--") or "<<" in rest:
            raise ImageError(f"a repository's Dockerfile may not say {line[:200]!r}")
        return f"{word} {rest}"

    def _from(self, line: str, rest: str) -> str:
        match = _STAGE.match(rest)
        image = self._expanded(match["image"]) if match else None
        if match is None or not image:
            raise ImageError(f"a repository's Dockerfile has to name what it is built on plainly, not {line[:200]!r}")
        name = (match["name"] or "").lower()
        if name and (name in self.stages or name == "scratch"):
            raise ImageError(f"the Dockerfile has a second stage of the name in {line[:200]!r}")
        if image.lower() in self.stages:
            image = image.lower()
        elif image != "scratch":
            self.parents.append(reference(image).name)
        self.stages.append(name)
        return f"FROM {image} AS {name}" if name else f"FROM {image}"

    def _argument(self, line: str, rest: str) -> str:
        """One argument, with a value that means itself; those before the first FROM may stand in a FROM."""
        match = _ARGUMENT.match(rest)
        if match is None and self.stages and re.fullmatch(r"[A-Za-z_]\w*=.*", rest, re.ASCII) and "<<" not in rest:
            self.declared.add(rest.partition("=")[0])  # it is for the stage's own commands alone
        elif match is None:
            raise ImageError(f"a repository's Dockerfile has to say {line[:200]!r} plainly, with one argument a line")
        else:
            self.declared.add(match["name"])
            if not self.stages:
                given = next((each for each in (match["double"], match["single"], match["bare"]) if each), None)
                self.known[match["name"]] = self.args.get(match["name"], given)
        for name in self.declared:
            if name.upper().startswith(_BUILDERS_OWN):
                raise ImageError(f"{name} steers the builder, and is not for a repository's Dockerfile")
        return f"ARG {rest}"

    def _expanded(self, text: str) -> str | None:
        """The text with its variables put in; None where one has no value, or is written in another way."""
        missing = False

        def put(match: re.Match[str]) -> str:
            nonlocal missing
            value = self.known.get(match["braced"] or match["bare"]) or match["default"] or ""
            missing = missing or not value
            return value

        made = _VARIABLE.sub(put, text)
        return None if missing or "$" in made else made

    def _copy(self, line: str, word: str, rest: str) -> str:
        """Flags and names of a copy within the context and earlier stages. Raises ImageError for any other."""
        words = rest.split()
        flags = [each for each in words if each.startswith("--")]
        names = words[len(flags) :]
        fetched = word == "ADD" and any(_REPOSITORY.search(each) for each in names)
        if fetched or len(names) < 2 or any(not _COPIED.match(each) or each.startswith("--") for each in names):
            raise ImageError(f"a repository's Dockerfile may copy its own files alone, plainly named: {line[:200]!r}")
        return " ".join([*(self._flag(each, word) for each in flags), *names])

    def _flag(self, flag: str, word: str) -> str:
        if _COPY_FLAG.match(flag):
            return flag
        stage = _FROM_FLAG.match(flag)
        if stage and word == "COPY":
            name = stage["stage"].lower()
            if name in self.stages[:-1] or (re.fullmatch("[0-9]{1,3}", name) and int(name) < len(self.stages) - 1):
                return f"--from={name}"
        raise ImageError(f"a repository's Dockerfile may not copy with {flag[:100]!r}")
