"""The tools grep and glob: run inside the sandbox, bounded by its limits, told within a bound."""

from __future__ import annotations

import json

from sandbox.base import Sandbox
from sandbox.types import Command, Outcome
from swarm.history import clean
from swarm.tools import globs
from swarm.tools.arguments import Glob, Grep
from swarm.tools.files import Files, outside
from swarm.tools.outputs import Outputs
from swarm.tools.result import Result, refused
from swarm.tools.shell import least
from swarm.tools.syntax import source

_SECONDS = 30.0
_MATCHES, _LINES, _WIDE = 500, 150, 300  # searched for, shown, and characters of a line
_NAMES = 200
_MISSING = 127
_BRACES = f"the braces of the pattern stand for more than {globs.MOST} patterns: give fewer"


class Searcher:
    """Looks for files and for lines in them."""

    def __init__(self, sandbox: Sandbox, files: Files, outputs: Outputs) -> None:
        self._sandbox, self._files, self._outputs = sandbox, files, outputs

    async def grep(self, asked: Grep, seconds: float | None) -> Result:
        """Lines by a regular expression: ripgrep where it is inside, else Python, else grep itself."""
        path = await self._files.place(asked.path or ".")
        outside(path)
        if asked.glob and not globs.matcher(asked.glob):
            return refused(_BRACES)
        limit = least(seconds, _SECONDS)
        outcome = None
        for argv in (_ripgrep(asked, path), _python(asked, path), _grep(asked, path, "P"), _grep(asked, path, "E")):
            outcome = await self._sandbox.run(Command(argv=argv, timeout=limit))
            if outcome.timed_out or outcome.exit_code in (0, 1):
                break
            if outcome.exit_code != _MISSING and (argv[0] == "python3" or argv[1] == "-rnIHE"):
                return refused(f"grep: {clean(outcome.text).strip()[:500] or 'it ended badly'}")
        if outcome is None or outcome.exit_code == _MISSING:
            return refused("nothing inside can search: neither rg, python3 nor grep is there")
        return self._found(asked, outcome)

    def _found(self, asked: Grep, outcome: Outcome) -> Result:
        lines = clean(outcome.text).removesuffix("\n").split("\n") if outcome.text else []
        if outcome.timed_out:
            return refused(
                f"the search did not end within {outcome.seconds:.0f} s: give a simpler pattern, or a path or glob"
            )
        if not lines:
            hint = (
                " (a pattern is matched against one line at a time)"
                if "\n" in asked.pattern.replace("\\n", "\n")
                else ""
            )
            return Result(f"no line matches{hint}")
        told = [
            line if len(line) <= _WIDE else f"{line[:_WIDE]} [... {len(line) - _WIDE} more characters]"
            for line in lines
        ]
        whole = "\n".join(line.removeprefix("./") for line in told)
        if len(lines) <= _LINES and not outcome.cut:
            return Result(self._outputs.shorten(whole), data={"outputs": self._outputs.count})
        number = self._outputs.keep(whole)
        shown = "\n".join(whole.split("\n")[:_LINES])
        more = "more than " if outcome.cut or len(lines) >= _MATCHES else ""
        note = (
            f"[{_LINES} of {more}{len(lines)} lines are shown: narrow the pattern, path or glob; view path "
            f'"output:{number}" first {_LINES + 1} shows more]'
        )
        return Result(f"{self._outputs.shorten(shown)}\n{note}", data={"outputs": self._outputs.count})

    async def glob(self, asked: Glob, seconds: float | None) -> Result:
        """Files by name."""
        path = await self._files.place(asked.path or ".")
        patterns = globs.matcher(await self._relative(asked.pattern))
        if not patterns:
            return refused(_BRACES)
        names = await self._files.names(path, seconds)
        before = "" if path == "." else f"{path.strip('/')}/"
        found = [
            name
            for name in names
            if globs.matches(patterns, name) or globs.matches(patterns, name.removeprefix(before))
        ]
        if not found:
            return Result(f"no file matches ({len(names)} files were looked at)")
        more = f"\n[{len(found) - _NAMES} more files match: narrow the pattern]" if len(found) > _NAMES else ""
        return Result(clean("\n".join(found[:_NAMES])) + more)

    async def _relative(self, pattern: str) -> str:
        """A pattern without the root that a model wrote before it."""
        return await self._files.place(pattern) if pattern.startswith("/") else pattern


def _ripgrep(asked: Grep, path: str) -> tuple[str, ...]:
    options = ["rg", "--no-config", "--color=never", "--no-heading", "--with-filename", "-n", "--sort=path", "--hidden"]
    options += ["-g", "!.git", f"--max-count={_MATCHES}", f"--context={asked.context}"]
    options += ["-i"] if asked.ignore_case else []
    options += ["-g", asked.glob] if asked.glob else []
    return (*options, "-e", asked.pattern, "--", path)


def _python(asked: Grep, path: str) -> tuple[str, ...]:
    words = {
        "pattern": asked.pattern, "path": path, "context": asked.context, "ignore_case": asked.ignore_case,
        "glob": globs.matcher(asked.glob.removeprefix("!")) if asked.glob else None,
        "unlike": (asked.glob or "").startswith("!"), "most": _MATCHES,
    }  # fmt: skip
    return ("python3", "-I", "-S", "-c", source("grep"), json.dumps(words))


def _grep(asked: Grep, path: str, syntax: str) -> tuple[str, ...]:
    """grep with the regular expressions of Perl, which not every grep has, or its own extended ones; of a glob
    it takes the file's name alone."""
    options = ["grep", f"-rnIH{syntax}", "--exclude-dir=.git"]
    options += [f"-C{asked.context}"] if asked.context else []
    options += ["-i"] if asked.ignore_case else []
    kind = "--exclude" if (asked.glob or "").startswith("!") else "--include"
    forms = globs.matcher((asked.glob or "").removeprefix("!")) if asked.glob else []
    options += [f"{kind}={form[-1]}" for form in forms if form and form[-1] != "**"]
    return (*options, "-e", asked.pattern, "--", path)
