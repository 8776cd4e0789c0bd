"""One control group made ahead, with a process in it that waits: letting a process into a group takes the kernel long.

The first move of a process between groups waits for all processors to pass a quiet point (the kernel's
cgroup_threadgroup_rwsem): 2 to 20 ms, more than all the rest of a start. All forks on the machine wait as long, so the
next place is made a little later, not while the sandbox that was just opened starts its first command.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass

from sandbox.bubblewrap.cgroup import Group, Parent
from sandbox.bubblewrap.helper import Helper, Seat
from sandbox.errors import SandboxError
from sandbox.finishing import Finishing
from sandbox.owner import Owner
from sandbox.rules.profile import Profile

_LATER = 0.05  # seconds


@dataclass(frozen=True)
class Place:
    """A control group of a sandbox's own, and the process that may wait in it already."""

    group: Group
    seat: Seat | None = None

    async def let_go(self) -> None:
        """Give it up unused."""
        if self.seat is not None:
            self.seat.close()
        await self.group.remove()


class Seats:
    """Gives out groups, and makes the next one when one was given. At most one is held; it has no limits yet."""

    def __init__(self, helper: Helper, owner: Owner, finishing: Finishing) -> None:
        self._helper = helper
        self._finishing = finishing
        self._owner = owner
        self._making: asyncio.Task[Place] | None = None

    async def take(self, parent: Parent, profile: Profile) -> Place:
        """A group with the profile's limits, with a seat where one is ready. Raises SandboxError."""
        making, place = self._making, None
        if making is not None and making.done():
            self._making = None
            with contextlib.suppress(SandboxError):  # it could not be made; this one is told why, if it cannot either
                place = making.result()
        if place is None:
            place = Place(parent.child(self._owner.new_name()))
        try:
            place.group.limit(profile)
        except BaseException:
            await self._finishing.finish(place.let_go())
            raise
        return place

    def prepare(self, parent: Parent) -> None:
        """Begin to make the next one, in the background, unless there is one."""
        if self._making is None:
            self._making = asyncio.create_task(self._make(parent))

    async def close(self) -> None:
        """Give up the one that is held."""
        making, self._making = self._making, None
        if making is not None:
            making.cancel()
            [made] = await asyncio.gather(making, return_exceptions=True)
            if isinstance(made, Place):
                await made.let_go()

    async def _make(self, parent: Parent) -> Place:
        await asyncio.sleep(_LATER)
        group = parent.child(self._owner.new_name())
        try:
            return Place(group, await self._helper.sit([str(path) for path in group.entrances]))
        except BaseException:
            await self._finishing.finish(group.remove())
            raise
