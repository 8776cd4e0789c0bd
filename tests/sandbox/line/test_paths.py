"""What is refused by its words alone never goes inside."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.errors import SandboxPathError
from sandbox.line.paths import check_command, merged, relative
from sandbox.types import Command


@pytest.mark.parametrize(
    "path", ["/", "/etc/passwd", "..", "a/..", "a/../b", "../x", "nul\0", "a/\0", "x" * 5000, "a\ud800"]
)
def test_paths_that_are_outside_or_impossible_by_their_name(path: str) -> None:
    with pytest.raises(SandboxPathError):
        relative(path, folder=True)


@given(st.lists(st.text(min_size=1, max_size=8).filter(lambda part: not {"/", "\0"} & set(part)), max_size=6))
def test_what_is_let_through_stays_below(parts: list[str]) -> None:
    try:
        got = relative("/./".join(parts), folder=True)
    except SandboxPathError:
        assert ".." in parts or "\\ud" in repr("".join(parts))
    else:
        assert got.split("/")[0] == "."
        assert not {"", ".."} & set(got.split("/"))


def test_a_file_needs_a_name_and_a_folder_needs_none() -> None:
    assert relative(".", folder=True) == "."
    for path in ("", ".", "./", "./."):
        with pytest.raises(SandboxPathError, match="names no file"):
            relative(path)


@pytest.mark.parametrize(
    "command",
    [
        Command(argv=("",)),
        Command(argv=("a\0b",)),
        Command(argv=("a", "\0")),
        Command(argv=("a",), env={"A=B": ""}),
        Command(argv=("a",), env={"": ""}),
        Command(argv=("a",), env={"A\n": ""}),
        Command(argv=("a",), env={"A": "\0"}),
        Command(argv=("a",), cwd="/etc"),
        Command(argv=("a", "\ud800")),
        Command(argv=("a",), env={"A": "\ud800"}),
        Command(argv=("a",), cwd="\udfff"),
        Command(argv=("a",), cwd="a/../../b"),
    ],
)
def test_commands_that_the_kernel_could_not_be_given(command: Command) -> None:
    with pytest.raises(SandboxPathError):
        check_command(command)


def test_a_way_outs_variables_come_before_the_base_and_after_the_specs_own() -> None:
    assert merged({"A": "base", "B": "own"}, {"A": "exit", "B": "exit"}, {"B": "own"}) == {"A": "exit", "B": "own"}
