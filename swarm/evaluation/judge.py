"""Judges a sealed tree by a case's hidden tests in a fresh sandbox, and proves each case before anyone works on it.

The hidden tests are put in here and nowhere else, over whatever lies at their paths, when the agent's sandbox is gone.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Literal

from sandbox.base import Sandbox
from sandbox.errors import SandboxLostError
from sandbox.trees.names import above
from sandbox.trees.tarball import END, header, padding
from sandbox.trees.workspace import Workspace
from sandbox.types import Command, SealedTree
from swarm.checks import run_tests
from swarm.evaluation.case import COMMAND, Case, File, Hidden, Solution
from swarm.evaluation.results import NAMES, Judged, Standing
from swarm.evaluation.steering import judge_of
from swarm.evidence import some
from swarm.types import TestRun

Kind = Literal["check", "solution"]
Fresh = Callable[[str, Kind], AbstractAsyncContextManager[Sandbox]]
"""Opens a new sandbox without network whose workspace holds a tree."""

_SIGKILLED = 128 + 9
_PATCH_SECONDS = 60.0
_REMOVE = ("rm", "-rf", "--")
_CLEAR = ("/bin/sh", "-c", 'for path; do [ -d "$path" ] || rm -rf -- "$path"; done', "sh")
_AT_ONCE = 200  # paths, each of at most 4096 bytes


@dataclass(frozen=True)
class Court:
    """What one case is judged with. ``base`` is its base commit in the case's own git directory."""

    case: Case
    workspace: Workspace
    base: str
    fresh: Fresh
    limit: int

    async def judge(self, sealed: SealedTree, standing: Standing) -> Judged:
        """What the hidden tests say of a sealed tree. Raises SandboxError and WorkspaceError for broken machinery."""
        counted = await self._counted(sealed)
        put_back = tuple(sorted(set(sealed.files) - set(counted.files)))
        if not counted.changed:
            why = "all that it changed is the tests' own, which was put back" if sealed.files else "nothing was changed"
            return Judged(solved=False, reason=why, put_back=put_back[:NAMES])
        run = await self._run(counted.tree)
        if isinstance(run, str):
            return Judged(solved=False, reason=run, put_back=put_back[:NAMES])
        return verdict(run, standing, put_back)

    async def prove(self) -> Standing:
        """Run the hidden tests on the base, where they must fail, and on the reference solution, where they must pass.

        Raises SandboxError and WorkspaceError for broken machinery.
        """
        before = await self._run(await self._tree())
        if isinstance(before, str):
            return self._standing(before)
        after = await self._reference()
        if isinstance(after, str):
            return self._standing(after)
        why, required, by_exit = proof(self.case.hidden, before, after)
        return self._standing(why, required, by_exit=by_exit, proved=after is not None and not why)

    def _standing(
        self, broken: str = "", required: Iterable[str] = (), *, by_exit: bool = True, proved: bool = False
    ) -> Standing:
        case = self.case
        kept = tuple(required)
        return Standing(case=case.id, digest=case.digest, broken=broken, required=kept, by_exit=by_exit, proved=proved)

    async def _tree(self) -> str:
        return (await self.workspace.unchanged(self.base)).tree

    async def _counted(self, sealed: SealedTree) -> SealedTree:
        known = await self.workspace.paths(self.base)
        return await self.workspace.chosen(self.base, sealed.tree, judge_of(self.case.hidden, known))

    async def _reference(self) -> TestRun | str | None:
        """The hidden tests on the reference solution; None where there is none."""
        if self.case.solution is None:
            return None
        solved = await self._solved(self.case.solution)
        return solved if isinstance(solved, str) else await self._run(solved.tree)

    async def _solved(self, solution: Solution) -> SealedTree | str:
        """The tree of the reference solution as far as it counts, or why there is none."""
        async with self.fresh(await self._tree(), "solution") as sandbox:
            if why := await _apply(sandbox, solution):
                return f"its reference solution cannot be applied: {why}"
            sealed = await self.workspace.seal(self.base, sandbox.export(), limit=self.limit)
        counted = await self._counted(sealed)
        if lost := sorted(set(sealed.files) - set(counted.files)):
            return f"its reference solution changes what is put back before the tests ({some(lost)}); name it in paths"
        return counted

    async def _run(self, tree: str) -> TestRun | str:
        """One run of the hidden tests, or why they cannot be put in. One that somebody killed is run once more."""
        run = await self._once(tree)
        if isinstance(run, TestRun) and run.exit_code == _SIGKILLED and not (run.timed_out or run.out_of_memory):
            run = await self._once(tree)
        return run

    async def _once(self, tree: str) -> TestRun | str:
        hidden = self.case.hidden
        async with self.fresh(tree, "check") as sandbox:
            if why := await _put(sandbox, hidden):
                return f"the hidden tests cannot be put in: {why}"
            try:
                return await run_tests(sandbox, hidden.command, seconds=hidden.seconds, env=hidden.env)
            except SandboxLostError as error:  # what runs inside may have killed its supervisor
                return f"the sandbox was lost while the hidden tests ran: {error}"


