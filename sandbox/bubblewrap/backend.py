"""Sandboxes with bubblewrap: no daemon of its own, for root or for a user with a control group.

A sandbox is a control group with its limits, a pair of namespaces that hold its workspace and home, and an unprivileged
uid: one per family of forks when we are root, ours when we are not. Bubblewrap runs in them, takes away everything else
and holds the supervisor; a fork shares the frozen layers of the workspace.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from sandbox.base import Exits, Rescue
from sandbox.bubblewrap.binary import Bwrap, find_bwrap
from sandbox.bubblewrap.cell import BwrapCell
from sandbox.bubblewrap.cgroup import Parent, find_parent
from sandbox.bubblewrap.helper import Helper, HelperError
from sandbox.bubblewrap.layers import PLACE, Store, to_json
from sandbox.bubblewrap.plan import Plan
from sandbox.bubblewrap.root import root_of
from sandbox.bubblewrap.seats import Seats
from sandbox.bubblewrap.seccomp import compile_filter
from sandbox.config import SandboxConfig
from sandbox.errors import SandboxError, SandboxLostError, SandboxUnavailableError
from sandbox.finishing import Finishing
from sandbox.line.launch import Start
from sandbox.line.resident import ResidentSandbox, Setting, exits_of
from sandbox.mounts import resolved
from sandbox.owner import Owner, orphaned
from sandbox.probe import insist, prove
from sandbox.rules.profile import profile_of
from sandbox.rules.uids import Uids
from sandbox.types import MIB, LeftBehind, SandboxSpec, SelfTest

_FAREWELL = 60.0


@dataclass(frozen=True)
class Forking:
    """Whether forks share layers, or are copies; and what is told of it."""

    layers: bool
    told: str


@dataclass(frozen=True)
class Machine:
    """What all sandboxes share."""

    bwrap: Bwrap
    filter: int
    parent: Parent
    masked: tuple[str, ...]
    forking: Forking


class BwrapBackend:
    """Makes sandboxes with bubblewrap. Close it: a helper process of its own starts them."""

    def __init__(self, config: SandboxConfig, owner: Owner, exits: Exits = MappingProxyType({})) -> None:
        self._config = config
        self._owner = owner
        self._exits = exits
        self._helper = Helper()
        self._finishing = Finishing()
        self._seats = Seats(self._helper, owner, self._finishing)
        self._machine: Machine | None = None
        self._proved: SelfTest | None = None
        self._uids = Uids()

    async def machine(self) -> Machine:
        """What all sandboxes share, found once. Raises SandboxUnavailableError with the mend."""
        if self._machine is None:
            parent, rules = find_parent(self._config.cgroup), _filter_descriptor()
            try:
                bwrap, forking = await find_bwrap(PLACE), await self._forking()
            except BaseException:
                os.close(rules)
                raise
            if self._machine is None:
                self._machine = Machine(bwrap, rules, parent, _masked(), forking)
            else:  # somebody else found it meanwhile
                os.close(rules)
        return self._machine

    async def self_test(self) -> SelfTest:
        """As the protocol says. What was proved once is answered again."""
        if self._proved is not None:
            return self._proved
        machine = await self.machine()
        detail = {
            "cgroup": f"v{2 if machine.parent.unified else 1} {machine.parent.folders[0]}",
            "uid": "one uid per sandbox" if os.geteuid() == 0 else f"uid {os.geteuid()} for all sandboxes",
            "bwrap": f"the {machine.bwrap.origin}'s",
            "fork": machine.forking.told,
        }
        try:
            test = await prove(self, "bwrap", machine.bwrap.named, detail)
        except SandboxUnavailableError:
            raise
        except SandboxError as error:
            raise SandboxUnavailableError(f"{machine.bwrap.named} does not work here: {error}") from error
        self._proved = insist(test, "as root run scripts/prepare-sandbox, or use the Docker backend")
        return self._proved

    @asynccontextmanager
    async def open(
        self, spec: SandboxSpec, workspace: AsyncIterator[bytes] | None = None
    ) -> AsyncIterator[ResidentSandbox]:
        """As the protocol says."""
        machine, root = await self.machine(), root_of(spec.image, resolved(self._config.mounts))
        plan = Plan(machine.bwrap, profile_of(spec), root, machine.masked, machine.filter)
        place = await self._seats.take(machine.parent, plan.profile)
        async with self._living(BwrapCell(self._helper, plan, place, uid=self._uid()), spec) as sandbox:
            self._seats.prepare(machine.parent)
            await sandbox.adopt(spec.labels, workspace)
            yield sandbox

    async def left_behind(self) -> tuple[LeftBehind, ...]:
        """As the protocol says. Their processes and workspaces died with their daemon: only empty groups are left."""
        children = (await self.machine()).parent.children()
        found = [
            LeftBehind(
                name=name,
                labels={},
                created=group.created(),
                living=False,
                ours=self._owner.left_behind(name),
            )
            for name, group in children.items()
            if orphaned(name) and group.limited
        ]
        return tuple(sorted(found, key=lambda left: left.created))

    async def sweep(self, rescue: Rescue | None = None, only: Collection[str] | None = None) -> int:  # noqa: ARG002
        """As the protocol says; no workspace lives on. Unused groups and empty ones of others go too, uncounted."""
        children = (await self.machine()).parent.children()
        orphans = {name: group for name, group in children.items() if orphaned(name)}
        if only is not None:
            return sum([await orphans[name].remove() for name in only if name in orphans])
        left = [group for name, group in orphans.items() if self._owner.left_behind(name) and group.limited]
        unused = [group for group in orphans.values() if group not in left and not group.processes()]
        for group in unused:
            await group.remove()
        return sum([await group.remove() for group in left])

    async def close(self) -> None:
        """As the protocol says. What is still open loses its processes."""
        await self._finishing.finish(self._close())

    async def _close(self) -> None:
        try:
            await self._seats.close()
            await self._finishing.settle(_FAREWELL)
        finally:
            self._helper.close()
            machine, self._machine = self._machine, None
            if machine is not None:
                os.close(machine.filter)

    @asynccontextmanager
    async def _living(self, cell: BwrapCell, spec: SandboxSpec) -> AsyncIterator[ResidentSandbox]:
        """A sandbox over the cell, with a supervisor that answers."""
        try:
            start = Start(landlock=cell.plan.profile.landlock.model_dump(), tar=tuple(cell.plan.root.tool("tar")))
            setting = Setting(cell.plan.profile, start, self._fork, exits_of(spec, self._exits))
            sandbox = ResidentSandbox(cell, spec, setting)
            try:
                await sandbox.ping()
                yield sandbox
            finally:
                await self._finishing.finish(sandbox.close())
        finally:
            await self._finishing.finish(cell.close())

    @asynccontextmanager
    async def _fork(self, source: ResidentSandbox, spec: SandboxSpec) -> AsyncIterator[ResidentSandbox]:
        """Share the frozen layers where that works, else copy through both supervisors."""
        forked = await self._layered(source)
        if forked is None:
            async with self.open(spec) as sandbox:
                await source.copy_to(sandbox)
                yield sandbox
            return
        async with self._living(forked, spec) as sandbox:
            sandbox.session = source.session
            yield sandbox

    async def _layered(self, source: ResidentSandbox) -> BwrapCell | None:
        """A cell on the source's layers; None where there can be none, for want of memory for a deep stack too."""
        machine, cell = await self.machine(), source.cell
        if not machine.forking.layers or not isinstance(cell, BwrapCell):
            return None
        place = await self._seats.take(machine.parent, cell.plan.profile)
        try:
            async with source.quiet():
                forked = await cell.fork(place)
        except BaseException as error:
            await self._finishing.finish(place.let_go())
            if isinstance(error, SandboxError) and not isinstance(error, SandboxLostError):
                return None
            raise
        self._seats.prepare(machine.parent)
        return forked

    def _uid(self) -> int:
        if os.geteuid() != 0:
            return os.geteuid()
        return self._uids.take()

    async def _forking(self) -> Forking:
        """How forks are made here. Raises SandboxUnavailableError where user namespaces cannot be made at all."""
        store = Store("work", MIB, 256, 0o755)
        request = {"uid": self._uid(), "stores": to_json((store,)), "files": {}, "binds": {}}
        try:
            await self._helper.ask(request | {"do": "probe"}, [])
        except HelperError as error:
            raise SandboxUnavailableError(f"{error}; mend: {namespaces_mend(_sysctl)}") from error
        words = (await self._helper.ask(request | {"do": "overlay"}, [])).words
        if words["overlay"] is not None:
            return Forking(layers=False, told=f"copy ({words['overlay']})")
        told = "overlay" if words["renames"] else "overlay (a folder from before a fork is renamed by copying it)"
        return Forking(layers=True, told=told)


def _masked() -> tuple[str, ...]:
    """Those of the profile's masked files that this kernel has."""
    return tuple(path for path in profile_of(SandboxSpec()).masked if Path(path).exists())


def namespaces_mend(sysctl: Callable[[str], str | None]) -> str:
    """What to do where user namespaces or mounts in them are refused."""
    if sysctl("kernel/apparmor_restrict_unprivileged_userns") == "1":  # Ubuntu 23.10 and later
        return "sysctl kernel.apparmor_restrict_unprivileged_userns=0, or an AppArmor profile that allows them"
    if sysctl("kernel/unprivileged_userns_clone") == "0":  # older Debian
        return "sysctl kernel.unprivileged_userns_clone=1"
    if sysctl("user/max_user_namespaces") == "0":
        return "sysctl user.max_user_namespaces=10000"
    return "allow user namespaces where this runs (a container's own seccomp or AppArmor profile?), or use Docker"


def _sysctl(name: str) -> str | None:
    try:
        return (Path("/proc/sys") / name).read_text().strip()
    except OSError:
        return None


def _filter_descriptor() -> int:
    descriptor = os.memfd_create("agent-swarm-seccomp", os.MFD_CLOEXEC)
    os.write(descriptor, compile_filter())
    return descriptor
