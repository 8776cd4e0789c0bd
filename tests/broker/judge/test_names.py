"""Which names no person may approve, and which are merely odd."""

from __future__ import annotations

import pytest

from broker.judge.facts import compare
from broker.judge.names import folded, name_faults, name_oddities, printable


@pytest.mark.parametrize(
    "name",
    [
        ".git", "GIT~1", "gi7eba~1", "GITMOD~1", ".gitmodules ", ".gitattributes.", ".gitIgnore\u200c", "a:b", "a\\b",
        "PROGRA~1", "a\nb", "a\u202eb", "\ue000", "x" * 256, "..", "", "a/b", ".git:stream", ".mailmap...",
        ".GIT", ".Git", "GIT~12", ".git ", ".git::$DATA", ".git\\x", ".g\u200cit", "\ufeff.git", "\uff0egit",
        ".g\u0131t\u200d", ".", "a\x7f", "a\u2028b",
    ],
)  # fmt: skip
def test_a_name_that_is_never_good_is_fatal(name):
    assert name_faults(name.encode())


@pytest.mark.parametrize("name", [b"\xff", b"a\xc0\xaf", b"\xed\xa0\x80"])
def test_a_name_that_is_not_utf8_is_fatal(name):
    assert name_faults(name)


@pytest.mark.parametrize(
    "name", ["con", "NUL.txt", "lpt1", "com\u00b9", "CONIN$", "a?b", 'a"b', "a|b", "trailing.", "-rf", "x "]
)
def test_a_name_that_trips_other_systems_is_only_odd(name):
    assert name_faults(name.encode()) == []
    assert name_oddities(name.encode())


@pytest.mark.parametrize(
    "name",
    [
        ".gitmodules",
        ".GitIgnore",
        ".gitkeep",
        "gi.txt",
        "git",
        "a~b",
        "it's",
        "\u00e9",
        "v~x",
        "日本",
        "a b",
        "digit",
        "config",
    ],
)
def test_an_ordinary_name_is_neither(name):
    assert name_faults(name.encode()) == name_oddities(name.encode()) == []


def test_names_that_one_file_system_takes_for_one_are_folded_together():
    assert folded("\u00c9".encode()) == folded("e\u0301".encode()) != folded(b"e")
    assert folded(b"READme") == folded(b"readME")


def test_a_name_is_shown_without_moving_a_terminal():
    assert printable(b"a\x1b[31m\xff\n") == "a\\x1b[31m\\xff\\n"
    assert printable("\u202eb".encode()) == "\\u202eb"


def test_the_walk_tells_the_two_apart():
    trees = {"1" * 40: b"", "2" * 40: b"".join(b"100644 " + name + b"\0" + b"\1" * 20 for name in (b"-x", b".git"))}
    facts = compare(trees.__getitem__, "1" * 40, "2" * 40, max_changes=9)
    said = {(finding.path, finding.rule, finding.severity) for finding in facts.findings}
    assert said == {("-x", "odd-name", "block"), (".git", "bad-tree", "fatal")}


def test_a_folder_of_a_million_names_is_not_parsed_to_its_end():
    whole = b"".join(b"100644 %07d\0" % n + b"\1" * 20 for n in range(300_000))
    trees = {"1" * 40: b"", "2" * 40: whole}
    facts = compare(trees.__getitem__, "1" * 40, "2" * 40, max_changes=9, max_entries=1000)
    assert not facts.complete
    assert [(finding.rule, finding.severity) for finding in facts.findings] == [("too-large", "fatal")]
