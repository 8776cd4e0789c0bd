"""Opens sandboxes in which a repository's set-up has been done: made once, kept as a layer, laid into each sandbox.

The set-up runs in a sandbox of its own, the only one that reaches the package registries. Tasks get what it left in
another one. Works with any backend.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from sandbox.base import Sandbox, SandboxBackend
from sandbox.errors import SandboxError
from sandbox.images.layer import HOME_TAR, Index
from sandbox.images.making import Checkout, Denials, Heard, Maker, index_in, intact, stamp_of, unheard
from sandbox.images.setup import Ground, SetUp, key_of
from sandbox.images.shelf import Shelf
from sandbox.images.templates import Layer, Templates, fill
from sandbox.types import SandboxSpec

LAYER = "layer"  # label that names what was laid into a sandbox
_KEY = re.compile(r"[0-9a-f]{64}")
_SEEN = 256


@dataclass(frozen=True)
class Prepared:
    """An open sandbox. ``furniture`` is what the set-up put there, no part of the work; None without a set-up."""

    sandbox: Sandbox
    furniture: Index | None = None


class Preparer:
    """Over one backend."""

    def __init__(
        self,
        backend: SandboxBackend,
        shelf: Shelf,
        *,
        templates: int = 2,
        told: Callable[[str], None] = lambda _: None,
        denied: Denials = lambda _: (),
    ) -> None:
        """``told`` hears the commands of a set-up that begins; ``denied`` tells what egress refused it."""
        self.shelf = shelf
        self.templates = Templates(backend, templates)
        self._backend = backend
        self._maker = Maker(backend, denied)
        self._told = told
        self._seen: OrderedDict[str, tuple[tuple[int, int], ...]] = OrderedDict()

    @asynccontextmanager
    async def open(
        self,
        spec: SandboxSpec,
        checkout: Checkout,
        setup: SetUp,
        ground: Ground,
        base: Checkout | None = None,
        *,
        heard: Heard = unheard,
    ) -> AsyncIterator[Prepared]:
        """A sandbox with the checkout and what the set-up made of ``base`` (default: of the checkout itself).

        ``heard`` is told, as it happens, what this one waits for. Raises SetUpError where the set-up fails, and what
        the backend and ``heard`` raise.
        """
        if not setup.commands:
            async with self._backend.open(spec, checkout.stream()) as sandbox:
                yield Prepared(sandbox)
            return
        async with AsyncExitStack() as stack:
            layer = await stack.enter_async_context(self._layer(spec, base or checkout, setup, ground, heard))
            spec = spec.model_copy(update={"labels": spec.labels | {LAYER: layer.name}})
            sandbox = await self._laid(spec, checkout, layer, stack)
            await _exclude(sandbox, layer.index)
            yield Prepared(sandbox, layer.index)

    def furniture(self, layer: str) -> Index | None:
        """What a layer put into a workspace, by the label of its sandbox; None where it is not kept any more."""
        place = self.shelf.folder / layer
        return index_in(place) if _KEY.fullmatch(layer) and self._sound(place) else None

    async def close(self) -> None:
        """Let go of the templates."""
        await self.templates.close()

    @asynccontextmanager
    async def _layer(
        self, spec: SandboxSpec, base: Checkout, setup: SetUp, ground: Ground, heard: Heard
    ) -> AsyncIterator[Layer]:
        began, made = time.monotonic(), False

        async def make(folder: Path) -> None:
            nonlocal made
            made = True
            self._told("; ".join(setup.commands))
            await self._maker.make(spec, base, setup, folder, heard)

        name = key_of(setup, ground, base.paths, spec.env, base.commit)
        if waits := self.shelf.making(name):
            await heard("set-up: waits for another task that is making the same", None)
        async with self.shelf.hold(name, make, self._sound) as folder:
            how = "done and kept" if made else "made by another task" if waits else "taken from the cache"
            await heard(f"set-up {how}", round(time.monotonic() - began, 3))
            yield Layer(name, folder, await asyncio.to_thread(index_in, folder))

    async def _laid(self, spec: SandboxSpec, checkout: Checkout, layer: Layer, stack: AsyncExitStack) -> Sandbox:
        """The checkout over a template's fork; the layer over a checkout where they disagree or that costs less."""
        disagrees = layer.index.disagrees(checkout.paths)
        forked = None if disagrees else await self.templates.fork(spec, layer, stack)
        if forked is not None:
            await forked.unpack(checkout.stream())
            return forked
        fresh = await stack.enter_async_context(self._backend.open(spec, checkout.stream()))
        await fill(fresh, layer, checkout if disagrees else None, limit=spec.limits.disk)
        return fresh

    def _sound(self, folder: Path) -> bool:
        """Whether a kept layer is what was written; read whole once, then again only when its files look different."""
        if (stamp := stamp_of(folder)) is None:
            return False
        if self._seen.get(folder.name) != stamp:
            if not intact(folder):
                return False
            while len(self._seen) >= _SEEN:
                self._seen.popitem(last=False)
            self._seen[folder.name] = stamp
        return True


async def _exclude(sandbox: Sandbox, index: Index) -> None:
    """Tell git inside that these are no part of the work; only a comfort, sealing does not look there."""
    roots = [root for root in index.roots() if b"\n" not in root and root != HOME_TAR]
    lines = b"".join(b"/" + _escaped(root) + b"\n" for root in roots)
    with contextlib.suppress(SandboxError):
        await sandbox.write(".git/info/exclude", lines)


def _escaped(path: bytes) -> bytes:
    return b"".join(b"\\" + bytes([c]) if c in b"\\*?[ !#" else bytes([c]) for c in path)
