"""A session's state is what a shell said in the right form, and nothing else."""

from __future__ import annotations

import subprocess

import pytest

from sandbox.line.session import Session, begin, telling, told
from sandbox.types import Command


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"/",
        b"/x\n.",
        b"/x\n.\0A=1",
        b"x\n.\0A=1\0",
        b"/x\0A=1\0",
        b"\0\0",
        b"\n.\0A=1\0",
        b"\xff\n.\0\0",
        b"/" + b"x" * 5000 + b"\n.\0A=1\0",
    ],
)
def test_what_is_cut_short_or_made_up_is_no_state(data: bytes) -> None:
    assert told(data) is None


def test_names_that_no_shell_could_set_and_passing_ones_are_left_out() -> None:
    data = b"/x\n.\0A=1\0BASH_FUNC_f%%=() { :\n}\0B-C=1\0=2\0D\0PWD=/y\0SHLVL=9\0_=/bin/env\0E=a=b\n\0F=\xff\0"
    assert told(data) == Session("/x", (("A", "1"), ("E", "a=b\n"), ("F", "\udcff")))


@pytest.mark.parametrize("shell", ["sh", "bash"])
@pytest.mark.parametrize("script", ["", "# a comment", "\n\nmissing-program", "echo ); x", "exit 3", "echo $LINENO"])
def test_a_script_says_and_ends_as_it_would_without(shell: str, script: str) -> None:
    def run(argv: tuple[str, ...]) -> tuple[int, bytes, bytes]:
        ended = subprocess.run(
            ["/bin/sh", "-c", 'exec "$@" 9>/dev/null', "sh", *argv], capture_output=True, check=False, timeout=20
        )
        return ended.returncode, ended.stdout, ended.stderr.split(b"`")[0]

    argv = (shell, "-c", script, "name", "one")
    assert run(telling(argv)) == run(argv)


def test_the_commands_own_folder_and_variables_come_before_the_state() -> None:
    state = Session("/tmp", (("A", "state"), ("B", "state")))
    command = Command(argv=("sh", "-c", ":"), session=True, cwd="sub", env={"B": "own"})
    assert begin(state, command, {"A": "base", "C": "base"}) == ("sub", {"A": "state", "B": "own"})
    assert begin(None, command, {"A": "base"}) == ("sub", {"A": "base", "B": "own"})
    other = command.model_copy(update={"session": False})
    assert begin(state, other, {"A": "base"}) == ("sub", {"A": "base", "B": "own"})


def test_a_state_moves_to_where_workspace_and_home_lie_in_another_sandbox() -> None:
    state = Session("/a/work/sub", (("HOME", "/a/home"), ("X", "/a/home/bin")))
    moved = state.moved(("/a/work", "/a/home"), ("/b/work", "/b/home"))
    assert moved == Session("/b/work/sub", (("HOME", "/b/home"), ("X", "/a/home/bin")))
    assert Session("/a/workers", ()).moved(("/a/work",), ("/b/work",)) == Session("/a/workers", ())
