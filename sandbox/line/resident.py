"""A sandbox over any cell: the whole protocol, spoken with one supervisor that is started when needed and after a loss.

Commands take turns, since what a command left is killed by killing all there is. Files may be read and written, and the
workspace exported, while one runs. As long as the protocol is wide: one method each, and what they share.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any

from sandbox.base import Exit, Exits, OnOutput
from sandbox.errors import SandboxError, SandboxLostError, SandboxPathError, SandboxUnavailableError
from sandbox.inside import protocol as inside
from sandbox.line.cell import Cell
from sandbox.line.conversation import Channel, Conversation
from sandbox.line.launch import Start, as_bytes, encoded, first_bytes
from sandbox.line.output import kept, passed_on
from sandbox.line.paths import check_command, merged, relative
from sandbox.line.session import Session, begin, telling, told
from sandbox.line.tunnels import Tunnels
from sandbox.line.wire import Done
from sandbox.rules.profile import HOME, Profile, time_limit
from sandbox.types import Command, Outcome, SandboxSpec

_START = 30.0
_KILLED = 137


@dataclass(frozen=True)
class Setting:
    """What a backend tells about the sandboxes it makes. ``fork`` opens a copy of one, for the new spec.

    ``grace`` is how many seconds over a command's limit a supervisor may still answer.
    """

    profile: Profile
    start: Start
    fork: Callable[[ResidentSandbox, SandboxSpec], AbstractAsyncContextManager[ResidentSandbox]]
    exits: Sequence[Exit] = ()
    grace: float = 5.0


class ResidentSandbox:
    """Keeps the `Sandbox` protocol. The backend makes the cell before, and takes it away after `close`."""

    def __init__(self, cell: Cell, spec: SandboxSpec, setting: Setting) -> None:
        self.session: Session | None = None
        self.facts: Mapping[str, int] = {}
        self._cell, self._spec, self._setting = cell, spec, setting
        self._profile = setting.profile
        self._tunnels = Tunnels(setting.exits)
        self._turn, self._starting = asyncio.Lock(), asyncio.Lock()
        self._talk: Conversation | None = None
        self._closed = self._dirty = False
        self._packing = 0
        self._going: set[Channel] = set()
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def name(self) -> str:
        """The cell's."""
        return self._cell.name

    @property
    def spec(self) -> SandboxSpec:
        """As asked for, with the labels it has now."""
        return self._spec

    @property
    def cell(self) -> Cell:
        """The box it lives in, for its backend."""
        return self._cell

    async def run(self, command: Command, on_output: OnOutput | None = None) -> Outcome:
        """As the protocol says."""
        check_command(command)
        async with self._turn:
            return await self._run(command, on_output or _nobody)

    async def read(self, path: str, limit: int = 1_000_000) -> bytes:
        """As the protocol says."""
        data = bytearray()
        async with self._asking("reading", "read", encoded(relative(path)), max(0, limit)) as channel:
            while piece := await channel.read():
                data += piece
                if len(data) > limit:
                    raise SandboxLostError(f"{self.name} gave more of {path} than was asked for")
            await channel.finish()
        _refused(path, channel)
        return bytes(data)

    async def write(self, path: str, data: bytes, *, executable: bool = False) -> None:
        """As the protocol says."""
        async with self._asking("writing", "write", encoded(relative(path)), executable) as channel:
            await channel.feed(_once(data))
            await channel.finish()
        _refused(path, channel)

    def export(self) -> AsyncIterator[bytes]:
        """As the protocol says."""
        return self._pack(self._setting.start.work, self._profile.export_limit)

    async def unpack(self, stream: AsyncIterator[bytes]) -> None:
        """As the protocol says."""
        async with self._turn:
            await self._unpack(self._setting.start.work, stream)

    async def adopt(self, labels: Mapping[str, str], workspace: AsyncIterator[bytes] | None = None) -> None:
        """As the protocol says."""
        self._spec = self._spec.model_copy(update={"labels": dict(labels)})
        if workspace is not None:
            await self.unpack(workspace)

    def fork(self, labels: Mapping[str, str] | None = None) -> AbstractAsyncContextManager[ResidentSandbox]:
        """As the protocol says."""
        given = dict(labels) if labels is not None else self._spec.labels | {"fork": self.name}
        return self._setting.fork(self, self._spec.model_copy(update={"labels": given}))

    async def copy_to(self, other: ResidentSandbox) -> None:
        """Give workspace, home and session to a sandbox that nobody uses yet: the way to fork where none is faster."""
        async with self._turn, other._turn:
            limit = self._profile.export_limit
            for here, there in zip(self._places(), other._places(), strict=True):
                await other._unpack(there, self._pack(here, limit))
            other.session = self.session and self.session.moved(self._places(), other._places())

    @asynccontextmanager
    async def quiet(self) -> AsyncIterator[None]:
        """Nothing runs inside meanwhile, not even the supervisor; the next call starts one again.

        What is being read, written or exported may come to its end before, unless that takes long.
        """
        async with self._turn, self._starting:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._idle.wait(), _START)
            await self._hang_up()
            await self._cell.clear()
            self._dirty = False
            yield

    async def ping(self) -> None:
        """Have a supervisor that answers. Raises SandboxLostError."""
        async with self._asking("an answer", "ping") as channel:
            await channel.finish()

    async def close(self) -> None:
        """Hang up for good. The cell is the backend's to take away."""
        self._closed = True
        await self._hang_up()

    async def _run(self, command: Command, on_output: OnOutput) -> Outcome:
        limit = time_limit(self._profile, command)
        talk = await self._ready()
        before, began = self._cell.starved(), time.monotonic()
        room = inside.WINDOW + inside.LAST if command.whole else self._profile.output
        channel = talk.ask("run", self._request(command, limit), room=room + inside.STATE)
        feeding = asyncio.create_task(_fed(channel, command.stdin))
        head, late = bytearray(), False

        async def listen(patience: asyncio.Timeout) -> None:
            await (passed_on(channel, on_output, patience) if command.whole else kept(channel, head, on_output))

        try:
            late = not await self._in_time(listen, limit)
            if late:
                await self._clear()
        except SandboxLostError:
            await self._clear()
        except BaseException:
            await _to_its_end(self._stop(channel))
            raise
        finally:
            feeding.cancel()
            await asyncio.gather(feeding, return_exceptions=True)
        if channel.refused is not None:
            await self._clear()
            raise SandboxError(f"{self.name} did not start the command: {channel.refused}")
        done = channel.done or Done(_KILLED, timed_out=late, unclean=False, starved=0, cut=0)
        if done.unclean:
            await self._clear()
        if rest := channel.take(inside.DATA) if command.whole else b"":
            on_output(rest)
        if tail := channel.take(inside.TAIL_OUTPUT):
            on_output(tail)
        self.session = told(channel.take(inside.STATE_BYTES)) or self.session
        return self._outcome(done, bytes(head), tail, time.monotonic() - began, before)

    async def _in_time(self, listen: Callable[[asyncio.Timeout], Awaitable[None]], limit: float) -> bool:
        """Whether the end was told within the limit and the grace, or when an export that held it back was over."""
        for seconds in (limit, inside.LONG):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds + self._setting.grace) as patience:
                    await listen(patience)
                    return True
            if not self._packing:
                break
        return False

    def _outcome(self, done: Done, head: bytes, tail: bytes, seconds: float, before: int | None) -> Outcome:
        now = self._cell.starved()
        starved = done.starved if before is None or now is None else now - before
        return Outcome(
            exit_code=done.code,
            output=head + tail,
            seconds=seconds,
            timed_out=done.timed_out,
            out_of_memory=starved > 0 and done.code != 0 and not done.timed_out,
            cut=done.cut,
            cut_at=len(head) if done.cut else 0,
        )

    def _request(self, command: Command, limit: float) -> dict[str, object]:
        cwd, env = begin(self.session, command, self._environment())
        argv = telling(command.argv) if command.session else command.argv
        return {
            "argv": tuple(encoded(word) for word in argv),
            "env": as_bytes(env),
            "cwd": encoded(cwd),
            "stdin": bool(command.stdin),
            "seconds": limit,
            "cap": None if command.whole else self._profile.output,
            "session": command.session,
        }

    def _environment(self) -> dict[str, str]:
        """What every command sees: the profile's, the ways out, and where home really is."""
        ways_out = {name: value for way in self._setting.exits for name, value in way.environment().items()}
        env = merged(dict(self._profile.environment), ways_out, self._spec.env)
        return env | ({"HOME": self._setting.start.home} if env["HOME"] == HOME else {})

    async def _pack(self, place: str, limit: int) -> AsyncGenerator[bytes, None]:
        channel = self._begun((await self._ready()).ask("pack", encoded(place)))
        until, seen = time.monotonic() + self._profile.wall, 0
        self._packing += 1
        try:
            while data := await _read_by(channel, until):
                seen += len(data)
                if seen > limit:
                    raise SandboxError(f"{self.name} cannot be exported: it gave more than {limit} bytes")
                yield data
            await asyncio.wait_for(channel.finish(), self._setting.grace)
        except TimeoutError:
            raise SandboxError(f"{self.name} cannot be exported: it took longer than the wall limit") from None
        finally:
            self._packing -= 1
            self._over(channel)
        if channel.refused is not None:
            raise SandboxError(f"{self.name} cannot be exported: {channel.refused}")

    async def _unpack(self, place: str, stream: AsyncIterator[bytes]) -> None:
        async with self._asking("filling it", "unpack", encoded(place)) as channel:
            await channel.feed(stream)
            await channel.finish()
        if channel.refused is not None:
            raise SandboxError(f"the workspace of {self.name} cannot be filled: {channel.refused}")

    @asynccontextmanager
    async def _asking(self, doing: str, *words: Any) -> AsyncIterator[Channel]:
        """A request that is over when this is left. Raises SandboxError when it takes longer than the wall limit."""
        channel = self._begun((await self._ready()).ask(*words))
        try:
            async with asyncio.timeout(self._profile.wall) as limit:
                yield channel
        except TimeoutError:
            if not limit.expired():
                raise
            raise SandboxError(f"{self.name}: {doing} took longer than the wall limit") from None
        finally:
            self._over(channel)

    def _begun(self, channel: Channel) -> Channel:
        self._going.add(channel)
        self._idle.clear()
        return channel

    def _over(self, channel: Channel) -> None:
        channel.close()
        self._going.discard(channel)
        if not self._going:
            self._idle.set()

    async def _stop(self, channel: Channel) -> None:
        """Let a command that nobody waits for any more leave nothing."""
        channel.close()
        try:
            async with asyncio.timeout(self._setting.grace):
                done = await channel.finish()
            if done is None or not done.unclean:
                return
        except (TimeoutError, SandboxLostError):
            pass
        await self._clear()

    async def _clear(self) -> None:
        async with self._starting:
            await self._hang_up()
            await self._cell.clear()
            self._dirty = False

    async def _ready(self) -> Conversation:
        """A supervisor that has greeted. Raises SandboxLostError where the cell is gone or none starts."""
        async with self._starting:
            if self._closed:
                raise SandboxLostError(f"{self.name} is closed")
            if self._talk is not None and self._talk.lost is None:
                return self._talk
            await self._hang_up()
            if self._dirty:
                await self._cell.clear()
            self._dirty = True
            self._talk = await self._started()
            return self._talk

    async def _started(self) -> Conversation:
        files = {path: data for way in self._setting.exits for path, data in way.files().items()}
        line = await self._cell.start()
        talk = Conversation(line, self._opened)
        talk.post(
            first_bytes(
                self._setting.start, ports=self._tunnels.ports, files=files, environment=dict(self._profile.environment)
            )
        )
        try:
            async with asyncio.timeout(_START):
                self.facts = await talk.greeted()
        except TimeoutError:
            await talk.close()
            raise SandboxLostError(f"no supervisor answered in {self.name} within {_START:g} s") from None
        except BaseException:
            await talk.close()
            raise
        if self.facts.get("ports") != len(self._tunnels.ports):
            await talk.close()
            raise SandboxLostError(f"the ways out of {self.name} cannot listen on {self._tunnels.ports}")
        return talk

    async def _hang_up(self) -> None:
        talk, self._talk = self._talk, None
        try:
            if talk is not None:
                await talk.close()
        finally:
            await self._tunnels.close()

    def _opened(self, talk: Conversation, channel: Channel, port: int) -> None:
        self._tunnels.opened(talk, channel, port, self._spec.labels | {"sandbox": self.name})

    def _places(self) -> tuple[str, str]:
        return self._setting.start.work, self._setting.start.home


