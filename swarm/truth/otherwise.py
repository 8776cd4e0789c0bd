"""Tests in other languages than Python, by counts of what their runners know: skipped, singled out, asserting. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from swarm.truth.finding import finding
from swarm.truth.syntax import LIMIT
from swarm.types import Weakened

_ENDINGS = (
    "js jsx ts tsx mjs cjs mts cts go rs java kt kts scala groovy rb php cs fs swift c cc cpp cxx h hpp ex exs dart "
    "lua sh bats pl t"
)
CODE = re.compile(rf"\.({'|'.join(_ENDINGS.split())})$")
_HASH = re.compile(r"\.(rb|sh|bats|ex|exs|pl|t)$")  # languages whose comments begin with #
_ALONE = r"(?<![.\w$])"  # a word of its own, and no method
_GROUPS = "(?:it|test|describe|context|suite)"
_SKIP = re.compile(
    rf"\b{_GROUPS}\.(?:skip|skipIf|todo|failing|fails|fixme)\b|{_ALONE}x(?:it|describe|test|context|specify)\s{{0,3}}(?:\(\s{{0,3}})?['\"`]"
    r"|@(?:Ignore|Disabled)\b|\b(?:t|b|tb)\.Skip(?:f|Now)?\(|#\[ignore|\[Ignore\b|\bSkip\s*=\s*\"|\bGTEST_SKIP\b"
    r"|\bDISABLED_\w|\bmarkTest(?:Skipped|Incomplete)\b|\bXCTSkip|@tag\s+:skip",
)
_SKIP_LINE = re.compile(r"^[ \t]*(?:skip|pending)\b", re.MULTILINE)  # of RSpec, minitest, bats
_ONLY = re.compile(
    rf"\b{_GROUPS}\.only\b|{_ALONE}f(?:it|describe|context)\s{{0,3}}(?:\(\s{{0,3}})?['\"`]|,\s*:focus\b|\bfocus:\s*true"
)
_TEST = re.compile(
    rf"{_ALONE}(?:it|test|specify)(?:\.each[^\n(]{{0,200}}\([^\n]{{0,200}}\))?\s{{0,9}}\(?\s{{0,9}}['\"`]|\bfunc\s+(?:Test|Fuzz)\w"
    r"|@(?:Test|ParameterizedTest|RepeatedTest)\b|#\[(?:\w+::)?test\b|\[(?:Fact|Theory|Test|TestMethod|TestCase)\b"
    r"|\bTEST(?:_F|_P|_CASE)?\s*\(|\bfunction\s+test\w|\bdef\s+test_\w|^@test\b",
    re.MULTILINE,
)
_CHECK = re.compile(
    r"\bexpect\s*[({]|\bassert\w*\s*[!.(]|\bassert\s|\b(?:t|b|tb)\.(?:Error|Fatal|Fail)\w*\(|\b(?:require|is)\.\w+\("
    r"|\b(?:EXPECT|ASSERT|CHECK|REQUIRE)(?:_\w+)?\s*\(|\bAssert\.\w|\bXCTAssert\w*\(|\.should\b|\bshould\w*\("
)
_IDLE = re.compile(
    r"expect\(\s*true\s*\)\.(?:toBe\(true\)|toBeTruthy|to\.be\.true)|\bassert!?\(\s*true\s*[,)]|assertTrue\(\s*true\s*\)"
    r"|expect\(1\)\.toBe\(1\)"
)
_EXIT = re.compile(
    r"\bprocess\.exit\(|\bos\.Exit\(\s*0|\bstd::process::exit\(\s*0|\bSystem\.exit\(|^[ \t]*exit[ \t]+0\b"
    r"|\bexit!?\(\s*0\s*\)",
    re.MULTILINE,
)
_NAMED = re.compile(
    r"\bfunc\s+((?:Test|Fuzz)\w{1,100})|(?<![.\w$])(?:it|test|specify)\s{0,9}\(?\s{0,9}(['\"`])([^'\"`\n]{1,120})\2"
)
_STORED = re.compile(
    r"(^|/)(__snapshots__|snapshots?|golden|goldens|testdata|test_data|expected|fixtures|cassettes|approvals)/"
    r"|\.(snap|ambr|golden|approved\.\w+|expected|out)$"
)


@dataclass(frozen=True)
class Counts:
    """How often a file says each."""

    skips: int
    only: int
    tests: int
    checks: int
    idle: int
    exits: int
    names: frozenset[str]


def counted(path: str, data: bytes) -> Counts | None:
    """What a test file says, comments left out; None where it is too large."""
    if len(data) > LIMIT:
        return None
    text = _bare(data.decode("utf-8", "replace"), "#" if _HASH.search(path) else "//")
    names = frozenset(found[1] or found[3] for found in _NAMED.finditer(text))
    patterns = (_SKIP, _ONLY, _TEST, _CHECK, _IDLE, _EXIT)
    skips, only, tests, checks, idle, exits = (sum(1 for _ in each.finditer(text)) for each in patterns)
    if _HASH.search(path):
        skips += sum(1 for _ in _SKIP_LINE.finditer(text))
    return Counts(skips, only, tests, checks - idle, idle, exits, names)


def compared(path: str, before: bytes, after: bytes | None) -> Iterator[Weakened]:
    """Findings of a test file in another language that the base has."""
    old = counted(path, before)
    if after is None:
        if old is None or old.tests or old.checks:
            yield finding("deleted", path, f"the file is gone with its {old.tests if old else 'many'} tests")
        return
    new = counted(path, after)
    if old is None or new is None:
        yield finding("unread", path, f"it was changed, and is larger than the {LIMIT} bytes that are compared")
        return
    yield from _differences(path, old, new)


def stored(path: str) -> bool:
    """Whether a file is by its path something that tests compare with: a snapshot, a golden file, test data."""
    return bool(_STORED.search(path))


def _differences(path: str, old: Counts, new: Counts) -> Iterator[Weakened]:
    if new.skips > old.skips:
        yield finding("skipped", path, f"{new.skips - old.skips} more of its tests are skipped, or may fail")
    if new.only > old.only:
        yield finding("steered", path, "some of its tests are singled out, so that the others do not run")
    if new.exits > old.exits:
        yield finding("exit", path, "it ends the run in a new place")
    if new.tests < old.tests:
        lost = sorted(old.names - new.names)
        names = f": {', '.join(lost[:3])}" + (f" and {len(lost) - 3} more" if len(lost) > 3 else "") if lost else ""
        yield finding("deleted", path, f"it has {new.tests} tests and had {old.tests}{names}")
    elif new.checks < old.checks:
        yield finding("fewer", path, f"it has {new.checks} assertions and had {old.checks}")
    if new.idle > old.idle:
        yield finding("emptied", path, "it has new assertions that can never fail")


def _bare(text: str, line: str) -> str:
    """Text without comments. Rough: what looks like one within a string goes as well, before and after alike."""
    if line == "//":
        text = _without_blocks(text)
    return "\n".join(each.partition(line)[0] for each in text.split("\n"))


def _without_blocks(text: str) -> str:
    out, place = [], 0
    while (start := text.find("/*", place)) >= 0:
        end = text.find("*/", start + 2)
        out.append(text[place:start])
        if end < 0:
            return "".join(out)
        place = end + 2
    return "".join(out) + text[place:]
