"""What runs inside a sandbox for its keeper: reading, writing, packing and unpacking files. Pure argument lists.

The host never follows a path of a workspace. These small shell programs do, as the agent's user, with the sandbox's own
read-only tools; a name that leads out of the workspace is refused there. All backends share them.
"""

from __future__ import annotations

import re

from sandbox.errors import SandboxPathError
from sandbox.types import Command

NO_FOLDER = 126
_MISSING, _OUTSIDE, _NOT_A_FILE = 93, 94, 95

_RUN = 'cd -- "$1" 2>/dev/null || { echo "$1: no such folder"; exit 126; }; shift; exec "$@"'
# The dot keeps a line feed at the end of a name from being eaten by the substitution.
_RESOLVE = (
    'root=$(pwd -P); p=$(realpath {how} -z -- "$1" 2>/dev/null | tr "\\0" .); [ -n "$p" ] || exit 93; p=${{p%.}}; '
    'case "$p" in "$root"/*) ;; *) exit 94 ;; esac; '
)
_READ = _RESOLVE.format(how="-e") + '[ -f "$p" ] || exit 95; exec head -c "$2" -- "$p"'
_WRITE = (
    _RESOLVE.format(how="-m") + 'if [ -e "$p" ]; then [ -f "$p" ] || exit 95; new=; else new=1; fi; '
    'mkdir -p -- "${p%/*}" && cat >"$p" || exit 1; '
    'if [ "$2" = x ]; then chmod 755 -- "$p"; elif [ "$new" ]; then chmod 644 -- "$p"; fi'
)
# What the agent made unreadable would look deleted in the export; it owns its files, so it may be opened up again.
_PACK = (
    "chmod -R u+rwX . 2>/dev/null; tar --create --format=gnu --sparse --sort=name --file=- .; "
    'code=$?; [ "$code" -le 1 ] || exit "$code"'  # 1: a file changed while it was read
)
_UNPACK = "umask 022; exec tar --extract --no-same-owner --no-same-permissions --file=-"

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


def run_argv(command: Command) -> list[str]:
    """The command in its folder, with a shell's exit codes for a missing program. Raises SandboxPathError."""
    for name, value in command.env.items():
        if not _NAME.match(name) or "\0" in value:
            raise SandboxPathError(f"{name!r} cannot be an environment variable")
    if any("\0" in word for word in command.argv):
        raise SandboxPathError("an argument holds a NUL byte")
    return ["/bin/sh", "-c", _RUN, "sh", relative(command.cwd, folder=True), *command.argv]


def read_argv(path: str, limit: int) -> list[str]:
    """Prints the first ``limit`` bytes. Raises SandboxPathError for a path that is outside by its name alone."""
    return ["/bin/sh", "-c", _READ, "sh", relative(path), str(limit)]


def write_argv(path: str, *, executable: bool) -> list[str]:
    """Takes the content from standard input; an existing file keeps its mode unless ``executable`` is asked for."""
    return ["/bin/sh", "-c", _WRITE, "sh", relative(path), "x" if executable else "-"]


def pack_argv() -> list[str]:
    """The workspace as a tar stream on standard output."""
    return ["/bin/sh", "-c", _PACK]


def unpack_argv() -> list[str]:
    """A tar stream on standard input into the workspace."""
    return ["/bin/sh", "-c", _UNPACK]


def refuse(path: str, code: int, said: bytes) -> None:
    """Raises SandboxPathError for the exit code of a read or write, unless it is 0."""
    reasons = {_MISSING: "does not exist", _OUTSIDE: "lies outside the workspace", _NOT_A_FILE: "is not a file"}
    if code:
        words = said.decode("utf-8", "replace").strip().rsplit(": ", 1)[-1] or f"failed with status {code}"
        raise SandboxPathError(f"{path} {reasons.get(code) or 'cannot be used: ' + words}")


def relative(path: str, *, folder: bool = False) -> str:
    """A path as the shell programs take it. Raises SandboxPathError for one that is outside by its name alone."""
    parts = [part for part in path.split("/") if part not in {"", "."}]
    if path.startswith("/") or ".." in parts or "\0" in path:
        raise SandboxPathError(f"{path!r} lies outside the workspace; paths are relative to it and do not climb")
    if not parts and not folder:
        raise SandboxPathError(f"{path!r} names no file")
    return "/".join([".", *parts])
