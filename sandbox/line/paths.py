"""What of a request can be refused by its words alone, before it goes inside."""

from __future__ import annotations

import re
from collections.abc import Mapping

from sandbox.errors import SandboxPathError
from sandbox.types import Command

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
LONGEST_PATH = 4096


def relative(path: str, *, folder: bool = False) -> str:
    """A path in its plainest form. Raises SandboxPathError for one that is outside by its name alone."""
    parts = [part for part in path.split("/") if part not in {"", "."}]
    if path.startswith("/") or ".." in parts or "\0" in path:
        raise SandboxPathError(f"{path!r} lies outside the workspace; paths are relative to it and do not climb")
    if not _sayable(path):
        raise SandboxPathError(f"{path[:40]!r} holds half of a character")
    if len(path) > LONGEST_PATH:
        raise SandboxPathError(f"{path[:40]!r}... is longer than a path can be")
    if not parts and not folder:
        raise SandboxPathError(f"{path!r} names no file")
    return "/".join([".", *parts])


def check_command(command: Command) -> None:
    """Raises SandboxPathError for what the kernel could not be given."""
    for name, value in command.env.items():
        if not is_variable(name) or "\0" in value:
            raise SandboxPathError(f"{name!r} cannot be an environment variable")
        if not _sayable(value):
            raise SandboxPathError(f"the variable {name!r} holds half of a character")
    if any("\0" in word for word in command.argv):
        raise SandboxPathError("an argument holds a NUL byte")
    if not all(_sayable(word) for word in command.argv):
        raise SandboxPathError("an argument holds half of a character (a lone surrogate)")
    if not command.argv[0]:
        raise SandboxPathError("the command has no name")
    relative(command.cwd, folder=True)


def _sayable(text: str) -> bool:
    """Whether it can be put into bytes: JSON may hold one of a pair of surrogates alone, and no kernel takes that."""
    try:
        text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return False
    return True


def is_variable(name: str) -> bool:
    """Whether a shell could set it."""
    return _NAME.match(name) is not None


def merged(base: Mapping[str, str], ways_out: Mapping[str, str], own: Mapping[str, str]) -> dict[str, str]:
    """The base environment with the variables of the ways out under what the spec itself sets."""
    return dict(base) | {name: value for name, value in ways_out.items() if name not in own}
