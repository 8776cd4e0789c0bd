"""The program inside: what it may never do outside a sandbox, and that it runs on old and new Pythons."""

from __future__ import annotations

import ast
import os
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.line import supervisor
from sandbox.line.launch import Start, bootstrap_argv, first_bytes
from sandbox.line.supervisor import may_sweep

HOST = ("boot-1", 4026531836)
HEAVY = {"typing", "collections", "enum", "socket", "signal", "selectors", "ctypes", "subprocess", "json", "re"}


def first(**fields: object) -> bytes:
    start = Start(work="/tmp", home="/tmp", **{"sweep": False, **fields})
    return first_bytes(start, ports=(), files={}, environment={"PATH": "/usr/bin:/bin"})


def answer_of(data: bytes, *python: str) -> tuple[bytes, bytes, int]:
    """What a supervisor says before its input ends, on both descriptors, and how it ends."""
    argv = bootstrap_argv(python) if python else bootstrap_argv()
    ended = subprocess.run(argv, input=data, capture_output=True, timeout=20, check=False)
    return ended.stdout, ended.stderr, ended.returncode


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


def test_a_supervisor_that_is_told_to_sweep_here_does_not_start() -> None:
    out, errors, code = answer_of(first(sweep=True))
    assert (out, code) == (b"", 3)
    assert b"nothing may be swept here" in errors


def test_it_says_what_it_could_do_and_ends_with_its_input() -> None:
    out, errors, code = answer_of(first())
    assert out[0] == supervisor.HELLO
    assert b"hidden 1" in out
    assert (errors, code) == (b"", 0)


def test_it_runs_from_source_where_the_compiled_program_is_of_another_python() -> None:
    data = first()
    assert answer_of(data[:12] + b"\0\0\0\0" + data[16:])[0] == answer_of(data)[0]


def test_a_beginning_that_breaks_off_ends_it() -> None:
    assert answer_of(first()[:5000]) == (b"", b"", 1)


def test_it_is_python_3_9() -> None:
    ast.parse(Path(supervisor.__file__).read_text(), feature_version=(3, 9))


def test_it_loads_nothing_heavy() -> None:
    source = Path(supervisor.__file__).read_text()
    probe = "import sys; s = {'__name__': 'x'}; exec(sys.stdin.read(), s); s['Kernel'](); print(*sys.modules)"
    ended = subprocess.run(
        ["/usr/bin/python3", "-I", "-S", "-c", probe], input=source, capture_output=True, text=True, check=True
    )
    assert not HEAVY & set(ended.stdout.split())


@given(st.lists(st.binary(max_size=40)), st.integers(min_value=2, max_value=60))
def test_head_and_tail_of_output_are_sent_and_the_rest_is_counted(pieces: list[bytes], cap: int) -> None:
    reader, writer = os.pipe()
    sent: list[tuple[int, bytes]] = []
    wire = SimpleNamespace(room=True, send=lambda kind, channel, data: sent.append((kind, data)))
    output = supervisor.Output(wire, 1, reader, cap, lambda _: None)  # type: ignore[arg-type]
    for piece in filter(None, pieces):
        os.write(writer, piece)
        output.ready()
    os.close(writer)
    cut = output.finish()
    os.close(reader)
    whole, head = b"".join(pieces), b"".join(data for kind, data in sent if kind == supervisor.HEAD_OUTPUT)
    got = b"".join(data for _, data in sent)
    assert len(got) + cut == len(whole)
    assert head == whole[: cap // 2]
    assert got == whole if len(whole) <= cap else got == head + whole[-(cap - cap // 2) :]


def test_a_tail_of_tiny_pieces_stays_small() -> None:
    reader, writer = os.pipe()
    output = supervisor.Output(SimpleNamespace(room=True, send=print), 1, reader, 100, print)  # type: ignore[arg-type]
    for _ in range(10_000):
        os.write(writer, b"xy" * 30)
        output.ready()
        assert len(output._kept) <= 2 * 50 + supervisor.FRAME + 60
    os.close(writer)
    os.close(reader)


def test_landlock_is_asked_for_by_what_the_kernel_knows() -> None:
    class Kernel:
        def __init__(self, version: int) -> None:
            self.version = version
            self.calls: list[tuple[int | bytes | None, ...]] = []

        def prctl(self, option: int, value: int) -> int:
            return 0

        def syscall(self, *arguments: int | bytes | None) -> int:
            self.calls.append(arguments)
            if arguments[0] == 444 and arguments[1] is None:
                return self.version
            return os.dup(0) if arguments[0] == 444 else 0

    asked = {"read": ("/",), "write": ("/tmp",), "write_data": ("/no/such",), "devices": ("/dev/null",), "scoped": True}
    for version, size, handled, scoped in (
        (1, 8, (1 << 13) - 1, False),
        (2, 8, (1 << 14) - 1, False),
        (3, 8, (1 << 15) - 1, False),
        (4, 16, (1 << 15) - 1, False),
        (5, 16, (1 << 16) - 1, False),
        (6, 24, (1 << 16) - 1, True),
        (7, 24, (1 << 16) - 1, True),
    ):
        kernel = Kernel(version)
        landlock = supervisor.Landlock(kernel, asked)  # type: ignore[arg-type]
        assert (landlock.version, landlock.scoped) == (version, scoped)
        made = kernel.calls[1]
        assert made[2] == size
        assert int.from_bytes(made[1][:8], "little") == handled  # type: ignore[index]
        rules = [int.from_bytes(call[3][:8], "little") for call in kernel.calls[2:]]  # type: ignore[index]
        assert len(rules) == 3, "an absent place is left out"
        assert all(rule & ~handled == 0 for rule in rules)
        assert not any(rule & (1 << 6 | 1 << 11) for rule in rules), "nobody makes device files"
    off = Kernel(0)
    assert supervisor.Landlock(off, asked).version == 0  # type: ignore[arg-type]
    assert supervisor.Landlock(Kernel(7), None).version == 0  # type: ignore[arg-type]
