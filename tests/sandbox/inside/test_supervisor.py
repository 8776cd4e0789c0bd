"""The program inside: what it may never do outside a sandbox, and that it runs on old and new Pythons."""

from __future__ import annotations

import ast
import marshal
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox import inside
from sandbox.inside import ends, kernel, protocol
from sandbox.inside.guard import may_sweep
from sandbox.line.launch import Start, bootstrap_argv, first_bytes

HOST = ("boot-1", 4026531836)
STANDARD = sys.stdlib_module_names
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
    assert out[0] == protocol.HELLO
    assert b"hidden 1" in out
    assert (errors, code) == (b"", 0)


def test_it_runs_from_source_where_the_compiled_program_is_of_another_python() -> None:
    data = first()
    assert answer_of(data[:12] + b"\0\0\0\0" + data[16:])[0] == answer_of(data)[0]


def test_a_beginning_that_breaks_off_ends_it() -> None:
    assert answer_of(first()[:5000]) == (b"", b"", 1)


MODULES = sorted(Path(inside.__path__[0]).glob("*.py"))


def test_it_is_python_3_9_and_needs_nothing_but_its_library() -> None:
    for path in MODULES:
        tree = ast.parse(path.read_text(), feature_version=(3, 9))
        names = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        names |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
        foreign = {n for n in names if n and not n.startswith("sandbox.inside") and n.split(".")[0] not in STANDARD}
        assert not foreign, path


def test_every_module_is_sent_and_finds_what_it_imports() -> None:
    data = first()
    code, source = (int.from_bytes(data[at : at + 4], "big") for at in (0, 4))
    sent = [name for name, _ in marshal.loads(data[16 + code : 16 + code + source])]  # noqa: S302 - we made it
    assert sorted(sent) == [f"sandbox.inside.{path.stem}" for path in MODULES if path.stem != "__init__"]


def test_it_loads_nothing_heavy() -> None:
    code = bootstrap_argv()[-1].replace("m.main(marshal.loads(start))", "print(*sys.modules)")
    ended = subprocess.run(["/usr/bin/python3", "-I", "-S", "-c", code], input=first(), capture_output=True, check=True)
    loaded = ended.stdout.decode().split()
    assert "sandbox.inside.supervisor" in loaded
    assert not HEAVY & set(loaded)


@given(st.lists(st.binary(max_size=40)), st.integers(min_value=2, max_value=60))
def test_head_and_tail_of_output_are_sent_and_the_rest_is_counted(pieces: list[bytes], cap: int) -> None:
    reader, writer = os.pipe()
    sent: list[tuple[int, bytes]] = []
    wire = SimpleNamespace(room=True, send=lambda kind, channel, data: sent.append((kind, data)))
    output = ends.Output(wire, 1, reader, cap, lambda _: None)  # type: ignore[arg-type]
    for piece in filter(None, pieces):
        os.write(writer, piece)
        output.ready()
    os.close(writer)
    cut = output.finish()
    os.close(reader)
    whole, head = b"".join(pieces), b"".join(data for kind, data in sent if kind == protocol.HEAD_OUTPUT)
    got = b"".join(data for _, data in sent)
    assert len(got) + cut == len(whole)
    assert head == whole[: cap // 2]
    assert got == whole if len(whole) <= cap else got == head + whole[-(cap - cap // 2) :]


def test_a_tail_of_tiny_pieces_stays_small() -> None:
    reader, writer = os.pipe()
    output = ends.Output(SimpleNamespace(room=True, send=print), 1, reader, 100, print)  # type: ignore[arg-type]
    for _ in range(10_000):
        os.write(writer, b"xy" * 30)
        output.ready()
        assert len(output._kept) <= 2 * 50 + protocol.FRAME + 60
    os.close(writer)
    os.close(reader)


def test_landlock_is_asked_for_by_what_the_kernel_knows() -> None:
    class Pretend:
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
        pretend = Pretend(version)
        landlock = kernel.Landlock(pretend, asked)  # type: ignore[arg-type]
        assert (landlock.version, landlock.scoped) == (version, scoped)
        made = pretend.calls[1]
        assert made[2] == size
        assert int.from_bytes(made[1][:8], "little") == handled  # type: ignore[index]
        rules = [int.from_bytes(call[3][:8], "little") for call in pretend.calls[2:]]  # type: ignore[index]
        assert len(rules) == 3, "an absent place is left out"
        assert all(rule & ~handled == 0 for rule in rules)
        assert not any(rule & (1 << 6 | 1 << 11) for rule in rules), "nobody makes device files"
    off = Pretend(0)
    assert kernel.Landlock(off, asked).version == 0  # type: ignore[arg-type]
    assert kernel.Landlock(Pretend(7), None).version == 0  # type: ignore[arg-type]
