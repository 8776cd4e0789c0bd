"""Tests that a proposal deletes or switches off: against the base, and over all its files, so that a move is none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import blake2b

from broker.judge.scan.content import Content, is_binary, pieces
from broker.judge.scan.languages import Language, is_test_file, language_of

_MAX_NAMED = 5_000  # tests and skips that one proposal is counted for
_SHOWN = 20


@dataclass(frozen=True)
class Case:
    """One test: its name, and a digest of its body by which a renamed one is known again."""

    name: str
    body: bytes


@dataclass
class Suites:
    """The accounts of one proposal."""

    lost: list[tuple[str, Case]] = field(default_factory=list)
    gained: Counter[str] = field(default_factory=Counter)
    bodies: Counter[bytes] = field(default_factory=Counter)
    files: list[str] = field(default_factory=list)
    switched_off: list[tuple[str, int, str]] = field(default_factory=list)
    switched_on: Counter[str] = field(default_factory=Counter)

    def look(self, content: Content) -> None:
        """Counts one changed file."""
        language = language_of(content.path)
        if language is None or content.moved or is_binary(content.old) or is_binary(content.new or b""):
            return
        in_tests = is_test_file(content.path, language)
        before, after = _lines(content.old), _lines(content.new or b"")
        if in_tests or language.marker is not None:
            self._count_cases(content, language, before, after, in_tests=in_tests)
        if in_tests or language.anywhere:
            self._count_skips(content.path, language, before, after)

    def deleted(self) -> Iterator[tuple[str, str]]:
        """Path and words of tests that are gone and turned up nowhere."""
        gained, bodies, left = self.gained.copy(), self.bodies.copy(), []
        for path, case in self.lost:
            if gained[case.name] > 0:
                gained[case.name] -= 1
            elif bodies[case.body] > 0:
                bodies[case.body] -= 1
            else:
                left.append((path, case.name))
        for path in self.files:
            yield path, "is a test file, and deleted"
        for path in dict.fromkeys(path for path, _name in left):
            names = [name for where, name in left if where == path]
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            yield path, f"loses tests: {', '.join(name[:80] for name in names[:3])}{more}"

    def skipped(self) -> Iterator[tuple[str, str]]:
        """Path and words of tests that are newly switched off."""
        on = self.switched_on.copy()
        for path, number, line in self.switched_off:
            if on[line] > 0:
                on[line] -= 1
            else:
                yield path, f"switches a test off in line {number}: {line[:80]}"

    def _count_cases(
        self, content: Content, language: Language, before: list[str], after: list[str], *, in_tests: bool
    ) -> None:
        old, new = list(_cases(before, language)), list(_cases(after, language))
        had, has = Counter(case.name for case in old), Counter(case.name for case in new)
        come = has - had
        self.gained.update(come)
        self.bodies.update(case.body for case in new if case.name in come)
        gone = had - has
        for case in old:
            if gone[case.name] > 0 and len(self.lost) < _MAX_NAMED:
                gone[case.name] -= 1
                self.lost.append((content.path, case))
        if in_tests and content.new is None and not old and content.old.strip() and len(self.files) < _SHOWN:
            self.files.append(content.path)

    def _count_skips(self, path: str, language: Language, before: list[str], after: list[str]) -> None:
        left = Counter(before)
        for number, line in enumerate(after, start=1):
            if left[line] > 0:
                left[line] -= 1
            elif _matches(language, line) and len(self.switched_off) < _MAX_NAMED:
                self.switched_off.append((path, number, " ".join(line.split())))
        self.switched_on.update(
            " ".join(line.split()) for line, count in left.items() if count > 0 and _matches(language, line)
        )


def _lines(data: bytes) -> list[str]:
    return data.decode("utf-8", "replace").split("\n") if data else []


def _matches(language: Language, line: str) -> bool:
    if "\t" in line or "  " in line:  # a skip far to the right of a screen is one all the same
        line = line[: len(line) - len(line.lstrip())][:1] + " ".join(line.split())
    return any(language.off.search(piece) for piece in pieces(line))


def _cases(lines: list[str], language: Language) -> Iterator[Case]:
    name, body, marked = "", blake2b(digest_size=16), language.marker is None
    for line in lines:
        if language.marker is not None and language.marker.match(line[:400]):
            marked = True
        found = language.case.search(line[:400]) if marked else None
        if found:
            if name:
                yield Case(name, body.digest())
            name = next(group for group in reversed(found.groups()) if group is not None).strip()
            body, marked = blake2b(digest_size=16), language.marker is None
        elif line.strip():
            body.update(line.strip().encode() + b"\n")
    if name:
        yield Case(name, body.digest())
