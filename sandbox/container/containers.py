"""Makes and removes containers on one engine; none is forgotten, whoever is cancelled, whenever the engine restarts."""

from __future__ import annotations

import asyncio
import contextlib
import platform
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from sandbox.config import SandboxConfig
from sandbox.container.borrowed import Borrowed
from sandbox.container.cell import Box, ContainerCell, Tools
from sandbox.container.engine import Engine, Held, Image
from sandbox.container.facts import refusal_of, users_mend
from sandbox.container.groups import empty
from sandbox.container.making import TOOLS_LABEL, for_stranger, labels_of, machine_of, settings_of, uid_of
from sandbox.errors import SandboxError, SandboxLostError, SandboxUnavailableError
from sandbox.finishing import Finishing
from sandbox.line.programs import BORROWED
from sandbox.mounts import resolved
from sandbox.owner import Owner
from sandbox.rules.profile import profile_of
from sandbox.rules.uids import Uids
from sandbox.types import SandboxSpec

_FAREWELL = 60.0
_CATCH_UP = 16  # containers removed late before one is made
_LATE = 4096  # remembered; what is beyond, the next process finds


class Containers:
    """The containers of this process. ``machine`` tells this machine from others that use the engine."""

    def __init__(self, config: SandboxConfig, owner: Owner, engine: Engine) -> None:
        self.engine = engine
        self.lent = Borrowed(engine)
        self.machine = machine_of(_machine_id(), platform.node())
        self._config = config
        self._owner = owner
        self._info: dict[str, Any] | None = None
        self._uids = Uids()
        self.finishing = Finishing()
        self._late: dict[str, str] = {}

    async def info(self, *, anew: bool = False) -> dict[str, Any]:
        """What the engine told about itself. Raises SandboxUnavailableError where it cannot keep what is promised."""
        if self._info is None or anew:
            info = await self.engine.info()
            if refusal := refusal_of(info, self._config.runtime):
                raise SandboxUnavailableError(f"the Docker engine at {self.engine.told} cannot be used: {refusal}")
            self._info = info
        return self._info

    async def image(self, reference: str) -> Image:
        """An image that is there. Raises SandboxUnavailableError with the mend: nothing is pulled."""
        image = await self.engine.image(reference)
        if image is None:
            mend = "scripts/build-image" if reference == self._config.image else f"docker pull {reference}"
            raise SandboxUnavailableError(
                f"the Docker engine at {self.engine.told} has no image {reference}; mend: {mend}"
            )
        return image

    @asynccontextmanager
    async def cell(self, spec: SandboxSpec) -> AsyncIterator[ContainerCell]:
        """A started container; whatever becomes of us, it is removed, even one that is still being made."""
        name = self._owner.new_name()
        making = self.finishing.keep(asyncio.create_task(self._make(name, spec)))
        try:
            yield await asyncio.shield(making)
        finally:
            await self.finishing.finish(self._unmake(name, making))

    async def found(self, held: Held, spec: SandboxSpec) -> ContainerCell:
        """The cell of a container that another process made, emptied. Raises SandboxLostError; the container stays."""
        usr = BORROWED if held.labels.get(TOOLS_LABEL) == BORROWED else "/usr"
        tools = Tools(usr=usr, machine=str((await self.info())["Architecture"]))
        quota = profile_of(spec).cpu_quota
        cell = ContainerCell(
            self.engine, Box(name=held.name, id=held.id, uid=uid_of(held.labels), quota=quota, tools=tools)
        )
        if not await cell.emptied():
            raise SandboxLostError(f"the processes in {held.name} cannot be ended")
        return cell

    async def remove(self, name: str, identity: str) -> None:
        """Remove a container; while the engine does not answer it is put down for later.

        Raises SandboxError where the engine refuses, or a process outlives it.
        """
        try:
            await self.engine.remove(name)
        except SandboxLostError:
            if len(self._late) < _LATE:
                self._late[name] = identity
            return
        self._late.pop(name, None)
        if self.engine.local:
            await empty(identity)

    async def close(self) -> None:
        """Wait for what is being removed, then let go of the engine."""
        await self.finishing.finish(self._close())

    async def _close(self) -> None:
        try:
            await self.finishing.settle(_FAREWELL)
            with contextlib.suppress(SandboxError):
                await self._catch_up(len(self._late))
        finally:
            await self.engine.close()

    async def _catch_up(self, most: int) -> None:
        for name, identity in tuple(self._late.items())[:most]:
            await self.remove(name, identity)

    async def _unmake(self, name: str, making: asyncio.Task[ContainerCell]) -> None:
        await asyncio.wait({making})
        made = not making.cancelled() and making.exception() is None
        await self.remove(name, making.result().id if made else "")

    async def _make(self, name: str, spec: SandboxSpec) -> ContainerCell:
        info, profile = await self.info(), profile_of(spec)
        machine = str(info["Architecture"])  # the engine's, which may be another than ours
        uid = self._uids.take()
        settings = settings_of(profile, machine, uid=uid, runtime=self._config.runtime, shown=self._shown())
        image, tools = self._config.image, Tools(machine=machine)
        if spec.image and (stranger := await self._stranger(spec.image)):
            base = await self.image(self._config.image)
            settings = for_stranger(settings, stranger, await self.lent.volume(base.id))
            image, tools = stranger.id, Tools(usr=BORROWED, machine=machine)
        settings["labels"] = labels_of(self._owner.tag, self.machine, spec, uid) | {TOOLS_LABEL: tools.usr}
        await self._catch_up(_CATCH_UP)
        try:
            identity = await self.engine.create(name, image, tools.argv("sleep", "infinity"), settings)
        except SandboxUnavailableError:
            raise
        except SandboxLostError:
            self.lent.forget()
            raise
        except SandboxError as error:
            raise SandboxError(f"no container could be made: {error}{users_mend(info)}") from error
        box = Box(name=name, id=identity, uid=uid, quota=profile.cpu_quota, tools=tools)
        return ContainerCell(self.engine, box)

    def _shown(self) -> dict[str, str]:
        """The operator's folders. Raises SandboxUnavailableError on a far engine: the paths are of this machine."""
        if self._config.mounts and not self.engine.local:
            raise SandboxUnavailableError(
                f"sandbox.mounts names folders of this machine, but the engine is at {self.engine.told}; mend: take "
                "them out, put what they hold into an image, or use a local engine"
            )
        return resolved(self._config.mounts)

    async def _stranger(self, reference: str) -> Image | None:
        """The image, unless it is the project's own by another name."""
        image = await self.image(reference)
        return image if image.id != (await self.image(self._config.image)).id else None


def _machine_id() -> str:
    try:
        return Path("/etc/machine-id").read_text()
    except OSError:
        return ""
