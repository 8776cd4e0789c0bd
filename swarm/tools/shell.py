"""The tool shell: commands that follow one another in one session, and how an outcome is told."""

from __future__ import annotations

import re
from typing import Any

from sandbox.base import Sandbox
from sandbox.types import Command, Outcome
from swarm.history import clean, shorten
from swarm.recording import fingerprint
from swarm.tools.arguments import Shell
from swarm.tools.files import Files
from swarm.tools.outputs import Outputs
from swarm.tools.result import Result

# No pager, no prompt, no editor, no bytecode left in the workspace, which is sealed as it is.
ENV = {
    "CI": "1", "DEBIAN_FRONTEND": "noninteractive", "GIT_EDITOR": "true", "GIT_PAGER": "cat",
    "GIT_TERMINAL_PROMPT": "0", "MANPAGER": "cat", "PAGER": "cat", "PIP_NO_INPUT": "1",
    "PYTEST_ADDOPTS": "-p no:cacheprovider", "PYTHONDONTWRITEBYTECODE": "1", "SYSTEMD_PAGER": "cat", "TERM": "dumb",
}  # fmt: skip
_MOVES = re.compile(r"\b(?:cd|pushd|popd)\b")
# What a loader or a shell would take from the session before it could be taken away.
_POISON = {"LD_PRELOAD": "", "LD_LIBRARY_PATH": "", "BASH_ENV": "", "ENV": ""}
_BEGIN = "command -v bash >/dev/null 2>&1 && echo bash"
_VARIABLES = "command -p env -0 2>/dev/null || env -0 2>/dev/null || env"
_RESTART = (
    'cd -- "$1"; [ -n "$2" ] || exit 0; for n in $(env | sed -n "s/^\\([A-Za-z_][A-Za-z0-9_]*\\)=.*/\\1/p"); do '
    'case " $2 " in *" $n "*) ;; *) unset "$n" 2>/dev/null ;; esac; done'
)


class Session:
    """One session: the folder and the exported variables that a command leaves are what the next begins with.

    What a command that was killed would have left is not known: the next one begins where the last whole one ended.
    """

    def __init__(self, sandbox: Sandbox, files: Files, outputs: Outputs) -> None:
        self._sandbox, self._files, self._outputs = sandbox, files, outputs
        self._shell = ""
        self._folder = ""

    async def run(self, asked: Shell, seconds: float | None) -> Result:
        """Run one command, in a new session where that is asked for."""
        if asked.restart:
            await self._restart()
            if not asked.command.strip():
                return Result("the shell is at the repository's root again, with its first variables")
        shell = await self._begun()
        outcome = await self._sandbox.run(
            Command(argv=(shell, "-c", asked.command), session=True, timeout=least(asked.timeout, seconds))
        )
        if _MOVES.search(asked.command) or self._folder:
            await self._look()
        text = told(outcome, self._outputs, self._folder)
        ok = outcome.exit_code == 0 and not outcome.timed_out
        data = facts(asked.command, outcome) | {"outputs": self._outputs.count}
        return Result(text, kind="command", data=data, changed=True, ok=ok)

    async def _begun(self) -> str:
        """The shell that commands are given to, bash where there is one: that is what models write for."""
        if not self._shell:
            outcome = await self._sandbox.run(Command(argv=("/bin/sh", "-c", _BEGIN), env=ENV, session=True))
            self._shell = "bash" if outcome.output.strip() == b"bash" else "/bin/sh"
        return self._shell

    async def _restart(self) -> None:
        """Back to the root, with the variables of a first command and no others."""
        first = await self._sandbox.run(Command(argv=("/bin/sh", "-c", _VARIABLES), env=ENV))
        base = _variables(first.output.decode("utf-8", "surrogateescape"))
        script = Command(
            argv=("/bin/sh", "-c", _RESTART, "sh", await self._files.root(), " ".join(base)),
            env=_POISON | base | ENV,
            session=True,
        )
        await self._sandbox.run(script)
        self._shell = self._folder = ""

    async def _look(self) -> None:
        """Where the session stands now, relative to the root; empty for the root itself."""
        outcome = await self._sandbox.run(Command(argv=("/bin/sh", "-c", "pwd -P"), session=True))
        place, root = clean(outcome.text).strip()[:300], await self._files.root()
        self._folder = "" if place == root or not place.startswith("/") else place.removeprefix(f"{root}/")


def _variables(text: str) -> dict[str, str]:
    """What ``env`` prints, by name; nothing where it does not look like it."""
    pairs = (entry.partition("=") for entry in text.split("\0" if "\0" in text else "\n"))
    found = {name: value for name, equals, value in pairs if equals and re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII)}
    return found if "PATH" in found else {}


def least(*bounds: float | None) -> float | None:
    """The tightest of some bounds in seconds."""
    return min((bound for bound in bounds if bound is not None), default=None)


def facts(command: str, outcome: Outcome) -> dict[str, Any]:
    """What the journal keeps of a command."""
    return {
        "text": shorten(command, 2000),
        "exit_code": outcome.exit_code,
        "seconds": outcome.seconds,
        "timed_out": outcome.timed_out,
        "out_of_memory": outcome.out_of_memory,
        "output": fingerprint(outcome.output),
    }


def told(outcome: Outcome, outputs: Outputs, folder: str = "") -> str:
    """An outcome in words: how it ended, then what it printed, shortened where it is long."""
    text = outputs.shorten(clean(outcome.text).strip("\n"))
    cut = f" [{outcome.cut} bytes of output were dropped from the middle]" if outcome.cut else ""
    where = f", now in {folder}" if folder else ""
    return f"[{ending(outcome)}, {outcome.seconds:.1f} s{where}]{cut}\n{text or '(no output)'}"


def ending(outcome: Outcome) -> str:
    """How a command ended."""
    if outcome.timed_out:
        return f"killed: it did not end within {outcome.seconds:.0f} s"
    if outcome.out_of_memory:
        return f"killed: out of memory (exit code {outcome.exit_code})"
    return f"exit code {outcome.exit_code}"