def verdict(run: TestRun, standing: Standing, put_back: tuple[str, ...] = ()) -> Judged:
    """Whether a run solves its case: all required tests passed and, where nobody named them, it exited with 0. Pure."""
    named = tuple(name for name in standing.required if name != COMMAND)
    missing = tuple(sorted(set(named) - set(run.passed)))
    failed = set(run.failed)
    if run.timed_out:
        why = f"the hidden tests did not end within {run.seconds:.0f} s"
    elif run.out_of_memory:
        why = "the hidden tests ran out of the sandbox's memory"
    elif missing:
        told = sorted(failed & set(missing))
        why = f"{some(told)} failed" if told else f"{some(missing)} did not pass"
    elif run.exit_code and (standing.by_exit or not named):
        why = f"the hidden tests ended with exit code {run.exit_code}"
    else:
        why = ""
    return Judged(
        solved=not why,
        reason=why,
        passed=len(run.passed),
        failed=run.failed[:NAMES],
        missing=missing[:NAMES],
        exit_code=run.exit_code,
        timed_out=run.timed_out,
        out_of_memory=run.out_of_memory,
        seconds=run.seconds,
        put_back=put_back[:NAMES],
        tail=run.tail,
    )


def proof(hidden: Hidden, before: TestRun, after: TestRun | None) -> tuple[str, tuple[str, ...], bool]:
    """Why a case cannot judge (empty where it can), the tests that a solution has to pass, and whether the command has
    to exit with 0 besides. Pure.

    Names come from the set, else from the reference solution's run, else from the base's: a run that tells its tests
    apart on the base has to do so on a solution too, so that a program that just exits with 0 does not pass.
    """
    required = (*hidden.fail_to_pass, *hidden.pass_to_pass)
    by_exit = not required
    if not required:
        found = after.passed if after else (*before.passed, *before.failed)
        required = tuple(sorted(filter(_single, found))) or (COMMAND,)
    named = set(hidden.fail_to_pass) - {COMMAND}
    if early := sorted(named & set(before.passed)):
        return f"{some(early)} passes before anything is changed", required, by_exit
    if not named and not _bad(before):
        return "the hidden tests pass before anything is changed", required, by_exit
    late = sorted(set(hidden.pass_to_pass) - {COMMAND} - set(before.passed))
    if late:
        return f"{some(late)} should pass before anything is changed, and does not", required, by_exit
    if after is not None:
        standing = Standing(case="-", digest="-", required=required, by_exit=by_exit)
        judged = verdict(after, standing)
        if not judged.solved:
            return f"its reference solution does not solve it: {judged.reason}", required, by_exit
    return "", required, by_exit


def _single(name: str) -> bool:
    """Whether a name is one test's: neither the whole command's nor that of a module which could not be loaded."""
    return name != COMMAND and not name.endswith(".py") and "_FailedTest" not in name


def _bad(run: TestRun) -> bool:
    return bool(run.exit_code or run.timed_out or run.out_of_memory or run.failed)


async def _put(sandbox: Sandbox, hidden: Hidden) -> str:
    """Put the hidden tests in; why that cannot be, empty where it was done."""
    await _on(sandbox, _REMOVE, [path.removesuffix("/") for path in hidden.removed])
    if hidden.patch and (why := await _patched(sandbox, hidden.patch)):
        return why
    await _laid(sandbox, hidden.files)
    return ""


async def _laid(sandbox: Sandbox, files: Sequence[File]) -> None:
    """Put files in place of whatever lies at their paths, or is no folder where they need one."""
    raw = [file.path.encode("utf-8", "surrogateescape") for file in files]
    folders = dict.fromkeys(folder for path in raw for folder in reversed([*above(path)]))  # the outermost first
    await _on(sandbox, _CLEAR, [folder.decode("utf-8", "surrogateescape") for folder in folders])
    await _on(sandbox, _REMOVE, [file.path for file in files])
    if files:
        await sandbox.unpack(tar_of(files))


async def _on(sandbox: Sandbox, argv: tuple[str, ...], paths: Sequence[str]) -> None:
    """One command on paths, so many at a time as an argument list takes."""
    for start in range(0, len(paths), _AT_ONCE):
        await sandbox.run(Command(argv=(*argv, *paths[start : start + _AT_ONCE])))


async def _apply(sandbox: Sandbox, solution: Solution) -> str:
    if solution.patch:
        return await _patched(sandbox, solution.patch)
    if solution.script:
        outcome = await sandbox.run(Command(argv=("/bin/sh", "-c", solution.script)))
        return f"its script ended with exit code {outcome.exit_code}" if outcome.exit_code else ""
    await _laid(sandbox, solution.files)
    return ""


async def _patched(sandbox: Sandbox, patch: str) -> str:
    argv = ("git", "apply", "--whitespace=nowarn", "-")
    data = patch.encode("utf-8", "surrogateescape")
    outcome = await sandbox.run(Command(argv=argv, stdin=data, timeout=_PATCH_SECONDS))
    return outcome.text.strip()[-500:] or f"git apply ended with {outcome.exit_code}" if outcome.exit_code else ""


async def tar_of(files: Iterable[File], when: int = 0) -> AsyncIterator[bytes]:
    """Files as a tar stream."""
    for file in files:
        name = file.path.encode("utf-8", "surrogateescape")
        yield header(name, 0o755 if file.executable else 0o644, len(file.content), when)
        yield file.content + padding(len(file.content))
    yield END
