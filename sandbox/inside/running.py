"""Commands: one from its start until nothing of it is left."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import os
import time

from sandbox.inside.child import TELL
from sandbox.inside.ends import Collect, Feed, Output, Whole
from sandbox.inside.guard import bounds, starved
from sandbox.inside.keeper import PATIENCE
from sandbox.inside.protocol import LONG, STATE, STATE_BYTES, TIMED_OUT, UNCLEAN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from sandbox.inside.keeper import Keeper


class Running:
    """One command from its start until nothing of it is left."""

    def __init__(self, supervisor: Keeper, channel: int, asked: Mapping[str, Any]) -> None:
        self._supervisor, self._channel = supervisor, channel
        self._flags, self._code, self._over = 0, -1, False
        self._kills, self._before = starved(), bounds()
        self.until = time.monotonic() + asked["seconds"]
        self._feed: Feed | None = None
        self._state: Collect | None = None
        told: int | None = None
        given = os.open(os.devnull, os.O_RDONLY)
        if asked["stdin"]:
            os.close(given)
            given, writer = os.pipe()
            self._feed = Feed(supervisor.wire, channel, writer, lambda _: supervisor.drop(writer))
            supervisor.add(self._feed)
        reader, shown = os.pipe()
        self._output = self._shown(reader, asked["cap"])
        supervisor.add(self._output)
        pipes = {0: given, 1: shown, 2: shown}
        if asked["session"]:
            reader, told = os.pipe()
            self._state = Collect(reader, STATE, supervisor.drop, tail=False)
            supervisor.add(self._state)
            pipes[TELL] = told
        self.pid, cwd = 0, os.path.join(supervisor.start["work"], asked["cwd"])
        if asked["session"] and not os.path.isdir(cwd):
            os.write(shown, cwd[-300:] + b" is gone; this began in the workspace\n")  # short: nobody reads it yet
            cwd = supervisor.start["work"]
        supervisor.command, supervisor.channels[channel] = self, self
        try:
            self.pid = supervisor.spawn(asked["argv"], asked["env"], cwd, pipes)
        except OSError:  # EAGAIN, or ENOMEM
            os.write(shown, b"the sandbox's limit of processes is reached\n")
            self._code = 126
        finally:
            for fd in {*pipes.values()}:
                os.close(fd)
        if self.pid:
            supervisor.children[self.pid] = self._ended
        else:
            self._finish()

    def _shown(self, reader: int, cap: int | None) -> Output | Whole:
        wire, drop = self._supervisor.wire, self._supervisor.drop
        if cap is None:
            return Whole(wire, self._channel, reader, lambda _: drop(reader))
        return Output(wire, self._channel, reader, cap, drop)

    def _ended(self, code: int) -> None:
        self._code = code
        if self._over:
            return  # it was killed by `kill`, which goes on
        if self._supervisor.sweeps and self._supervisor.packs:
            self.until = time.monotonic() + LONG  # an export is a child of ours too; the sweep would kill it
        else:
            self.kill()

    def late(self) -> None:
        """Its time is over, or that of an export that it waited for."""
        if self._code < 0:
            self._flags |= TIMED_OUT
        self.kill()

    def released(self) -> None:
        """The last export is over."""
        if self._code >= 0:
            self.kill()

    def kill(self) -> None:
        """Let nothing of it be left, and tell the host."""
        if self._over:
            return
        self._over = True
        if self._supervisor.sweeps:
            if not self._supervisor.sweep():
                self._flags |= UNCLEAN
        else:
            self._end_group()
        self._finish()

    def kill_group(self) -> None:
        """Kill its process group. It must not have been waited for, else the number may be another's by now."""
        if self.pid < 1:
            return  # it was never started; to the kernel, 0 means our own group
        for kill in (os.killpg, os.kill):
            try:
                kill(self.pid, _signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                pass

    def _end_group(self) -> None:
        if self._code < 0:
            self.kill_group()
        until = time.monotonic() + PATIENCE
        while self._supervisor.reap() and (self._code < 0 or self._group_lives()) and time.monotonic() < until:
            time.sleep(0.001)

    def _group_lives(self) -> bool:
        try:
            os.killpg(self.pid, 0)
        except (ProcessLookupError, PermissionError):
            return False
        return True

    def _finish(self) -> None:
        supervisor = self._supervisor
        cut = self._output.finish()
        state = self._state.rest() if self._state is not None else b""
        for end in (self._output, self._state, self._feed):
            if end is not None:
                supervisor.drop(end.fd)
        if state:
            supervisor.wire.send(STATE_BYTES, self._channel, state)
        if bounds() != self._before:
            self._flags |= UNCLEAN  # a command may change our limits, see prlimit(2); the next supervisor has its own
        supervisor.command = None
        code = self._code if self._code >= 0 and not self._flags & TIMED_OUT else 137
        supervisor.done(self._channel, code, self._flags, max(0, starved() - self._kills), cut)

    def data(self, data: bytes) -> None:
        """More of its standard input."""
        if self._feed is not None:
            self._feed.data(data)

    def end(self) -> None:
        """The end of its standard input."""
        if self._feed is not None:
            self._feed.end()

    def credit(self, size: int) -> None:
        """The host took that much of a whole output. A bounded one goes without."""
        if isinstance(self._output, Whole):
            self._output.credit(size)

    def close(self) -> None:
        """The host wants it no more."""
        self.kill()
