"""Makes the base that agents work on out of a case: one commit with nothing behind it, in its own git directory."""

from __future__ import annotations

from collections.abc import AsyncIterator

from sandbox.errors import WorkspaceError
from sandbox.trees.folder import folder_stream
from sandbox.trees.workspace import Workspace
from swarm.errors import EvaluationError
from swarm.evaluation.case import Case, FolderSource, GitSource
from swarm.evaluation.judge import tar_of

_MEND = "see to the set's files; a case may be left out with --only for the others"


async def base_of(case: Case, workspace: Workspace, *, limit: int) -> str:
    """The base commit; ``limit`` bounds its content in bytes. Raises EvaluationError."""
    try:
        begun = await workspace.begin(_files(case, limit), limit=limit)
    except WorkspaceError as error:
        raise EvaluationError(f"the repository of case {case.id!r} cannot be had: {error}", _MEND) from None
    if begun.left_out:
        raise EvaluationError(f"the repository of case {case.id!r} is not whole: {begun.left_out[0]}", _MEND)
    return begun.base


def _files(case: Case, limit: int) -> AsyncIterator[bytes]:
    match case.source:
        case GitSource(git=git, commit=commit):
            return Workspace(git).archive(commit)
        case FolderSource(folder=folder):
            return folder_stream(folder, limit=limit)
        case None:
            return tar_of(case.files)
