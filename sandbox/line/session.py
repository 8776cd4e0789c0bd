"""A session's state: the folder and the exported variables that one command leaves to the next. Data, kept by the host.

A shell is told to write both to a descriptor of the supervisor when it exits. What comes is the agent's own word about
its own session: it is bounded and checked for form, and where there is none (killed, replaced by ``exec``, an EXIT trap
of the script's own) the state stays as it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sandbox.line.paths import LONGEST_PATH, is_variable
from sandbox.types import Command

# One line with the script's first, so that the line numbers in a shell's messages are the script's own.
_TELL = 'trap \'{ printf "%s\\0" "$(pwd -P; echo .)"; command -p env -0 || env -0; } >&9 2>/dev/null\' EXIT; '
_PASSING = frozenset({"_", "PWD", "SHLVL"})  # set by every shell anew


@dataclass(frozen=True)
class Session:
    """Where the next command begins, and with which variables."""

    cwd: str
    env: tuple[tuple[str, str], ...]

    def moved(self, old: Sequence[str], new: Sequence[str]) -> Session:
        """The same in another sandbox, whose workspace and home may lie elsewhere."""
        places = dict(zip(old, new, strict=True))
        cwd = next((places[at] + self.cwd[len(at) :] for at in old if f"{self.cwd}/".startswith(f"{at}/")), self.cwd)
        return Session(cwd, tuple((name, places.get(value, value)) for name, value in self.env))


def telling(argv: tuple[str, ...]) -> tuple[str, ...]:
    """A session's ``(shell, "-c", script, ...)`` so that it tells its state when it exits."""
    shell, flag, script, *words = argv
    return (shell, flag, _TELL + script, *words)


def told(data: bytes) -> Session | None:
    """The state that a shell told; None where it is none."""
    cwd, *variables = data.decode("utf-8", "surrogateescape").split("\0")
    if not cwd.startswith("/") or not cwd.endswith("\n.") or not variables or variables[-1]:
        return None
    if len(cwd) > LONGEST_PATH:
        return None
    pairs = (entry.partition("=") for entry in variables[:-1])
    env = {name: value for name, equals, value in pairs if equals and is_variable(name) and name not in _PASSING}
    return Session(cwd.removesuffix("\n."), tuple(env.items()))


def begin(state: Session | None, command: Command, base: dict[str, str]) -> tuple[str, dict[str, str]]:
    """Folder and environment of a command: the session's where it has a state, but what the command itself asks for."""
    if state is None or not command.session:
        return command.cwd, base | command.env
    cwd = command.cwd if command.cwd != "." else state.cwd
    return cwd, dict(state.env) | command.env
