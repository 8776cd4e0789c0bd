"""The state of a supervisor, and what each of its works does with it: descriptors, answers, processes."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import os
import select
import stat
import time

from sandbox.inside.child import become, execute
from sandbox.inside.kernel import Landlock
from sandbox.inside.protocol import DONE, DONE_FIELDS, REFUSED, TUNNEL, RefusedError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from sandbox.inside.ends import Wire
    from sandbox.inside.kernel import Kernel


PATIENCE = 15.0


class Keeper:
    """What goes on: at most one command, and any number of transfers and connections; and what they need of us."""

    def __init__(self, start: Mapping[str, Any], wire: Wire, kernel: Kernel) -> None:
        self.start, self.wire, self.kernel = start, wire, kernel
        self.sweeps = bool(start["sweep"])
        self.landlock = Landlock(kernel, start["landlock"])
        self.ends: dict[int, Any] = {}
        self.channels: dict[int, Any] = {}
        self.children: dict[int, Callable[[int], None]] = {}
        self.command: Any = None  # the Running
        self.packs: set[int] = set()
        self.places: set[int] = set()  # connections that the host still has work with, closed here or not
        self.last = TUNNEL
        self.woken, self.wake = os.pipe()
        os.set_blocking(self.woken, False)
        os.set_blocking(self.wake, False)

    def add(self, end: Any) -> None:
        """Wait for a descriptor from now on."""
        self.ends[end.fd] = end

    def drop(self, fd: int) -> None:
        """Close a descriptor and wait for it no longer."""
        end = self.ends.pop(fd, None)
        if end is not None:
            end.fd = -1
            os.close(fd)

    def regain(self) -> None:
        """The agent's own folders, which a command may have shut against itself, and so against all that comes after.

        A command after it could not open them again, for it would not even start there.
        """
        for folder in (self.start["work"], self.start["home"], b"/tmp"):
            try:
                mode = os.lstat(folder).st_mode
                if stat.S_ISDIR(mode) and mode & 0o700 != 0o700:
                    os.chmod(folder, stat.S_IMODE(mode) | 0o700)
            except OSError:
                pass  # whoever needs it says so

    def refuse(self, channel: int, words: str) -> None:
        """A request's bad end."""
        self.channels.pop(channel, None)
        self.wire.send(REFUSED, channel, words.encode("utf-8", "replace")[-1000:])

    def done(self, channel: int, code: int = 0, flags: int = 0, starved: int = 0, cut: int = 0) -> None:
        """A request's end."""
        self.channels.pop(channel, None)
        self.wire.send(DONE, channel, DONE_FIELDS.pack(code, flags, starved, cut))

    def spawn(
        self,
        argv: tuple[bytes, ...],
        env: Mapping[bytes, bytes],
        cwd: bytes,
        pipes: Mapping[int, int],
        before: Callable[[], None] | None = None,
    ) -> int:
        """Start a program in a session of its own; ``pipes`` are its descriptors, the others are closed on exec."""
        pid = os.fork()
        if pid:
            return pid
        code = 126
        try:
            os.setsid()
            become(self.kernel, self.landlock, pipes)
            os.chdir(cwd)
            if before is not None:
                before()
            code = execute(argv, env)
        except FileNotFoundError:
            os.write(2, cwd + b": no such folder\n")
        except OSError as error:
            os.write(2, cwd + f": {error.strerror}\n".encode())
        except RefusedError as error:
            os.write(2, f"{error}\n".encode())
        finally:
            os._exit(code)

    def reap(self) -> bool:
        """Take note of every child that ended; False when there is none left at all."""
        try:
            while os.read(self.woken, 4096):
                pass
        except BlockingIOError:
            pass
        while True:
            try:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return False
            if ended is None:
                return True
            if self.command is not None and self.command.pid == ended.si_pid:
                self.command.kill_group()  # now, while its number cannot be another's
            _, status = os.waitpid(ended.si_pid, 0)
            told = self.children.pop(ended.si_pid, None)
            if told is not None:
                told(os.WTERMSIG(status) + 128 if os.WIFSIGNALED(status) else os.WEXITSTATUS(status))

    def sweep(self) -> bool:
        """Kill all there is of the agent's but us, until nothing is left; False when something is, after a while."""
        until = time.monotonic() + PATIENCE
        poller = select.poll()
        poller.register(self.woken, select.POLLIN)
        while time.monotonic() < until:
            try:
                os.kill(-1, _signal.SIGKILL)
            except ProcessLookupError:
                pass
            if not self.reap():
                return True
            poller.poll(20)
        return False
