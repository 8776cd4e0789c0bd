"""Runs a set-up and writes what it left into a folder: the layer, its index, and the digests of both."""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path

from sandbox.base import Sandbox, SandboxBackend
from sandbox.errors import SetUpError
from sandbox.images.home import SPARE, last_lines, pack_home
from sandbox.images.layer import HOME_TAR, Index, layer_of, part_of
from sandbox.images.setup import SetUp, counting
from sandbox.types import Command, Outcome, SandboxSpec

LAYER_TAR, INDEX, FACTS = "layer.tar", "index.json", "facts.json"
Denials = Callable[[Mapping[str, str]], tuple[str, ...]]
Heard = Callable[[str, float | None], Awaitable[None]]  # words about a set-up, and the seconds that it took
_CHUNK = 1 << 20
_SHOWN = 500  # characters of a command, to whoever waits for it
# What is unpacked on the way to being installed is larger than a sandbox's /tmp.
_ROOMY = f'export TMPDIR="$HOME/{SPARE}"; mkdir -p -- "$TMPDIR"; exec /bin/sh -c "$1"'


async def unheard(words: str, seconds: float | None) -> None:
    """Nobody waits for it."""


@dataclass(frozen=True)
class Checkout:
    """A tree to work on: what each file is, a tar stream of it, made anew at each call, and the ``commit`` of its .git.

    What a file is: git's mode and its name of the content.
    """

    paths: Mapping[bytes, str]
    stream: Callable[[], AsyncIterator[bytes]]
    commit: str = ""


@dataclass(frozen=True)
class Maker:
    """Runs set-ups on one backend. ``denied`` tells what egress refused the sandbox with these labels."""

    backend: SandboxBackend
    denied: Denials

    async def make(self, spec: SandboxSpec, base: Checkout, setup: SetUp, folder: Path, heard: Heard = unheard) -> None:
        """Set up in a sandbox of its own, and fill ``folder``; ``heard`` is told of each command that begins.

        Raises SetUpError, and what the backend and ``heard`` raise.
        """
        if HOME_TAR in base.paths:
            raise SetUpError(
                f"the repository tracks {HOME_TAR.decode()}, the name under which a set-up keeps its $HOME"
            )
        limits = spec.limits.model_copy(update={"wall": max(spec.limits.wall, setup.seconds)})
        labels = spec.labels | {"kind": "setup"}
        own = spec.model_copy(update={"limits": limits, "network": setup.network, "labels": labels})
        async with self.backend.open(own, _seen(base, setup)) as sandbox:
            await self._run(sandbox, setup, labels, heard)
            await pack_home(sandbox)
            index = Index()
            layer = layer_of(sandbox.export(), base.paths.keys(), index, limit=spec.limits.disk)
            digest = await _written(layer, folder / LAYER_TAR)
        (folder / INDEX).write_text(index.dumps())
        facts = {"layer": digest, "index": _digest(folder / INDEX), "commands": setup.commands}
        (folder / FACTS).write_text(json.dumps(facts))

    async def _run(self, sandbox: Sandbox, setup: SetUp, labels: Mapping[str, str], heard: Heard) -> None:
        until = time.monotonic() + setup.seconds
        for command in setup.commands:
            await heard(f"set-up: {command[:_SHOWN]}", None)
            argv = ("/bin/sh", "-c", _ROOMY, "sh", command)
            outcome = await sandbox.run(Command(argv=argv, timeout=max(0.1, until - time.monotonic())))
            if outcome.exit_code:
                raise SetUpError(_failure(command, outcome, self.denied(labels)))


def _seen(base: Checkout, setup: SetUp) -> AsyncIterator[bytes]:
    """What the set-up sees of the base: no more than its key covers."""
    return base.stream() if setup.inputs is None else part_of(base.stream(), counting(setup, base.paths))


def stamp_of(folder: Path) -> tuple[tuple[int, int], ...] | None:
    """What tells whether the files of a layer's folder were touched; None where one is missing."""
    try:
        return tuple((each.stat().st_ino, each.stat().st_mtime_ns) for each in map(folder.joinpath, (LAYER_TAR, INDEX)))
    except OSError:
        return None


def intact(folder: Path) -> bool:
    """Whether a layer's folder holds what was written."""
    try:
        facts = json.loads((folder / FACTS).read_text())
        return bool(facts["layer"] == _digest(folder / LAYER_TAR) and facts["index"] == _digest(folder / INDEX))
    except (OSError, ValueError, KeyError, TypeError):
        return False


def index_in(folder: Path) -> Index:
    """The index of a layer that is `intact`."""
    return Index.loads((folder / INDEX).read_text())


async def layer_in(folder: Path) -> AsyncGenerator[bytes, None]:
    """The layer as a tar stream."""
    with (folder / LAYER_TAR).open("rb") as file:
        while chunk := file.read(_CHUNK):
            yield chunk
            await asyncio.sleep(0)


def _failure(command: str, outcome: Outcome, denied: tuple[str, ...]) -> str:
    """The words of a failed set-up: the command, how it ended, what it said last, and what it was not let to reach."""
    how = f"ended with status {outcome.exit_code}"
    if outcome.timed_out:
        how = f"was stopped after {outcome.seconds:.0f} s"
    elif outcome.out_of_memory:
        how = "ran out of memory"
    refused = f"\nnot let through: {', '.join(denied[:20])}" if denied else ""
    return f"the set-up command {command!r} {how}; it said last:\n{last_lines(outcome)}{refused}"


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


async def _written(stream: AsyncGenerator[bytes, None], path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("wb") as file:
        async with aclosing(stream):
            async for chunk in stream:
                digest.update(chunk)
                file.write(chunk)
    return digest.hexdigest()
