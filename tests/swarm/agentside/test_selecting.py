"""File names by pattern, and tests by name: what is chosen and what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarm.tools.globs import matcher, matches
from swarm.tools.selecting import narrowed


@pytest.mark.parametrize(
    ("pattern", "path", "fits"),
    [
        ("*.py", "a.py", True),
        ("*.py", "src/deep/a.py", True),
        ("src/*.py", "src/a.py", True),
        ("src/*.py", "src/deep/a.py", False),
        ("src/**/*.py", "src/a.py", True),
        ("src/**/*.py", "src/x/y/a.py", True),
        ("**/test_*.py", "tests/test_a.py", True),
        ("./src/**", "src/a/b", True),
        ("src/", "src/a/b", True),
        ("*.{ts,tsx}", "web/a.tsx", True),
        ("*.{ts,tsx}", "web/a.js", False),
        ("[ab].c", "b.c", True),
        ("?.c", "bb.c", False),
        ("A.py", "a.py", False),
        ("{a,b}/{c,d}.py", "b/c.py", True),
    ],
)
def test_patterns_match_as_shells_do(pattern: str, path: str, fits: bool) -> None:
    assert matches(matcher(pattern), path) == fits


@given(st.text(alphabet="*?[]{},/a.", max_size=40), st.text(alphabet="a./", max_size=200))
def test_no_pattern_breaks_or_takes_long(pattern: str, path: str) -> None:
    matches(matcher(pattern), path)


def test_many_stars_and_braces_end_at_once() -> None:
    assert not matches(matcher("**/" * 100 + "*a*" * 300), "a/" * 1000 + "b")
    assert len(matcher("{a,b}" * 40)) <= 66


@pytest.mark.parametrize(
    ("command", "only", "made"),
    [
        ("pytest", "tests/test_a.py::test_b", "pytest tests/test_a.py::test_b"),
        ("python -m pytest -q", "tests/test_a.py", "python -m pytest -q tests/test_a.py"),
        (
            "/usr/bin/python3 -m pytest -x -n 2 tests",
            "tests/a/test_b.py",
            "/usr/bin/python3 -m pytest -x -n 2 tests/a/test_b.py",
        ),
        ("pytest tests/", "./tests/test_a.py", "pytest ./tests/test_a.py"),
        ("pytest -q -p no:cacheprovider tests", "total", "pytest -q -p no:cacheprovider tests -k total"),
        ("python3 -m unittest -v -b test_m", "test_m.T.test_a", "python3 -m unittest -v -b test_m -k test_a"),
        ("python -m unittest", "tests/test_m.py", "python -m unittest -k test_m"),
        ("pytest", "a and not b", "pytest -k 'a and not b'"),
        ("pytest", "tests/x.py::t[$(rm -rf /)]", "pytest 'tests/x.py::t[$(rm -rf /)]'"),
    ],
)
def test_a_plain_call_is_narrowed(command: str, only: str, made: str) -> None:
    assert narrowed(command, only) == made


@pytest.mark.parametrize(
    ("command", "only"),
    [
        ("make test", "test_a"),
        ("cd sub && pytest", "test_a"),
        ("pytest; true", "test_a"),
        ("pytest $ARGS", "test_a"),
        ("X=1 pytest", "test_a"),
        ("python -m unittest -v -k x", "test_a"),
        ("python -m unittest -v", "a b"),
        ("pytest --unknown value", "test_a"),
        ("pytest unit", "integration/test_a.py"),
        ("pytest", "--pdb"),
        ("pytest", "-k x"),
        ("pytest 'open", "test_a"),
    ],
)
def test_what_cannot_be_narrowed_for_certain_is_not(command: str, only: str) -> None:
    assert narrowed(command, only) is None
