"""The program inside: what it may never do outside a sandbox, and that it runs on old and new Pythons."""

from __future__ import annotations

import ast
import marshal
import subprocess
import sys
from pathlib import Path

from sandbox import inside
from sandbox.inside import protocol
from sandbox.line.launch import Start, bootstrap_argv, first_bytes

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
