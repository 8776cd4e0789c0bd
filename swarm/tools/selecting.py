"""Narrows the operator's test command to some tests, where that is safe and clear: a plain call. Pure."""

from __future__ import annotations

import re
import shlex

_SHELL = re.compile(r"[;&|<>$`\n\\(){}*?~#!]")
_ASSIGNED = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_PYTHON = re.compile(r"(?:.*/)?python[\d.]*\Z")
_PYTEST = re.compile(r"(?:.*/)?(?:pytest|py\.test)\Z")
_FLAGS = re.compile(
    r"-[qvsxl]+\Z|-r\w+\Z|--(?:no-header|no-summary|quiet|verbose|exitfirst|showlocals|strict[\w-]*)\Z|--[\w-]+="
)
_TAKE = frozenset({"-p", "-c", "-o", "-W", "-n", "-m", "--tb", "--maxfail", "--rootdir", "--timeout", "--durations"})
_SELECTOR = re.compile(r"\.py(?:$|::)|::|/")


def narrowed(command: str, only: str) -> str | None:
    """The command for the tests that ``only`` names: a file, a folder, a test id, or words of test names.

    None where the command is not plainly a call of pytest or unittest, or names what is to be run in a way that cannot
    be narrowed.
    """
    words = _words(command)
    if words is None or only.startswith("-"):
        return None
    return _of_unittest(words, only) or _of_pytest(words, only)


def _of_unittest(words: list[str], only: str) -> str | None:
    """By a part of the tests' names: unittest's own pattern goes with whatever else is named."""
    if len(words) > 2 and _PYTHON.match(words[0]) and words[1:3] == ["-m", "unittest"] and "-k" not in words:
        last = re.split(r"::|/|\.(?!py$)", only.rstrip("/"))[-1].removesuffix(".py")
        return shlex.join([*words, "-k", last]) if re.fullmatch(r"\w+", last) else None
    return None


def _of_pytest(words: list[str], only: str) -> str | None:
    """By pytest's own words for it: a path or test id in the place of those given, else a part of the names."""
    start = _runner(words)
    if start is None:
        return None
    options = _options(words[start:])
    if options is None:
        return None
    kept, places = options
    if not _SELECTOR.search(only):
        return shlex.join([*words[:start], *kept, *places, "-k", only])
    path = only.partition("::")[0].removeprefix("./")
    if places and not any(f"{path}/".startswith(f"{_plain(place)}/") or _plain(place) == "." for place in places):
        return None
    return shlex.join([*words[:start], *kept, only])


def _words(command: str) -> list[str] | None:
    """The words of a command that holds nothing but words."""
    if _SHELL.search(command):
        return None
    try:
        return shlex.split(command)
    except ValueError:
        return None


def _runner(words: list[str]) -> int | None:
    """Where pytest's own arguments begin. Variables before it would be quoted away, so there must be none."""
    if not words or _ASSIGNED.match(words[0]):
        return None
    if _PYTEST.match(words[0]):
        return 1
    if len(words) > 2 and _PYTHON.match(words[0]) and words[1] == "-m" and words[2] == "pytest":
        return 3
    return None


def _options(words: list[str]) -> tuple[list[str], list[str]] | None:
    """The options that stay, and the places that tests are looked for; None where a word may be either."""
    kept: list[str] = []
    places: list[str] = []
    at = 0
    while at < len(words):
        word = words[at]
        if word in _TAKE and at + 1 < len(words):
            kept += words[at : at + 2]
            at += 1
        elif _FLAGS.match(word):
            kept.append(word)
        elif word.startswith("-"):
            return None
        else:
            places.append(word)
        at += 1
    return kept, places


def _plain(place: str) -> str:
    return place.removeprefix("./").rstrip("/")
