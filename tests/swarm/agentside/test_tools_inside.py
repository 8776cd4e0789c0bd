"""The programs that run inside sandboxes, called here: what they find and what they pass over."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from swarm.tools import globs
from swarm.tools.inside import grep, syntax


@pytest.mark.parametrize(
    ("path", "data", "line"),
    [
        ("a.py", b"x = 1\n", None),
        ("a.py", b"x = 1\ndef f(:\n", 2),
        ("a.py", b"if x:\npass\n", 2),
        ("a.py", b"# coding: latin-1\nx = '\xe9'\n", None),
        ("a.py", b"x = '\xe9'\n", 1),
        ("a.py", b"x\0", 1),
        ("a.py", b"(" * 100_000, 1),
        ("a.json", b'{"a": [1, 2]}', None),
        ("a.json", b'{"a": 1,\n "b": }', 2),
        ("a.json", b"[" * 200_000, None),
        ("a.toml", b"a = 1\nb =\n", 2),
        ("a.toml", b"a = 1\n", None),
        ("a.txt", b"def f(:", None),
    ],
)
def test_the_place_of_a_syntax_error_is_found(path: str, data: bytes, line: int | None) -> None:
    found = syntax.fault(path, data)
    assert (found and found[0]) == line


def search(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], **asked: object) -> str:
    monkeypatch.chdir(folder)
    given = {"pattern": "x", "path": ".", "glob": None, "context": 0, "ignore_case": False, "most": 100}
    given |= {"unlike": False, **asked}
    code = grep.main(given)
    return f"{code} {capsys.readouterr().out}"


def test_lines_are_found_with_their_places_and_what_is_around(tmp_path, monkeypatch, capsys) -> None:
    (tmp_path / "a.py").write_text("one\ntwo x\nthree\nfour\nfive X\n")
    (tmp_path / "b.txt").write_text("x")
    (tmp_path / "bin").write_bytes(b"x\0x")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git/c").write_text("x")

    def found(**asked: object) -> str:
        return search(tmp_path, monkeypatch, capsys, **asked)

    assert found() == "0 a.py:2:two x\nb.txt:1:x\n"
    assert found(glob=[["*.py"]], ignore_case=True) == "0 a.py:2:two x\na.py:5:five X\n"
    assert found(path="a.py", pattern="two|five", context=1) == (
        "0 a.py-1-one\na.py:2:two x\na.py-3-three\na.py-4-four\na.py:5:five X\n"
    )
    assert found(most=1) == "0 a.py:2:two x\n"
    assert found(pattern=r"\d") == "1 "
    assert found(pattern="(").startswith("2 ")
    assert found(path="gone").startswith("2 there is no gone")


@pytest.mark.parametrize(
    ("glob", "path", "fits"),
    [
        ("*.{ts,py}", "a/b/c.py", True),
        ("*.{ts,py}", "c.js", False),
        ("**/*.ts", "a.ts", True),
        ("src/*.ts", "src/a.ts", True),
        ("src/*.ts", "src/deep/a.ts", False),
        ("src/**", "src/deep/a.ts", True),
        ("./src/", "src/a.ts", True),
        ("[ab].py", "x/a.py", True),
        ("{a,{b,c}}.py", "c.py", True),
    ],
)
def test_a_glob_means_the_same_for_names_and_for_lines(glob: str, path: str, fits: bool) -> None:
    forms = globs.matcher(glob)
    assert globs.matches(forms, path) == fits
    inside = json.loads(json.dumps(forms))
    assert grep.fits(path, inside) == fits
    assert grep.fits(path, inside, unlike=True) != fits


def test_too_many_braces_are_no_pattern_and_stars_take_no_time() -> None:
    assert globs.matcher("{a,b}" * 7) == []
    assert len(globs.matcher("{a,b}" * 6)) == globs.MOST
    assert not globs.matches(globs.matcher("**/" * 300 + "x"), "a/" * 300 + "b")
    assert not globs.matches(globs.matcher("*a" * 100), "a" * 60)
