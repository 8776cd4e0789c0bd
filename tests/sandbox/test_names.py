"""Names out of a hostile workspace."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.trees.names import _folded, git_among, names_git, names_gitmodules, normal, shown


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


_ODD = st.lists(
    st.sampled_from([*".gGiItTmodules~1 :\\/x", "\u200c", "\u202e", "\ufeff", "\u0130", "\u0131"]), max_size=16
)


@given(_ODD.map("".join))
def test_a_cheap_look_first_overlooks_no_spelling(part: str) -> None:
    name = part.encode()
    assert names_git(name) is any(piece in {".git", "git~1"} for piece in _folded(name).split("\\"))
    assert names_gitmodules(name) is (_folded(name) in {".gitmodules", "gitmod~1"})
    parts = name.split(b"/")
    assert git_among(parts) == next((at for at, each in enumerate(parts) if names_git(each)), None)


def test_judging_a_path_of_many_folders_costs_next_to_nothing() -> None:
    """Each cost 38 ms of the daemon's only thread, and a workspace may hold many thousands."""
    started = time.process_time()
    for _ in range(200):
        assert git_among([b"a"] * 2000) is None
    assert time.process_time() - started < 3


@given(st.binary(max_size=30))
def test_a_plain_name_stays_as_it_is_and_can_be_shown(name: bytes) -> None:
    plain = normal(name)
    if plain is not None:
        assert normal(plain) == plain
        assert not plain.startswith(b"/")
        assert b".." not in plain.split(b"/")
    shown(name).encode()
    names_git(name)
