"""How a supervisor is started: the arguments of its Python, and what it is sent first. Pure."""

from __future__ import annotations

import importlib.util
import marshal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from sandbox import inside
from sandbox.inside.guard import process_namespace
from sandbox.rules.profile import HOME, WORK

_ORDER = (
    *("protocol", "guard", "kernel", "ends", "child", "keeper"),
    *("files", "running", "packing", "tunnels", "supervisor"),
)
# The compiled program saves the compiling where the Python inside understands it, else the source is used.
_BOOTSTRAP = """\
import os, sys, marshal, _frozen_importlib_external as f
def take(n):
    b = b""
    while len(b) < n:
        p = os.read(0, n - len(b))
        if not p:
            os._exit(1)
        b += p
    return b
n = [int.from_bytes(take(4), "big") for _ in "abc"]
magic, code, source, start = take(4), take(n[0]), take(n[1]), take(n[2])
same = magic == f.MAGIC_NUMBER
for name, part in marshal.loads(code if same else source):
    m = sys.modules[name] = type(sys)(name)
    exec(part if same else compile(part, name, "exec", 0, True, 2), m.__dict__)
m.main(marshal.loads(start))
"""


@dataclass(frozen=True)
class Start:
    """Where a supervisor finds itself. ``sweep``: it may kill all processes of its user, in a namespace of its own.

    ``landlock`` is the profile's Landlock as data, or None for no second wall; ``tar`` is GNU tar's argv.
    """

    work: str = WORK
    home: str = HOME
    sweep: bool = True
    landlock: Mapping[str, Any] | None = None
    tar: Sequence[str] = ("tar",)


def bootstrap_argv(python: Sequence[str] = ("/usr/bin/python3",)) -> list[str]:
    """All that a cell starts. It reads the rest from standard input and answers on standard output."""
    return [*python, "-I", "-S", "-c", _BOOTSTRAP]


def first_bytes(
    start: Start, *, ports: Sequence[int], files: Mapping[str, bytes], environment: Mapping[str, str]
) -> bytes:
    """The program, and what it has to know. ``environment`` is that of the tar it runs."""
    code, source = _program()
    asked = {
        "work": start.work.encode(),
        "home": start.home.encode(),
        "sweep": start.sweep,
        "host": _own_namespace(),
        "landlock": None if start.landlock is None else {k: _plain(v) for k, v in start.landlock.items()},
        "tar": tuple(word.encode() for word in start.tar),
        "ports": tuple(ports),
        "files": tuple((path.encode(), data) for path, data in files.items()),
        "env": as_bytes(environment),
    }
    told = marshal.dumps(asked, 2)
    sizes = b"".join(len(part).to_bytes(4, "big") for part in (code, source, told))
    return sizes + importlib.util.MAGIC_NUMBER + code + source + told


def as_bytes(environment: Mapping[str, str]) -> dict[bytes, bytes]:
    """An environment as the kernel takes it, whatever the encoding inside."""
    return {encoded(name): encoded(value) for name, value in environment.items()}


def encoded(text: str) -> bytes:
    """Text as bytes; bytes that were no UTF-8 come back as they were."""
    return text.encode("utf-8", "surrogateescape")


def _plain(value: Any) -> Any:
    return value if isinstance(value, bool) else tuple(value)


@cache
def _own_namespace() -> tuple[str, int]:
    """Ours, which a process never leaves."""
    return process_namespace()


@cache
def _program() -> tuple[bytes, bytes]:
    """All modules in the order in which each finds what it imports: compiled, and as source."""
    folder = Path(inside.__path__[0])
    sources = [(f"{inside.__name__}.{name}", (folder / f"{name}.py").read_bytes()) for name in _ORDER]
    compiled = [(name, compile(source, name, "exec", 0, dont_inherit=True, optimize=2)) for name, source in sources]
    return marshal.dumps(compiled), marshal.dumps(sources, 2)
