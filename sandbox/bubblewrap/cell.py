"""One box made of namespaces, a control group and a uid, in which one bubblewrap at a time runs a supervisor."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from dataclasses import dataclass

from sandbox.bubblewrap.helper import Answer, Helper, HelperError
from sandbox.bubblewrap.layers import Store, from_json, to_json
from sandbox.bubblewrap.plan import Plan
from sandbox.bubblewrap.seats import Place
from sandbox.errors import SandboxError, SandboxLostError

_CHUNK = 256 * 1024
_TOLD = 2000


@dataclass(frozen=True)
class Namespaces:
    """Descriptors of both: as long as they are open, the workspace is there. Closed on exec."""

    user: int
    mount: int

    def close(self) -> None:
        """Let go; the workspace is gone once nothing runs in there."""
        os.close(self.user)
        os.close(self.mount)


class BwrapCell:
    """Keeps the `Cell` protocol. The workspace and home outlive each bubblewrap; /tmp does not."""

    def __init__(
        self,
        helper: Helper,
        plan: Plan,
        place: Place,
        *,
        uid: int,
        stores: tuple[Store, ...] | None = None,
        namespaces: Namespaces | None = None,
    ) -> None:
        self._helper = helper
        self.plan = plan
        self._stores = plan.stores() if stores is None else stores
        self._namespaces = namespaces
        self._seat = place.seat
        self._kills = 0
        self._closed = self._lent = False
        self.group = place.group
        self.uid = uid

    @property
    def name(self) -> str:
        """Name of its control group."""
        return self.group.name

    async def start(self) -> BwrapLine:
        """As the protocol says."""
        if self._closed:
            raise SandboxLostError(f"{self.name} is closed")
        if self._namespaces is not None:
            self._lent = self.group.relieve(self.plan.profile.memory)
        ours, theirs = socket.socketpair()
        told, telling = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        held = () if self._namespaces is None else (self._namespaces.user, self._namespaces.mount)
        try:
            with theirs:
                answer = await self._asked([theirs.fileno(), telling, self.plan.filter, *held])
            if self._namespaces is None:
                self._namespaces = Namespaces(*answer.fds)
            reader, writer = await asyncio.open_connection(sock=ours, limit=_CHUNK)
        except BaseException as error:
            ours.close()
            os.close(told)
            if isinstance(error, HelperError):
                raise SandboxLostError(f"{self.name} does not start: {error}") from error
            raise
        finally:
            os.close(telling)
        return BwrapLine(self.name, reader, writer, told)

    async def _asked(self, fds: list[int]) -> Answer:
        """Through the child that sits in the group already, the first time; it may have been killed meanwhile."""
        request = self.plan.start(self._stores, self.uid)
        seat, self._seat = self._seat, None
        if seat is not None:
            with contextlib.suppress(HelperError):
                return await seat.ask(request | {"groups": []}, fds)
        return await self._helper.ask(request | {"groups": self._entrances()}, fds)

    async def clear(self) -> None:
        """As the protocol says."""
        if not await self.group.empty():
            raise SandboxLostError(f"processes of {self.name} could not be killed; see {self.group.folders[0]}")

    def starved(self) -> int:
        """As the protocol says."""
        kills = self.group.oom_kills()
        if kills != self._kills or self._lent:
            self._kills, self._lent = kills, self.group.relieve(self.plan.profile.memory)
        return kills

    async def fork(self, place: Place) -> BwrapCell:
        """A cell with a copy of work and home, which shares the frozen layers. Nothing may run in this one.

        It is done to its end even when it is cancelled: where our own layers lie now must not be missed. Raises
        SandboxError.
        """
        forking = asyncio.create_task(self._forked(place))
        try:
            return await asyncio.shield(forking)
        except asyncio.CancelledError:
            while not forking.done():
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.wait([forking])
            if forking.exception() is None:
                forking.result().abandon()
            raise

    async def _forked(self, place: Place) -> BwrapCell:
        if self._namespaces is None:
            raise SandboxLostError(f"{self.name} was never started")
        request = {"do": "fork", "uid": self.uid, "groups": self._entrances(), "stores": to_json(self._stores)}
        try:
            answer = await self._helper.ask(request, [self._namespaces.user, self._namespaces.mount])
        except HelperError as error:
            self._stores = from_json(error.words.get("stores", to_json(self._stores)))
            raise SandboxError(f"{self.name} cannot be forked: {error}") from error
        self._stores = from_json(answer.words["stores"])
        namespaces = Namespaces(os.dup(self._namespaces.user), *answer.fds)
        stores, uid = self._stores, self.uid
        return BwrapCell(self._helper, self.plan, place, uid=uid, stores=stores, namespaces=namespaces)

    def abandon(self) -> None:
        """Let go of the workspace; it is gone once nothing runs in there."""
        if self._namespaces is not None:
            self._namespaces.close()
            self._namespaces = None

    async def close(self) -> None:
        """Kill what runs, and let go of everything. Raises SandboxError where something could not be killed."""
        self._closed = True
        if self._seat is not None:
            self._seat.close()
        try:
            gone = await self.group.remove()
        finally:
            self.abandon()
        if not gone:
            raise SandboxError(f"processes of {self.name} could not be killed; see {self.group.folders[0]}")

    def _entrances(self) -> list[str]:
        return [str(path) for path in self.group.entrances]


class BwrapLine:
    """Keeps the `Line` protocol over one socket. A start that failed is told at its end, in bubblewrap's own words."""

    def __init__(self, name: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, told: int) -> None:
        self._name = name
        self._reader = reader
        self._writer = writer
        self._told = told
        self._heard = False
        self._open = True

    async def receive(self) -> bytes:
        """As the protocol says."""
        try:
            data = await self._reader.read(_CHUNK)
        except ConnectionResetError:  # it ended before it read all that we sent
            data = b""
        if not data and not self._heard:
            raise SandboxLostError(f"{self._name} did not start: {self._words()}")
        self._heard = True
        return data

    async def send(self, data: bytes) -> None:
        """As the protocol says."""
        try:
            self._writer.write(data)
            await self._writer.drain()
        except OSError as error:
            raise SandboxLostError(f"{self._name} went away: {self._words() or error.strerror}") from error

    async def close(self) -> None:
        """As the protocol says."""
        if self._open:
            self._open = False
            os.close(self._told)
            self._writer.transport.abort()  # what it did not read yet could keep us waiting for ever
            with contextlib.suppress(OSError):
                await self._writer.wait_closed()

    def _words(self) -> str:
        try:
            said = os.read(self._told, 65536) if self._open else b""
        except BlockingIOError:
            said = b""
        return said.decode("utf-8", "replace").strip()[-_TOLD:] or "it ended without a word"
