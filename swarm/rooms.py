"""Opens the sandboxes of a repository as its settings want them: on its image, with what its set-up installs."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

from sandbox.base import SandboxBackend
from sandbox.errors import SandboxError
from sandbox.images.devcontainer import PLACES, DevContainer, read_devcontainer
from sandbox.images.making import Checkout, Heard, unheard
from sandbox.images.prepare import LAYER, Prepared, Preparer
from sandbox.images.realise import Realised, Realiser
from sandbox.images.setup import Ground, SetUp
from sandbox.images.sources import ImageSource, source_of
from sandbox.rules.profile import ENVIRONMENT
from sandbox.trees.sealing import Furniture
from sandbox.trees.workspace import Workspace
from sandbox.types import SandboxSpec
from swarm.config import RepositoryConfig

log = logging.getLogger(__name__)

_DEVCONTAINER_LIMIT = 256 * 1024
_HEARD = 256
_NOTHING = RepositoryConfig()
_KEPT = frozenset(ENVIRONMENT) - {"PATH", "LANG"}  # of ours, whatever an image sets


@dataclass(frozen=True)
class Tree:
    """A tree of a repository, made on ``base``; what has to be set up is read from the base, never from the tree."""

    workspace: Workspace
    repository: str
    base: str
    tree: str


@dataclass(frozen=True)
class _Wanted:
    """What settings and devcontainer.json come to. ``chosen_inside``: the repository named the source."""

    setup: SetUp
    source: ImageSource | None = None
    chosen_inside: bool = False
    container: DevContainer = field(default_factory=DevContainer)


@dataclass
class Rooms:
    """Over one backend. ``ground`` is that of sandboxes on the installation's own image."""

    backend: SandboxBackend
    preparer: Preparer
    realiser: Realiser
    ground: Ground
    repositories: Mapping[str, RepositoryConfig]
    _heard: dict[str, None] = field(default_factory=dict)

    @asynccontextmanager
    async def open(
        self, spec: SandboxSpec, tree: Tree, more: SetUp | None = None, heard: Heard = unheard
    ) -> AsyncIterator[Prepared]:
        """A sandbox with the tree in it, set up; ``more`` is set up besides. ``heard`` is told what that waits for.

        Raises SandboxError of every kind, and what ``heard`` raises.
        """
        known = self.repositories.get(tree.repository, _NOTHING)
        if not (known.image or known.setup or known.devcontainer or more):
            async with self.backend.open(spec, tree.workspace.checkout_tree(tree.tree, tree.base)) as sandbox:
                yield Prepared(sandbox)
            return
        base = await _checkout(tree, tree.base)
        wanted = await self._wanted(known, tree, base)
        async with AsyncExitStack() as stack:
            ground = self.ground
            if wanted.source is not None:
                judged = base if wanted.chosen_inside else None
                image = await stack.enter_async_context(self.realiser.realise(wanted.source, judged))
                ground = ground.model_copy(update={"system": image.system})
                spec = on_image(spec, image)
            own = wanted.container.environment({**ENVIRONMENT, **spec.env})
            spec = spec.model_copy(update={"env": {**spec.env, **own}})
            here = base if tree.tree == tree.base else await _checkout(tree, tree.tree)
            setup = wanted.setup.then(more)
            yield await stack.enter_async_context(self.preparer.open(spec, here, setup, ground, base, heard=heard))

    def furniture(self, labels: Mapping[str, str]) -> Furniture | None:
        """What a set-up had put into a sandbox with these labels; None where nothing had.

        Raises SandboxError where that is not kept any more: nobody can tell it from work then.
        """
        if (layer := labels.get(LAYER)) is None:
            return None
        if (found := self.preparer.furniture(layer)) is None:
            raise SandboxError(f"what its set-up had put there is not kept any more (layer {layer[:12]})")
        return found

    async def close(self) -> None:
        """Let go of what is held ready."""
        await self.preparer.close()

    async def _wanted(self, known: RepositoryConfig, tree: Tree, base: Checkout) -> _Wanted:
        setup = SetUp(
            commands=known.setup,
            inputs=known.setup_inputs or None,
            network=known.setup_network,
            seconds=known.setup_seconds,
        )
        source = source_of(known.image) if known.image else None
        if not known.devcontainer:
            return _Wanted(setup, source)
        container = await self._container(tree, base)
        if not setup.commands:
            setup = setup.model_copy(update={"commands": container.commands})
        return _Wanted(setup, source or container.source, source is None, container)

    async def _container(self, tree: Tree, base: Checkout) -> DevContainer:
        for place in PLACES:
            if place.encode() in base.paths:
                data = await tree.workspace.file(tree.base, place.encode(), limit=_DEVCONTAINER_LIMIT)
                container = read_devcontainer((data or b"").decode("utf-8", "replace"), place)
                self._tell(tree.repository, container)
                return container
        return DevContainer()

    def _tell(self, repository: str, container: DevContainer) -> None:
        """Say once what a repository asked for and does not get."""
        for line in container.told:
            if (said := f"{repository}: {line}") not in self._heard:
                while len(self._heard) >= _HEARD:
                    del self._heard[next(iter(self._heard))]
                self._heard[said] = None
                log.warning("%s", said)


def on_image(spec: SandboxSpec, image: Realised) -> SandboxSpec:
    """The spec with an image, and the variables that come along with it."""
    inherited = {name: value for name, value in image.env.items() if name not in _KEPT}
    return spec.model_copy(update={"image": image.image, "env": inherited | spec.env})


async def _checkout(tree: Tree, which: str) -> Checkout:
    return Checkout(
        paths=await tree.workspace.paths(which),
        stream=lambda: tree.workspace.checkout_tree(which, tree.base),
        commit=tree.base,
    )
