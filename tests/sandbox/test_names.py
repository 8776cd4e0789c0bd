"""Names out of a hostile workspace."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.trees.names import names_git, normal, shown


@pytest.mark.parametrize(
    ("name", "plain"),
    [(b"./a//b/./c", b"a/b/c"), (b"a", b"a"), (b"..a/...", b"..a/..."), (b"a\n", b"a\n"), (b"\xff", b"\xff")],
)
def test_plain_names_pass(name: bytes, plain: bytes) -> None:
    assert normal(name) == plain


@pytest.mark.parametrize("name", [b"", b".", b"./", b"/", b"/etc", b"..", b"a/../b", b"a/..", b"x" * 5000, b"a\0b"])
def test_names_that_lead_elsewhere_do_not(name: bytes) -> None:
    assert normal(name) is None


@pytest.mark.parametrize(
    "part",
    [
        ".git",
        ".GIT",
        ".Git",
        "git~1",
        "GIT~1",
        ".git ",
        ".git...",
        ".git . .",
        ".g\u200cit",
        "\ufeff.git",
        ".git:x",
        ".git\\hooks",
        "x\\.GIT",
    ],
)
def test_every_spelling_of_git_is_known(part: str) -> None:
    assert names_git(part.encode())


@pytest.mark.parametrize("part", [".gitignore", ".gitattributes", "git", ".gi", "x.git", "git~10", ".github", ""])
def test_other_names_are_not_git(part: str) -> None:
    assert not names_git(part.encode())


@given(st.binary(max_size=30))
def test_a_plain_name_stays_as_it_is_and_can_be_shown(name: bytes) -> None:
    plain = normal(name)
    if plain is not None:
        assert normal(plain) == plain
        assert not plain.startswith(b"/")
        assert b".." not in plain.split(b"/")
    shown(name).encode()
    names_git(name)
