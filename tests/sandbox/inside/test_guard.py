"""Where everything may be killed, and where never."""

from __future__ import annotations

import resource
import subprocess
import sys

import pytest

from sandbox.inside.guard import bounds, may_sweep, process_namespace

HOST = ("boot-1", 4026531836)


@pytest.mark.parametrize(
    ("uid", "own", "why"),
    [
        (0, ("boot-1", 4026532999), "root"),
        (1000, ("boot-1", 4026532999), "a person"),
        (69_999, ("boot-1", 4026532999), "just below the agents"),
        (71_000, ("boot-1", 4026532999), "the keeper, just above the agents"),
        (70_000, ("boot-1", 4026531836), "the machine's own process namespace"),
        (70_000, HOST, "where the daemon itself lives"),
        (70_000, ("", 0), "nobody knows where"),
    ],
)
def test_sweeping_is_impossible_for(uid: int, own: tuple[str, int], why: str) -> None:
    assert not may_sweep(uid, own, HOST), why


def test_sweeping_is_impossible_in_the_daemons_own_namespace_inside_a_container() -> None:
    inside = ("boot-1", 4026532777)
    assert not may_sweep(70_000, inside, inside)


@pytest.mark.parametrize("uid", [70_000, 70_999])
def test_sweeping_is_possible_for_an_agent_in_a_namespace_of_its_own(uid: int) -> None:
    assert may_sweep(uid, ("boot-1", 4026532999), HOST)
    assert may_sweep(uid, ("boot-2", 4026532999), ("boot-1", 4026532999)), "another machine's number may be the same"


def test_here_is_where_the_tests_live_and_nothing_is_swept() -> None:
    assert process_namespace()[1] > 0
    assert not may_sweep(70_000, process_namespace(), process_namespace())


def test_a_limit_that_another_process_changed_is_seen() -> None:
    program = (
        "import sys; from sandbox.inside.guard import bounds; before = bounds(); print(flush=True); sys.stdin.read(1);"
        "print(bounds() == before)"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdin=-1, stdout=-1, text=True) as child:
        assert child.stdout is not None
        child.stdout.readline()
        resource.prlimit(child.pid, resource.RLIMIT_NOFILE, (50, 50))
        assert child.communicate("x")[0] == "False\n"
    assert bounds() == bounds()
