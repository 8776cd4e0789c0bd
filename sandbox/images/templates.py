"""Lays a kept layer into sandboxes: by forking a template that holds it, or into a fresh one, whichever costs less."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import time
from collections import OrderedDict
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, field
from pathlib import Path

from sandbox.base import Sandbox, SandboxBackend
from sandbox.errors import SandboxError, SandboxLostError
from sandbox.images.home import unpack_home
from sandbox.images.layer import Index, layer_of
from sandbox.images.making import Checkout, layer_in
from sandbox.types import SandboxSpec

_PLAIN = 256  # layers of which is remembered that forking them is no gain


@dataclass(frozen=True)
class Layer:
    """A kept layer in use."""

    name: str
    folder: Path
    index: Index


@dataclass
class Template:
    """A sandbox that holds a layer and is only forked. Seconds."""

    name: str
    sandbox: Sandbox
    stack: AsyncExitStack
    filled: float
    forked: float = 0.0
    forks: int = 0
    users: int = 0

    def let_go(self) -> None:
        """One user less."""
        self.users -= 1

    @property
    def worth_it(self) -> bool:
        """Whether a fork has cost less than a fresh sandbox with the layer laid in."""
        return not self.forks or self.forked / self.forks < self.filled


@dataclass
class Templates:
    """At most ``most`` of them, the least recently used going first, none while it is in use."""

    backend: SandboxBackend
    most: int
    ready: OrderedDict[str, Template] = field(default_factory=OrderedDict)
    _plain: OrderedDict[str, None] = field(default_factory=OrderedDict)
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def fork(self, spec: SandboxSpec, layer: Layer, stack: AsyncExitStack) -> Sandbox | None:
        """A sandbox with the layer in it, open until ``stack`` ends; None where none is worth it, or free."""
        template = await self._get(spec, layer)
        if template is None:
            return None
        stack.callback(template.let_go)
        began = time.monotonic()
        try:
            sandbox = await stack.enter_async_context(template.sandbox.fork(spec.labels))
        except SandboxLostError:
            async with self._turn:
                self.ready.pop(template.name, None)
            with contextlib.suppress(SandboxError):
                await template.stack.aclose()
            return None
        template.forked += time.monotonic() - began
        template.forks += 1
        return sandbox

    async def close(self) -> None:
        """Let go of all."""
        async with self._turn:
            ready, self.ready = list(self.ready.values()), OrderedDict()
        for template in ready:
            await template.stack.aclose()

    async def _get(self, spec: SandboxSpec, layer: Layer) -> Template | None:
        """The template of this layer for such sandboxes, in use until it is let go."""
        shape = spec.model_copy(update={"labels": {}}).model_dump_json()
        name = hashlib.sha256(f"{layer.name} {shape}".encode()).hexdigest()
        async with self._turn:
            if self.most < 1 or name in self._plain:
                return None
            template = self.ready.get(name)
            if template is None:
                await self._drop(most=self.most - 1)
                if len(self.ready) >= self.most:
                    return None  # all are in use
                self.ready[name] = template = await self._made(name, spec, layer)
            self.ready.move_to_end(name)
            if not template.worth_it:
                await self._give_up(template)
                return None
            template.users += 1
            return template

    async def _made(self, name: str, spec: SandboxSpec, layer: Layer) -> Template:
        async with AsyncExitStack() as stack:
            own = spec.model_copy(update={"labels": {"kind": "template"}})
            began = time.monotonic()
            sandbox = await stack.enter_async_context(self.backend.open(own))
            await fill(sandbox, layer, None, limit=spec.limits.disk)
            filled = time.monotonic() - began
            return Template(name, sandbox, stack.pop_all(), filled)

    async def _give_up(self, template: Template) -> None:
        """From now on such sandboxes get the layer laid in."""
        self._plain[template.name] = None
        while len(self._plain) > _PLAIN:
            self._plain.popitem(last=False)
        if not template.users:
            del self.ready[template.name]
            await template.stack.aclose()

    async def _drop(self, *, most: int) -> None:
        for name, template in list(self.ready.items()):
            if len(self.ready) <= most:
                return
            if not template.users:
                del self.ready[name]
                with contextlib.suppress(SandboxError):
                    await template.stack.aclose()


async def fill(sandbox: Sandbox, layer: Layer, over: Checkout | None, *, limit: int) -> None:
    """Lay a layer into a sandbox, less what disagrees with a checkout that is there already."""
    async with aclosing(layer_in(layer.folder)) as stream:
        if over is None:
            await sandbox.unpack(stream)
        else:
            await sandbox.unpack(layer_of(stream, over.paths.keys(), Index(), limit=limit))
    await unpack_home(sandbox)
