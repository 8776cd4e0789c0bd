"""`swarm sandbox shell`: a sandbox with a copy of a folder, and a prompt inside it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperCommand

from sandbox.base import Sandbox
from sandbox.trees.folder import folder_stream
from sandbox.trees.gitdir import untracked
from sandbox.trees.workspace import Workspace
from sandbox.types import SealedTree
from swarm.cli import door, screen
from swarm.cli.door import ConfigOption
from swarm.cli.sandbox import session
from swarm.cli.sandbox.copies import copy_folder
from swarm.cli.sandbox.ending import in_order
from swarm.cli.sandbox.given import (
    BackendOption,
    ImageOption,
    NetworkName,
    NetworkOption,
    backend_of,
    exits_of,
    insist_here,
    own_state,
    realised,
    settings_of,
    spec_of,
)
from swarm.config import Settings
from swarm.errors import ConfigError

_COMMAND = "swarm.sandbox.command"


class WithCommand(TyperCommand):
    """Takes what follows ``--`` as a command of its own, options and all."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Split at the first ``--``."""
        if "--" in args:
            at = args.index("--")
            ctx.meta[_COMMAND], args = tuple(args[at + 1 :]), args[:at]
        return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """The usual ones, and the command."""
        return [*super().collect_usage_pieces(ctx), "[-- COMMAND...]"]


class Wish(NamedTuple):
    """What to open, and where the changes go."""

    folder: Path | None
    keep: Path | None
    backend: BackendOption
    network: NetworkName
    image: str | None
    command: tuple[str, ...]
    stdin: bool


def shell(
    ctx: typer.Context,
    folder: Annotated[
        Path | None,
        typer.Argument(
            help="Folder to copy in: what a git checkout tracks, else all of it. Without it the sandbox is empty.",
            metavar="DIR",
            show_default=False,
        ),
    ] = None,
    backend: BackendOption = None,
    network: NetworkOption = NetworkName.NONE,
    image: ImageOption = None,
    keep: Annotated[
        Path | None,
        typer.Option(
            "--keep",
            metavar="FILE",
            show_default=False,
            help="Write what changed there, as a patch; it must lie outside DIR.",
        ),
    ] = None,
    stdin: Annotated[
        bool, typer.Option("--stdin", "-i", help="Give COMMAND what is piped in, to its end; at most 64 MiB.")
    ] = False,
    config: ConfigOption = None,
) -> None:
    """Open a sandbox as agents get it, and type commands into it; or run one COMMAND and leave.

    DIR itself is never touched: the sandbox has a copy, which goes at the end.
    Folder and variables last from line to line; output comes whole, standard output and error as one.
    Ctrl-C ends the running command; exit, or Ctrl-D, leaves.
    The exit code is that of the last command.
    """
    settings = settings_of(ctx, config)
    wish = Wish(folder, keep, backend, network, image, ctx.meta.get(_COMMAND, ()), stdin)
    if folder is not None and not folder.is_dir():
        raise ConfigError(f"{folder} is no folder", "name the one whose copy is wanted, or none for an empty sandbox")
    if image is not None:
        insist_here(image)
    if stdin and not wish.command:
        raise ConfigError("--stdin is for one command: lines come from standard input already", "add: -- COMMAND")
    if keep is not None:
        _may_be_written(keep, folder)
    raise typer.Exit(door.run(in_order(_opened(settings, wish))))


async def _opened(settings: Settings, wish: Wish) -> int:
    limit = settings.sandbox.limits.disk
    exits_of(settings, wish.network)  # before anything is copied
    given = await session.piped_in() if wish.stdin else b""
    with copy_folder(own_state(settings)) as own:
        workspace = Workspace(own / "git")
        base = await _copied(workspace, wish.folder, limit) if wish.folder else None
        async with _sandbox(settings, wish, workspace, base) as box:
            code = await session.command(box, wish.command, given) if wish.command else await session.lines(box)
            if wish.keep and base:
                await _write_patch(workspace, box, base, wish.keep, limit)
    return code


async def _copied(workspace: Workspace, folder: Path, limit: int) -> SealedTree:
    """A commit of the folder; a person who waits for it is told why, and what of it stays out."""
    telling = asyncio.get_running_loop().call_later(1, _say_copying, folder)
    try:
        base = await workspace.begin(folder_stream(folder, limit=limit), limit=limit)
    finally:
        telling.cancel()
    for note in base.left_out[:20]:
        screen.hint(f"left out: {note}")
    if count := await untracked(folder):
        stay = "1 untracked file or folder stays" if count == 1 else f"{count} untracked files or folders stay"
        screen.hint(f"{stay} out; git add what the sandbox is to have")
    return base


def _say_copying(folder: Path) -> None:
    if sys.stderr.isatty():
        screen.hint(f"copying {folder} ...")


@asynccontextmanager
async def _sandbox(
    settings: Settings, wish: Wish, workspace: Workspace, base: SealedTree | None
) -> AsyncIterator[Sandbox]:
    async with backend_of(settings, wish.backend, wish.network) as backend:
        test = await backend.self_test()
        async with (
            realised(settings, backend, test.backend, spec_of(settings, wish.network), wish.image) as spec,
            backend.open(spec, workspace.checkout(base.base) if base else None) as box,
        ):
            if sys.stdin.isatty() and not wish.command:
                screen.hint(
                    f"a {test.backend} sandbox ({len(test.proved)} claims proved), network {wish.network.value}, "
                    f"{spec.limits.wall:g} s a command; "
                    + (f"changes go to {wish.keep}" if wish.keep else "what you change in it is gone at the end")
                )
            yield box


async def _write_patch(workspace: Workspace, box: Sandbox, base: SealedTree, keep: Path, limit: int) -> None:
    sealed = await workspace.seal(base.base, box.export(), limit=limit)
    for note in sealed.left_out:
        screen.hint(f"not in the patch: {note}")
    if not sealed.changed:
        screen.hint(f"nothing was changed, so there is no {keep}")
        return
    data = await workspace.patch(base.base, sealed.tree)
    try:
        with keep.open("xb") as file:
            file.write(data)
    except OSError as error:
        raise ConfigError(f"{keep} cannot be written: {error.strerror}", "give --keep a new file elsewhere") from error
    screen.hint(f"{_files(len(sealed.files))} in {keep}; look at it, then: git apply {keep}")


def _files(count: int) -> str:
    return "1 changed file is" if count == 1 else f"{count} changed files are"


def _may_be_written(keep: Path, folder: Path | None) -> None:
    """Raises ConfigError for a patch that could not be kept, before any work is done."""
    if folder is None:
        raise ConfigError("--keep needs a DIR whose changes it could keep", "swarm sandbox shell DIR --keep FILE")
    place = keep.expanduser().absolute().parent.resolve()
    if not place.is_dir():
        raise ConfigError(f"the folder {place} is not there", "make it, or give --keep another FILE")
    if place.is_relative_to(folder.absolute().resolve()):
        raise ConfigError(
            f"{keep} lies inside {folder}, which is never written to", f"for example --keep ../{keep.name}"
        )
    if keep.exists() or keep.is_symlink():
        raise ConfigError(f"{keep} is there already", "give --keep a new file")
