"""Sandboxes as Docker containers: on a local engine or a far one, of any image, with any runtime that proves itself.

Nothing of this machine is mounted into one on a far engine. A process that dies leaves its containers behind: they
carry its name and its machine, and are found again by these.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import platform
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from sandbox.base import Exit, Exits, Rescue
from sandbox.config import SandboxConfig
from sandbox.container.borrowed import Borrowed
from sandbox.container.cell import Box, ContainerCell, Tools
from sandbox.container.engine import Engine, Held, Image
from sandbox.container.facts import detail_of, refusal_of, users_mend
from sandbox.container.groups import empty
from sandbox.container.making import (
    MACHINE_LABEL,
    OWNER_LABEL,
    TOOLS_LABEL,
    for_stranger,
    labels_of,
    machine_of,
    settings_of,
    spec_of,
)
from sandbox.container.remote import way_to
from sandbox.errors import SandboxError, SandboxLostError, SandboxUnavailableError
from sandbox.line.launch import Start
from sandbox.line.programs import BORROWED
from sandbox.line.resident import ResidentSandbox, Setting, exits_of
from sandbox.mounts import resolved
from sandbox.owner import Owner, orphaned
from sandbox.probe import insist, prove
from sandbox.rules.profile import AGENT_UID, profile_of
from sandbox.types import LeftBehind, SandboxSpec, SelfTest

_LEAKED = range(3, 12)  # descriptors on the host's folders that a runtime with CVE-2024-21626 would leave open
_WHERE = """
import os
here, path = os.stat("."), os.readlink("/proc/self/cwd")
try:
    there = os.stat(path)
except OSError:
    there = None
