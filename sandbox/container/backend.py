"""Sandboxes as Docker containers: on a local engine or a far one, of any image, with any runtime that proves itself.

Nothing of this machine is mounted into one on a far engine. A process that dies leaves its containers behind: they
carry its name and its machine, and are found again by these.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import MappingProxyType

from sandbox.base import Exit, Exits, Rescue
from sandbox.config import SandboxConfig
from sandbox.container.cell import ContainerCell
from sandbox.container.containers import Containers
from sandbox.container.engine import Engine, Held
from sandbox.container.facts import detail_of, runtime_mend
from sandbox.container.making import MACHINE_LABEL, OWNER_LABEL, spec_of
from sandbox.container.remote import way_to
from sandbox.errors import SandboxError, SandboxLostError, SandboxUnavailableError
from sandbox.line.launch import Start
from sandbox.line.resident import ResidentSandbox, Setting, exits_of
from sandbox.owner import Owner, orphaned
from sandbox.probe import insist, prove
from sandbox.rules.profile import profile_of
from sandbox.types import LeftBehind, SandboxSpec, SelfTest

NO_LEAK = "no folder of the host left open by the runtime"
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
_NO_EXITS: Exits = MappingProxyType({})
_log = logging.getLogger(__name__)


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
        self._held: Containers | None = None
        self._proved: SelfTest | None = None
        self.fresh: Callable[[SandboxSpec], AbstractAsyncContextManager[ResidentSandbox]] = self.open

    @property
    def engine(self) -> Engine:
        """The engine, reached at first use. Raises SandboxUnavailableError for an address that cannot be used."""
        return self._containers.engine

    @property
    def _containers(self) -> Containers:
        if self._held is None:
            self._held = Containers(self._config, self._owner, Engine(way_to(self._environment)))
        return self._held

    async def close(self) -> None:
        """Wait for what is being removed, then let go of the engine."""
        held, self._held = self._held, None
        if held is not None:
            await held.close()

    async def ready(self) -> dict[str, str]:
        """Engine version, image id and what else the self-test tells. Raises SandboxUnavailableError with the mend."""
        try:
            version = await self.engine.version()
            info = await self._containers.info(anew=True)
            image = await self._containers.image(self._config.image)
        except SandboxLostError as error:
            raise SandboxUnavailableError(str(error)) from error
        detail = detail_of(info, version, self._config.runtime)
        return {"version": f"docker {version['Version']}", "image": image.id, "api": version["ApiVersion"]} | detail

    async def self_test(self) -> SelfTest:
        """As the protocol says. What was proved once is answered again, while engine and image are there.

        A runtime that hangs cannot hold it up: after ``patience`` seconds it is left to its own end.
        """
        detail = await self.ready()
        if self._proved is not None:
            return self._proved
        proving = self._containers.finishing.keep(asyncio.create_task(self._prove(detail)))
        try:
            done, _ = await asyncio.wait({proving}, timeout=self._patience)
        except asyncio.CancelledError:
            proving.cancel()
            raise
        if not done:
            proving.cancel()
            raise SandboxUnavailableError(
                f"the runtime {detail['runtime']} did not finish the self-test in {self._patience:g} s; mend: another "
                "runtime, and look for processes of it that spin"
            )
        test = proving.result()
        self._proved = insist(test, "update runc" if NO_LEAK in test.failed else runtime_mend(detail["runtime"]))
        return self._proved

    @asynccontextmanager
    async def open(
        self, spec: SandboxSpec, workspace: AsyncIterator[bytes] | None = None
    ) -> AsyncIterator[ResidentSandbox]:
        """As the protocol says. Raises SandboxUnavailableError for an image that is not there: nothing is pulled."""
        exits = exits_of(spec, self._exits)
        async with self._containers.cell(spec) as cell:
            sandbox = self._resident(cell, spec, exits)
            try:
                await sandbox.ping()
                await sandbox.adopt(spec.labels, workspace)
                yield sandbox
            finally:
                await self._containers.finishing.finish(sandbox.close())

    async def left_behind(self) -> tuple[LeftBehind, ...]:
        """As the protocol says; of containers that were made on this machine, for no other's processes can be seen."""
        return tuple(self._told(held) for held in await self._orphans())

    async def sweep(self, rescue: Rescue | None = None, only: Collection[str] | None = None) -> int:
        """As the protocol says. Borrowed programs of base images that are gone are removed as well."""
        removed = 0
        for held in await self._orphans():
            left = self._told(held)
            if not (left.ours if only is None else held.name in only):
                continue
            if rescue is not None and left.ours and left.living and not await self._rescued(held, left, rescue):
                continue
            await self._containers.remove(held.name, held.id)
            removed += 1
        await self._containers.lent.tidy()
        return removed

    async def _prove(self, detail: dict[str, str]) -> SelfTest:
        try:
            test = await prove(self, "docker", detail.pop("version"), detail)
            leaks = await self._leaks()
        except SandboxUnavailableError:
            raise
        except SandboxError as error:
            told = f"the runtime {detail['runtime']} does not work on the engine at {self.engine.told}"
            raise SandboxUnavailableError(f"{told}: {error}; mend: {runtime_mend(detail['runtime'])}") from error
        field = "failed" if leaks else "proved"
        return test.model_copy(update={field: (*getattr(test, field), NO_LEAK)})

    async def _leaks(self) -> bool:
        """Whether a command can be started in a folder of the host by way of a descriptor that the runtime leaked."""
        argv = ["/usr/bin/python3", "-I", "-S", "-c", _WHERE]
        async with self._containers.cell(SandboxSpec()) as cell:
            for number in _LEAKED:
                with contextlib.suppress(SandboxError):  # a mended runtime refuses to start it at all
                    _, said = await self.engine.ask(cell.name, argv, cell.user, f"/proc/self/fd/{number}")
                    if said.strip() == b"outside":
                        return True
        return False

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

    async def _orphans(self) -> list[Held]:
        found = await self.engine.containers(OWNER_LABEL)
        machine = self._containers.machine
        mine = [held for held in found if held.labels.get(MACHINE_LABEL) == machine and orphaned(held.name)]
        return sorted(mine, key=lambda held: held.created)

    def _told(self, held: Held) -> LeftBehind:
        ours, labels = held.labels.get(OWNER_LABEL) == self._owner.tag, spec_of(held.labels).labels
        return LeftBehind(name=held.name, labels=labels, created=held.created, living=held.living, ours=ours)

    async def _rescued(self, held: Held, left: LeftBehind, rescue: Rescue) -> bool:
        """Offer an orphan's workspace through a new supervisor. Whatever goes wrong, the container stays."""
        spec = spec_of(held.labels)
        try:
            sandbox = self._resident(await self._containers.found(held, spec), spec, ())
            try:
                await rescue(left, sandbox.export())
            finally:
                await self._containers.finishing.finish(sandbox.close())
        except Exception as error:  # noqa: BLE001 - the next one must have its turn, and this one is not removed
            _log.warning("the workspace of %s could not be rescued, so it stays: %s", held.name, error)
            return False
        return True
