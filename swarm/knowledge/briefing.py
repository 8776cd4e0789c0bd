"""What an attempt is told of its repository, and by which command its change is checked: read at the base commit."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

from sandbox.base import Sandbox
from sandbox.trees.workspace import Workspace
from swarm.checks import Rules
from swarm.config import RepositoryConfig
from swarm.errors import DiscoveryError
from swarm.knowledge.cleaning import line
from swarm.knowledge.ecosystems import LIMIT, Environment, Files, deciding, environment
from swarm.knowledge.proving import Proved, prove
from swarm.knowledge.reading import read_guides
from swarm.knowledge.shelf import Shelf, digest
from swarm.knowledge.workflows import hints
from swarm.known import Known

_NOTHING = RepositoryConfig()


@dataclass(frozen=True)
class Ground:
    """A repository at its base commit, in the trusted git directory."""

    workspace: Workspace
    repository: str
    base: str


@dataclass(frozen=True)
class Briefer:
    """Over the repositories' settings; ``shelf`` keeps what was proved."""

    repositories: Mapping[str, RepositoryConfig]
    shelf: Shelf

    async def known(self, ground: Ground, looked_at: Sequence[str]) -> Known:
        """`known_of` with the repository's settings. Raises WorkspaceError."""
        return await known_of(ground, looked_at, self.repositories.get(ground.repository, _NOTHING))

    def rules(self, repository: str, *, released: bool) -> Rules:
        """How a change to its tests is judged; ``released`` where a person let the task change them."""
        settings = self.repositories.get(repository, _NOTHING)
        return Rules(refuse_weakened=settings.weakened_tests == "refuse", released=released)

    async def command(
        self, ground: Ground, fresh: Callable[[], AbstractAsyncContextManager[Sandbox]], *, seconds: float | None = None
    ) -> tuple[Proved, bool]:
        """The test command that the base suggests and that was seen to run there; and whether that was known already.

        Raises DiscoveryError where none of those that were tried runs tests, SandboxError and WorkspaceError.
        """
        settings = self.repositories.get(ground.repository, _NOTHING)
        paths = {
            path.decode("utf-8", "replace"): blob for path, blob in (await ground.workspace.paths(ground.base)).items()
        }
        names = deciding(paths)
        how = settings.model_dump(mode="json", include={"image", "setup", "setup_inputs", "devcontainer"})
        key = digest({name: paths[name] for name in names}, how)
        if (kept := self.shelf.load(ground.repository, key)) is not None:
            return kept, True
        suggested = (await environment_of(ground)).tests
        ready = bool(settings.setup or settings.devcontainer)
        suggested = tuple(sorted(suggested, key=lambda each: each.installed != ready))
        found, tried = await prove(fresh, suggested, **({} if seconds is None else {"seconds": seconds}))
        if found is None:
            went = "; ".join(f"{each.command}: {each.went}" for each in tried) or "its files suggest none"
            raise DiscoveryError(
                f"no test command was found that runs on the base of {ground.repository} ({went})",
                f"set repositories.{ground.repository}.test_command, and its setup, in swarm.toml; try them with: "
                "swarm repository examine",
            )
        self.shelf.keep(ground.repository, key, found)
        return found, False


async def environment_of(ground: Ground) -> Environment:
    """What a repository's files at its base suggest. Raises WorkspaceError."""
    return await asyncio.to_thread(environment, await _files(ground))  # a hostile file takes a second to be read


async def known_of(ground: Ground, looked_at: Sequence[str], settings: RepositoryConfig = _NOTHING) -> Known:
    """The repository's own words and what its files suggest, for a task about these paths. Raises WorkspaceError."""
    chosen = None if settings.guides is True else settings.guides or ()
    guides = await read_guides(ground.workspace, ground.base, looked_at, chosen) if chosen != () else ()
    files = await _files(ground)
    found = await asyncio.to_thread(environment, files)
    return Known(guides=guides, notes=notes(found, hints(_workflows(files)), settings))


def notes(found: Environment, workflows: Sequence[str], settings: RepositoryConfig) -> tuple[str, ...]:
    """Facts for the agent, one a line, cleaned: they hold words of the repository."""
    lines = []
    if settings.setup:
        lines.append(f"Before you began, this was run to install what it needs: {'; '.join(settings.setup)}")
    if found.tests:
        told = ", ".join(f"{each.command} (by {each.why})" for each in found.tests[:4])
        lines.append(f"Its files suggest these commands for its tests: {told}")
    if workflows:
        lines.append(f"Its continuous integration runs: {'; '.join(workflows)}")
    return tuple(line(each, 600) for each in lines)


async def _files(ground: Ground) -> Files:
    paths = frozenset(path.decode("utf-8", "replace") for path in await ground.workspace.paths(ground.base))
    names = [name.encode() for name in deciding(paths)]
    read = await ground.workspace.heads(ground.base, names, limit=LIMIT)
    return Files({path.decode(): data.decode("utf-8", "replace") for path, data in read.items()}, paths)


def _workflows(files: Files) -> dict[str, str]:
    return {path: text for path, text in files.texts.items() if path.endswith((".yml", ".yaml"))}