def exits_of(spec: SandboxSpec, exits: Exits) -> tuple[Exit, ...]:
    """The ways out that a spec asks for. Raises SandboxUnavailableError for one that is not there."""
    if spec.network == "none":
        return ()
    if spec.network not in exits:
        raise SandboxUnavailableError(
            f"network {spec.network!r} was asked for, but this daemon has no such way out; "
            'mend: configure it under [sandbox.egress], or ask for network = "none"'
        )
    return (exits[spec.network],)


async def _fed(channel: Channel, data: bytes) -> None:
    with contextlib.suppress(SandboxLostError):
        await channel.feed(_once(data))


async def _to_its_end(work: Coroutine[None, None, None]) -> None:
    """Finish it even when we are cancelled again meanwhile."""
    task = asyncio.ensure_future(work)
    while not task.done():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait([task])
    with contextlib.suppress(SandboxError):
        task.result()


async def _read_by(channel: Channel, until: float) -> bytes:
    async with asyncio.timeout(max(0.01, until - time.monotonic())):
        return await channel.read()


def _refused(path: str, channel: Channel) -> None:
    if channel.refused is not None:
        raise SandboxPathError(f"{path} {channel.refused}")


async def _once(data: bytes) -> AsyncIterator[bytes]:
    yield data


def _nobody(_: bytes) -> None:
    """Output that nobody watches."""