print("inside" if there and os.path.samestat(here, there) else "outside")
"""
_FAREWELL = 60.0
_NO_EXITS: Exits = MappingProxyType({})
_T = TypeVar("_T")
_log = logging.getLogger(__name__)
_MEND = "look at the engine's version and control groups, or use bubblewrap"


class ContainerBackend:
    """Makes containers on the engine that DOCKER_HOST names. ``patience`` bounds the self-test, in seconds."""

    def __init__(
        self,
        config: SandboxConfig,
        owner: Owner,
        exits: Exits = _NO_EXITS,
        *,
        environment: Mapping[str, str] = os.environ,
        patience: float = 180.0,
    ) -> None:
        self._config = config
        self._owner = owner
        self._exits = exits
        self._environment = environment
        self._patience = patience
        self._machine = machine_of(_machine_id(), platform.node())
        self._held: tuple[Engine, Borrowed] | None = None
        self._info: dict[str, Any] | None = None
        self._proved: SelfTest | None = None
        self._ending: set[asyncio.Task[Any]] = set()
        self.fresh: Callable[[SandboxSpec], AbstractAsyncContextManager[ResidentSandbox]] = self.open

    @property
    def engine(self) -> Engine:
        """The engine, reached at first use. Raises SandboxUnavailableError for an address that cannot be used."""
        return self._engine_and_lent()[0]

    def _engine_and_lent(self) -> tuple[Engine, Borrowed]:
        if self._held is None:
            engine = Engine(way_to(self._environment))
            self._held = (engine, Borrowed(engine))
        return self._held

    async def close(self) -> None:
        """Wait for what is being removed, then let go of the engine."""
        if self._ending:
            await asyncio.wait(self._ending, timeout=_FAREWELL)
        if self._held is not None:
            await self._held[0].close()
        self._held = self._info = None

    async def ready(self) -> dict[str, str]:
        """Engine version, image id and what else the self-test tells. Raises SandboxUnavailableError with the mend."""
        try:
            version = await self.engine.version()
            self._info = await self.engine.info()
            image = await self.engine.image_id(self._config.image)
        except SandboxLostError as error:
            raise SandboxUnavailableError(str(error)) from error
        told = f"the Docker engine at {self.engine.told}"
        if image is None:
            raise SandboxUnavailableError(f"{told} has no image {self._config.image}; mend: scripts/build-image")
        if refusal := refusal_of(self._info, self._config.runtime):
            raise SandboxUnavailableError(f"{told} cannot be used: {refusal}")
        detail = detail_of(self._info, version, self._config.runtime)
        return {"version": f"docker {version['Version']}", "image": image, "api": version["ApiVersion"]} | detail

    async def self_test(self) -> SelfTest:
        """As the protocol says. What was proved once is answered again, while engine and image are there.

        A runtime that hangs cannot hold it up: after ``patience`` seconds it is left to its own end.
        """
        detail = await self.ready()
        if self._proved is not None:
            return self._proved
        proving = asyncio.create_task(self._prove(detail))
        try:
            done, _ = await asyncio.wait({proving}, timeout=self._patience)
        except asyncio.CancelledError:
            proving.cancel()
            raise
        if not done:
            proving.cancel()
            self._keep(proving)
            raise SandboxUnavailableError(
                f"the runtime {detail['runtime']} did not finish the self-test in {self._patience:g} s; mend: another "
                "runtime, and look for processes of it that spin"
            )
        self._proved = insist(proving.result(), _MEND)
        return self._proved

    async def _prove(self, detail: dict[str, str]) -> SelfTest:
        try:
            test = await prove(self, "docker", detail.pop("version"), detail)
            leaks = await self._leaks()
        except SandboxUnavailableError:
            raise
        except SandboxError as error:
            raise SandboxUnavailableError(f"containers do not work here: {error}") from error
        if leaks:
            return test.model_copy(update={"failed": (*test.failed, "no folder of the host left open by the runtime")})
        return test.model_copy(update={"proved": (*test.proved, "no folder of the host left open by the runtime")})

    async def _leaks(self) -> bool:
        """Whether a command can be started in a folder of the host by way of a descriptor that the runtime leaked."""
        async with self._cell(SandboxSpec()) as cell:
            for number in _LEAKED:
                argv, user = ["/usr/bin/python3", "-I", "-S", "-c", _WHERE], f"{AGENT_UID}:{AGENT_UID}"
                with contextlib.suppress(SandboxError):  # a mended runtime refuses to start it at all
                    _, said = await self.engine.ask(cell.name, argv, user, f"/proc/self/fd/{number}")
                    if said.strip() == b"outside":
                        return True
        return False

    @asynccontextmanager
    async def open(
        self, spec: SandboxSpec, workspace: AsyncIterator[bytes] | None = None
    ) -> AsyncIterator[ResidentSandbox]:
        """As the protocol says. Raises SandboxUnavailableError for an image that is not there: nothing is pulled."""
        exits = exits_of(spec, self._exits)
        async with self._cell(spec) as cell:
            sandbox = self._resident(cell, spec, exits)
            try:
                await sandbox.ping()
                await sandbox.adopt(spec.labels, workspace)
                yield sandbox
            finally:
                await sandbox.close()

    @asynccontextmanager
    async def _fork(self, origin: ResidentSandbox, spec: SandboxSpec) -> AsyncIterator[ResidentSandbox]:
        """A copy in another container, a warm one where ``fresh`` lends it."""
        async with self.fresh(spec) as copy:
            await origin.copy_to(copy)
            yield copy

    def _resident(self, cell: ContainerCell, spec: SandboxSpec, exits: tuple[Exit, ...]) -> ResidentSandbox:
        profile = profile_of(spec)
        start = Start(landlock=profile.landlock.model_dump(), tar=tuple(cell.tools.argv("tar")))
        return ResidentSandbox(cell, spec, Setting(profile, start, self._fork, exits))

    @asynccontextmanager
    async def _cell(self, spec: SandboxSpec) -> AsyncIterator[ContainerCell]:
        """A started container; whatever becomes of us, it is removed, even one that is still being made."""
        name = self._owner.new_name()
        making = self._keep(asyncio.create_task(self._make(name, spec)))
        try:
            yield await asyncio.shield(making)
        finally:
            await asyncio.shield(self._keep(asyncio.create_task(self._unmake(name, making))))

    def _keep(self, task: asyncio.Task[_T]) -> asyncio.Task[_T]:
        def ended(task: asyncio.Task[Any]) -> None:
            self._ending.discard(task)
            if not task.cancelled():
                task.exception()  # whoever waits for it is told; after a cancellation nobody does

        self._ending.add(task)
        task.add_done_callback(ended)
        return task

    async def _unmake(self, name: str, making: asyncio.Task[ContainerCell]) -> None:
        """Remove a container when it is made, or as far as it was made."""
        await asyncio.wait({making})
        made = making.exception() is None if not making.cancelled() else False
        with contextlib.suppress(SandboxUnavailableError):  # there is no engine, so there is no container either
            await self._remove(name, making.result().id if made else "")

    async def _remove(self, name: str, identity: str) -> None:
        with contextlib.suppress(SandboxLostError):  # gone already
            await self.engine.remove(name)
        if self.engine.local:
            await empty(identity)

    async def _make(self, name: str, spec: SandboxSpec) -> ContainerCell:
        engine, lent = self._engine_and_lent()
        if self._info is None:
            await self.ready()
        info, profile = self._info or {}, profile_of(spec)
        machine = str(info["Architecture"])  # the engine's, which may be another than ours
        settings = settings_of(profile, machine, runtime=self._config.runtime, shown=self._shown(engine))
        image, tools = self._config.image, Tools(machine=machine)
        if spec.image and (stranger := await self._stranger(spec.image)):
            base = await self._image(self._config.image)
            settings = for_stranger(settings, stranger, await lent.volume(base.id))
            image, tools = stranger.id, Tools(usr=BORROWED, machine=machine)
        settings |= {"labels": labels_of(self._owner.tag, self._machine, spec) | {TOOLS_LABEL: tools.usr}}
        try:
            identity = await engine.create(name, image, tools.argv("sleep", "infinity"), settings)
        except SandboxUnavailableError:
            raise
        except SandboxLostError:
            lent.forget()
            raise
        except SandboxError as error:
            raise SandboxError(f"no container could be made: {error}{users_mend(info)}") from error
        return ContainerCell(engine, Box(name=name, id=identity, quota=profile.cpu_quota, tools=tools))

    def _shown(self, engine: Engine) -> dict[str, str]:
        """The operator's folders. Raises SandboxUnavailableError on a far engine: the paths are of this machine."""
        if self._config.mounts and not engine.local:
            raise SandboxUnavailableError(
                f"sandbox.mounts names folders of this machine, but the engine is at {engine.told}; mend: take them out"
                ", put what they hold into an image, or use a local engine"
            )
        return resolved(self._config.mounts)

    async def _stranger(self, reference: str) -> Image | None:
        """The image, unless it is the project's own by another name."""
        image = await self._image(reference)
        return image if image.id != (await self._image(self._config.image)).id else None

    async def _image(self, reference: str) -> Image:
        image = await self.engine.image(reference)
        if image is None:
            mend = "scripts/build-image" if reference == self._config.image else f"docker pull {reference}"
            raise SandboxUnavailableError(f"the Docker engine has no image {reference}; mend: {mend}")
        return image

    # What earlier processes left

    async def left_behind(self) -> tuple[LeftBehind, ...]:
        """As the protocol says; of containers that were made on this machine, for no other's processes can be seen."""
        return tuple(
            LeftBehind(
                name=held.name,
                labels=spec_of(held.labels).labels,
                created=held.created,
                living=held.living,
                ours=held.labels.get(OWNER_LABEL) == self._owner.tag,
            )
            for held in await self._orphans()
        )

    async def sweep(self, rescue: Rescue | None = None, only: Collection[str] | None = None) -> int:
        """As the protocol says. Borrowed programs of base images that are gone are removed as well."""
        removed = 0
        for held in await self._orphans():
            ours = held.labels.get(OWNER_LABEL) == self._owner.tag
            if not (ours if only is None else held.name in only):
                continue
            if rescue is not None and ours and held.living and not await self._rescued(held, rescue):
                continue
            await self._remove(held.name, held.id)
            removed += 1
        await self._engine_and_lent()[1].tidy()
        return removed

    async def _orphans(self) -> list[Held]:
        found = await self.engine.containers(OWNER_LABEL)
        mine = [held for held in found if held.labels.get(MACHINE_LABEL) == self._machine and orphaned(held.name)]
        return sorted(mine, key=lambda held: held.created)

    async def _rescued(self, held: Held, rescue: Rescue) -> bool:
        """Offer an orphan's workspace through a new supervisor. Whatever goes wrong, the container stays."""
        spec = spec_of(held.labels)
        left = LeftBehind(name=held.name, labels=spec.labels, created=held.created, living=True, ours=True)
        try:
            cell = await self._found(held, spec)
            await cell.clear()
            sandbox = self._resident(cell, spec, ())
            try:
                await rescue(left, sandbox.export())
            finally:
                await sandbox.close()
        except Exception as error:  # noqa: BLE001 - the next one must have its turn, and this one is not removed
            _log.warning("the workspace of %s could not be rescued, so it stays: %s", held.name, error)
            return False
        return True

    async def _found(self, held: Held, spec: SandboxSpec) -> ContainerCell:
        """The cell of a container that another process made."""
        usr = held.labels.get(TOOLS_LABEL, "/usr")
        info = self._info or await self.engine.info()
        tools = Tools(usr=BORROWED if usr == BORROWED else "/usr", machine=str(info["Architecture"]))
        box = Box(name=held.name, id=held.id, quota=profile_of(spec).cpu_quota, tools=tools)
        return ContainerCell(self.engine, box)


def _machine_id() -> str:
    try:
        return Path("/etc/machine-id").read_text()
    except OSError:
        return ""
