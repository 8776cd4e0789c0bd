"""Lives inside a sandbox as the agent's user and does what the host asks over one stream of frames.

It is sent as one piece and must start fast on any Python from 3.9 on: hence one file that is longer than most, C
modules instead of `socket`, `signal`, `selectors` and `ctypes`, and a loop of its own over `poll`. A frame is its kind
(1 byte), channel (4), length (4) and payload. Requests are marshalled tuples, which only the host makes. What goes back
is bytes and fixed structures, since the host trusts nothing from here. Bytes flow by credit in both directions, so that
neither side ever waits for the other with both pipes full.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import _socket
import errno
import marshal
import os
import resource
import select
import stat
import struct
import time

TYPE_CHECKING = False  # the name that type checkers know; `typing` itself takes longer to load than all the rest
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

FRAME = 64 * 1024
WINDOW = 256 * 1024
STATE = 64 * 1024
CONNECTIONS = 64
LONG = 60.0  # seconds that a running export may hold back the end of a command
HEAD = struct.Struct(">BII")
DONE_FIELDS = struct.Struct(">BBIQ")  # exit code, flags, kills for want of memory, bytes cut
COUNT = struct.Struct(">I")
TUNNEL = 1 << 31  # channels from here on are connections that were made inside

PART, ASK, DATA, END, CREDIT, CLOSE = 1, 2, 3, 4, 5, 6
HELLO, HEAD_OUTPUT, TAIL_OUTPUT, STATE_BYTES, DONE, REFUSED, OPEN = 32, 33, 34, 35, 36, 37, 38
TIMED_OUT, UNCLEAN = 1, 2
MISSING, OUTSIDE, NOT_A_FILE = "does not exist", "lies outside the workspace", "is not a file"

_HIGH = 512 * 1024
_PATIENCE = 15.0
_TELL = 9  # descriptor on which a session's shell tells its state; dash knows descriptors of one digit only
_UIDS = range(70_000, 71_000)
_FIRST_NAMESPACE = 0xEFFFFFFC  # inode of the machine's own process namespace, see include/linux/proc_ns.h
_IN, _OUT = select.POLLIN, select.POLLOUT
_OPEN = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_CREATE = (b"--create", b"--format=gnu", b"--sparse", b"--sort=name", b"--file=-", b".")
_EXTRACT = (b"--extract", b"--no-same-owner", b"--no-same-permissions", b"--file=-")
_SET_DEATH_SIGNAL, _SET_DUMPABLE, _SET_SUBREAPER, _SET_NO_NEW_PRIVILEGES = 1, 4, 36, 38


def may_sweep(uid: int, own: tuple[str, int], host: tuple[str, int]) -> bool:
    """Whether ``kill(-1)`` can meet processes of this sandbox only: an agent's uid, in a namespace of its own."""
    return uid in _UIDS and own[1] not in (0, _FIRST_NAMESPACE) and own != tuple(host)


def process_namespace() -> tuple[str, int]:
    """The boot of the kernel, and the inode of our process namespace or 0 where it cannot be told."""
    boot, inode = "", 0
    try:
        with open("/proc/sys/kernel/random/boot_id", "rb") as file:
            boot = file.read(64).decode("ascii", "replace").strip()
    except OSError:
        pass
    try:
        inode = os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        pass
    return boot, inode


class RefusedError(Exception):
    """A request that cannot be done; its words are for the agent."""


class HostGoneError(Exception):
    """Nobody is at the other end any more."""


class Kernel:
    """The calls that Python's library lacks. Where `_ctypes` is missing everything answers -1."""

    def __init__(self) -> None:
        self._call: Callable[..., int] | None = None
        try:
            import _ctypes  # noqa: PLC0415 - a minimal Python has none, and then it must still start
        except ImportError:
            return
        library = _ctypes.dlopen(None, 0)  # type: ignore[arg-type]
        self._call = _ctypes.call_function
        self._prctl, self._syscall = _ctypes.dlsym(library, "prctl"), _ctypes.dlsym(library, "syscall")

    def prctl(self, option: int, value: int) -> int:
        """See prctl(2)."""
        return -1 if self._call is None else self._call(self._prctl, (option, value, 0, 0, 0))

    def syscall(self, *arguments: int | bytes | None) -> int:
        """See syscall(2)."""
        return -1 if self._call is None else self._call(self._syscall, arguments)


class Landlock:
    """The second wall around commands, see landlock(7). ``version`` is 0 where the kernel has none or none is asked.

    Rights that a folder gives hold below it. The numbers of the calls are the same on all architectures.
    """

    _READ, _FILE = 0b1101, 0b1100_0000_0000_0111  # execute, read; what a single file can be given

    def __init__(self, kernel: Kernel, asked: Mapping[str, Any] | None) -> None:
        self._kernel, self._rules, self.version, self.scoped = kernel, -1, 0, False
        version = kernel.syscall(444, None, 0, 1) if asked else 0
        if asked is None or version < 1:
            return
        handled = (1 << (13 + (version >= 2) + (version >= 3))) - 1 | (version >= 5) << 15
        self.scoped = version >= 6 and bool(asked["scoped"])
        fields = struct.pack("=QQQ", handled, 0, 3 if self.scoped else 0)
        self._rules = kernel.syscall(444, fields, 24 if version >= 6 else 16 if version >= 4 else 8, 0)
        if self._rules < 0:
            return
        self.version = version
        os.set_inheritable(self._rules, False)
        written = handled & ~(1 << 6 | 1 << 11)  # no device nodes
        for paths, rights in (
            (asked["read"], self._READ),
            (asked["write"], written),
            (asked["write_data"], written & ~1),
            (asked["devices"], handled & 0b1100_0000_0000_1110),
        ):
            for path in paths:
                self._allow(path, handled & rights)

    def _allow(self, path: str, rights: int) -> None:
        try:
            place = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            return
        if not stat.S_ISDIR(os.fstat(place).st_mode):
            rights &= self._FILE
        self._kernel.syscall(445, self._rules, 1, struct.pack("=Qi", rights, place), 0)
        os.close(place)

    def restrict(self) -> None:
        """From here on this process and all that it starts. Raises RefusedError where the kernel refuses."""
        self._kernel.prctl(_SET_NO_NEW_PRIVILEGES, 1)
        if self.version and self._kernel.syscall(446, self._rules, 0):
            raise RefusedError("Landlock cannot be entered")


class Wire:
    """Frames to the host, kept until it reads them. Producers look at ``room`` first."""

    def __init__(self, descriptor: int) -> None:
        self.fd = descriptor
        self._out = bytearray()

    @property
    def room(self) -> bool:
        """Whether more may be produced."""
        return len(self._out) < _HIGH

    def want(self) -> int:
        """What to wait for."""
        return _OUT if self._out else 0

    def ready(self) -> None:
        """Write what goes without waiting. Raises HostGoneError."""
        while self._out:
            try:
                size = os.write(self.fd, bytes(self._out[:FRAME]))
            except BlockingIOError:
                return
            except OSError:
                raise HostGoneError from None
            del self._out[:size]

    def send(self, kind: int, channel: int, data: bytes = b"") -> None:
        """Queue one frame, or several for long data."""
        for at in range(0, len(data) or 1, FRAME):
            piece = data[at : at + FRAME]
            self._out += HEAD.pack(kind, channel, len(piece)) + piece


class Drain:
    """Bytes from a descriptor to the host, by credit; at most ``left`` of them where that is given."""

    def __init__(self, wire: Wire, channel: int, descriptor: int, ended: Callable[[bool], None]) -> None:
        os.set_blocking(descriptor, False)
        self.fd, self.left, self._ended = descriptor, -1, ended
        self._wire, self._channel, self._window = wire, channel, WINDOW

    def want(self) -> int:
        """What to wait for."""
        return _IN if self._window > 0 and self._wire.room else 0

    def ready(self) -> None:
        """Take the next piece; ``ended`` is told whether it broke off."""
        size = min(FRAME, self._window, self.left) if self.left >= 0 else min(FRAME, self._window)
        try:
            data = os.read(self.fd, size)
        except BlockingIOError:
            return
        except OSError:
            self._ended(True)
            return
        self._window -= len(data)
        if data:
            self._wire.send(DATA, self._channel, data)
            self.left -= len(data) if self.left >= 0 else 0
        if not data or self.left == 0:
            self._ended(False)

    def credit(self, size: int) -> None:
        """The host took that much."""
        self._window += size


class Feed:
    """Bytes from the host to a descriptor. Where nobody reads them they are dropped; ``ended`` is told of that."""

    def __init__(self, wire: Wire, channel: int, descriptor: int, ended: Callable[[bool], None]) -> None:
        os.set_blocking(descriptor, False)
        self.fd, self._ended = descriptor, ended
        self._wire, self._channel = wire, channel
        self._buffer, self._last, self._over = bytearray(), False, False

    def want(self) -> int:
        """What to wait for."""
        return _OUT if self._buffer and not self._over else 0

    def ready(self) -> None:
        """Write the next piece."""
        try:
            size = os.write(self.fd, bytes(self._buffer[:FRAME]))
        except BlockingIOError:
            return
        except OSError:
            self._finish(broken=True)
            return
        del self._buffer[:size]
        self._credit(size)
        if self._last and not self._buffer:
            self._finish(broken=False)

    def data(self, data: bytes) -> None:
        """More for it."""
        if self._over:
            self._credit(len(data))
        else:
            self._buffer += data

    def end(self) -> None:
        """That was all."""
        self._last = True
        if not self._buffer and not self._over:
            self._finish(broken=False)

    @property
    def flushing(self) -> bool:
        """Whether the end was told, but not all is written yet."""
        return self._last and not self._over

    def _finish(self, *, broken: bool) -> None:
        self._over = True
        self._credit(len(self._buffer))
        self._buffer.clear()
        self._ended(broken)

    def drop(self) -> None:
        """Nobody reads it any more."""
        self._over = True
        self._buffer.clear()

    def _credit(self, size: int) -> None:
        if size:
            self._wire.send(CREDIT, self._channel, COUNT.pack(size))


class Collect:
    """Bytes from a descriptor into memory, at most ``cap`` of them; the last ones where ``tail`` is set."""

    def __init__(self, descriptor: int, cap: int, gone: Callable[[int], None], *, tail: bool) -> None:
        os.set_blocking(descriptor, False)
        self.fd, self.kept, self.over = descriptor, bytearray(), False
        self._cap, self._gone, self._tail = cap, gone, tail

    def want(self) -> int:
        """What to wait for."""
        return _IN

    def ready(self) -> None:
        """Take the next piece."""
        try:
            data = os.read(self.fd, FRAME)
        except BlockingIOError:
            return
        if not data:
            self._gone(self.fd)
        elif self._tail:
            self.kept = (self.kept + data)[-self._cap :]
        elif len(self.kept) + len(data) <= self._cap:
            self.kept += data
        else:
            self.over = True

    def rest(self) -> bytes:
        """What is kept, once nobody writes any more."""
        _exhaust(self)
        return b"" if self.over else bytes(self.kept)


class Output:
    """A command's output: its first half goes out as it comes, its last half at the end."""

    def __init__(self, wire: Wire, channel: int, descriptor: int, cap: int, gone: Callable[[int], None]) -> None:
        os.set_blocking(descriptor, False)
        self.fd, self._wire, self._channel, self._gone = descriptor, wire, channel, gone
        self._head, self._tail = cap // 2, cap - cap // 2
        self._kept, self._past = bytearray(), 0

    def want(self) -> int:
        """What to wait for."""
        return _IN if self._head == 0 or self._wire.room else 0

    def ready(self) -> None:
        """Take the next piece."""
        try:
            data = os.read(self.fd, FRAME)
        except BlockingIOError:
            return
        if not data:
            self._gone(self.fd)
            return
        live, data = data[: self._head], data[self._head :]
        if live:
            self._head -= len(live)
            self._wire.send(HEAD_OUTPUT, self._channel, live)
        if data:
            self._past += len(data)
            self._kept += data
            if len(self._kept) > 2 * self._tail + FRAME:
                del self._kept[: -self._tail]

    def finish(self) -> int:
        """Send the tail; the number of bytes that are missing before it."""
        _exhaust(self)
        tail = bytes(self._kept[-self._tail :])
        if tail:
            self._wire.send(TAIL_OUTPUT, self._channel, tail)
        return self._past - len(tail)


def _exhaust(end: Output | Collect) -> None:
    """Read what lies in a pipe whose writers are dead; not for ever, since in a mere folder one may have escaped."""
    for _ in range(64):
        if end.fd < 0:
            return
        poller = select.poll()
        poller.register(end.fd, _IN)
        if not poller.poll(0):
            return
        end.ready()


class Supervisor:
    """The loop, and what is going on: at most one command, and any number of transfers and connections."""

    def __init__(self, start: Mapping[str, Any], receive: int, wire: Wire, kernel: Kernel) -> None:
        self.start, self.wire, self.kernel = start, wire, kernel
        self.sweeps = bool(start["sweep"])
        self.landlock = Landlock(kernel, start["landlock"])
        self.ends: dict[int, Any] = {}
        self.channels: dict[int, Any] = {}
        self.children: dict[int, Callable[[int], None]] = {}
        self.command: Running | None = None
        self.packs: set[int] = set()
        self.last = TUNNEL
        self._receive, self._buffer, self._parts = receive, bytearray(), bytearray()
        self._woken, self._wake = os.pipe()

    def run(self) -> None:
        """Serve until the host is gone."""
        os.set_blocking(self._receive, False)
        os.set_blocking(self.wire.fd, False)
        os.set_blocking(self._woken, False)
        os.set_blocking(self._wake, False)
        _signal.signal(_signal.SIGCHLD, lambda *_: None)
        _signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        ports = [port for port in self.start["ports"] if Listener(self, port).fd >= 0]
        words = f"landlock {self.landlock.version}\nscoped {int(self.landlock.scoped)}\nports {len(ports)}\n"
        self.wire.send(HELLO, 0, (words + f"hidden {int(self.start['hidden'])}\n").encode())
        try:
            while self._turn():
                pass
        except HostGoneError:
            pass
        if self.command is not None:
            self.command.kill()

    def _turn(self) -> bool:
        self.wire.ready()
        poller = select.poll()
        poller.register(self._receive, _IN)
        poller.register(self._woken, _IN)
        if self.wire.want():
            poller.register(self.wire.fd, _OUT)
        for end in self.ends.values():
            mask = end.want()
            if mask:
                poller.register(end.fd, mask)
        until = self.command.until if self.command else None
        ready = poller.poll(None if until is None else max(0.0, until - time.monotonic()) * 1000 + 1)
        for fd, _ in ready:
            if fd == self._receive:
                if not self._take():
                    return False
            elif fd == self._woken:
                self.reap()
            elif fd in self.ends:
                self.ends[fd].ready()
        if self.command is not None and self.command.until <= time.monotonic():
            self.command.late()
        return True

    def _take(self) -> bool:
        try:
            data = os.read(self._receive, WINDOW)
        except BlockingIOError:
            return True
        except OSError:
            return False
        self._buffer += data
        while len(self._buffer) >= HEAD.size:
            kind, channel, length = HEAD.unpack(self._buffer[: HEAD.size])
            if len(self._buffer) < HEAD.size + length:
                break
            payload = bytes(self._buffer[HEAD.size : HEAD.size + length])
            del self._buffer[: HEAD.size + length]
            self._frame(kind, channel, payload)
        return bool(data)

    def _frame(self, kind: int, channel: int, payload: bytes) -> None:
        if kind == PART:
            self._parts += payload
        elif kind == ASK:
            asked = marshal.loads(bytes(self._parts) + payload)  # noqa: S302 - from the host, which we belong to
            self._parts.clear()
            try:
                _REQUESTS[asked[0]](self, channel, *asked[1:])
            except RefusedError as error:
                self.refuse(channel, str(error))
            except OSError as error:
                self.refuse(channel, f"cannot be used: {os.strerror(error.errno or 0)}")
        elif channel in self.channels:
            work = self.channels[channel]
            if kind == DATA:
                work.data(payload)
            elif kind == END:
                work.end()
            elif kind == CREDIT:
                work.credit(COUNT.unpack(payload)[0])
            elif kind == CLOSE:
                work.close()

    def add(self, end: Any) -> None:
        """Wait for a descriptor from now on."""
        self.ends[end.fd] = end

    def drop(self, fd: int) -> None:
        """Close a descriptor and wait for it no longer."""
        end = self.ends.pop(fd, None)
        if end is not None:
            end.fd = -1
            os.close(fd)

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
            _become(self.kernel, self.landlock, pipes)
            os.chdir(cwd)
            if before is not None:
                before()
            code = _execute(argv, env)
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
            while os.read(self._woken, 4096):
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
        until = time.monotonic() + _PATIENCE
        poller = select.poll()
        poller.register(self._woken, _IN)
        while time.monotonic() < until:
            try:
                os.kill(-1, _signal.SIGKILL)
            except ProcessLookupError:
                pass
            if not self.reap():
                return True
            poller.poll(20)
        return False


class Running:
    """One command from its start until nothing of it is left."""

    def __init__(self, supervisor: Supervisor, channel: int, asked: Mapping[str, Any]) -> None:
        self._supervisor, self._channel = supervisor, channel
        self._flags, self._code, self._over = 0, -1, False
        self._kills, self._before = _starved(), _bounds()
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
        self._output = Output(supervisor.wire, channel, reader, asked["cap"], supervisor.drop)
        supervisor.add(self._output)
        pipes = {0: given, 1: shown, 2: shown}
        if asked["session"]:
            reader, told = os.pipe()
            self._state = Collect(reader, STATE, supervisor.drop, tail=False)
            supervisor.add(self._state)
            pipes[_TELL] = told
        self.pid, cwd = 0, os.path.join(supervisor.start["work"], asked["cwd"])
        if asked["session"] and not os.path.isdir(cwd):
            os.write(shown, cwd + b" is gone; this began in the workspace\n")
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
        for kill in (os.killpg, os.kill):
            try:
                kill(self.pid, _signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                pass

    def _end_group(self) -> None:
        if self._code < 0:
            self.kill_group()
        until = time.monotonic() + _PATIENCE
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
        if _bounds() != self._before:
            self._flags |= (
                UNCLEAN  # its own user may change our limits, see prlimit(2): a new one has them as they were
            )
        supervisor.command = None
        code = self._code if self._code >= 0 and not self._flags & TIMED_OUT else 137
        supervisor.done(self._channel, code, self._flags, max(0, _starved() - self._kills), cut)

    def data(self, data: bytes) -> None:
        """More of its standard input."""
        if self._feed is not None:
            self._feed.data(data)

    def end(self) -> None:
        """The end of its standard input."""
        if self._feed is not None:
            self._feed.end()

    def credit(self, size: int) -> None:
        """Its output goes without credit: it is bounded."""

    def close(self) -> None:
        """The host wants it no more."""
        self.kill()


class Packing:
    """A folder as a tar stream. What the agent made unreadable would look deleted, so it is opened up first."""

    def __init__(self, supervisor: Supervisor, channel: int, root: bytes) -> None:
        self._supervisor, self._channel = supervisor, channel
        self._code, self._read = -1, False
        reader, shown = os.pipe()
        errors, said = os.pipe()
        given = os.open(os.devnull, os.O_RDONLY)
        argv = (*supervisor.start["tar"], *_CREATE)
        try:
            self._pid = supervisor.spawn(
                argv, supervisor.start["env"], root, {0: given, 1: shown, 2: said}, _make_readable
            )
        except OSError:
            os.close(reader)
            os.close(errors)
            raise
        finally:
            for fd in (given, shown, said):
                os.close(fd)
        self._drain = Drain(supervisor.wire, channel, reader, self._end_of_stream)
        self._errors = Collect(errors, 4096, supervisor.drop, tail=True)
        supervisor.add(self._drain)
        supervisor.add(self._errors)
        supervisor.channels[channel] = self
        supervisor.packs.add(channel)
        supervisor.children[self._pid] = self._ended

    def _end_of_stream(self, _: bool) -> None:
        self._read = True
        self._supervisor.drop(self._drain.fd)
        self._finish()

    def _ended(self, code: int) -> None:
        self._code = code
        self._finish()

    def _finish(self) -> None:
        if self._code < 0 or not self._read:
            return
        words = self._errors.rest().decode("utf-8", "replace").strip()[-500:]
        self._supervisor.drop(self._errors.fd)
        if self._code > 1:  # 1: a file changed while it was read
            self._supervisor.refuse(self._channel, f"tar ended with status {self._code}: {words}")
        else:
            self._supervisor.done(self._channel)
        self._release()

    def _release(self) -> None:
        self._supervisor.packs.discard(self._channel)
        if not self._supervisor.packs and self._supervisor.command is not None:
            self._supervisor.command.released()

    def credit(self, size: int) -> None:
        """The host took that much."""
        self._drain.credit(size)

    def data(self, data: bytes) -> None:
        """Nothing is expected."""

    def end(self) -> None:
        """Nothing is expected."""

    def close(self) -> None:
        """The host wants no more of it."""
        if self._code < 0:
            os.kill(self._pid, _signal.SIGKILL)
        if not self._read:
            self._end_of_stream(True)


class Unpacking:
    """A tar stream into a folder."""

    def __init__(self, supervisor: Supervisor, channel: int, root: bytes) -> None:
        self._supervisor, self._channel = supervisor, channel
        given, writer = os.pipe()
        errors, said = os.pipe()
        argv = (*supervisor.start["tar"], *_EXTRACT)
        try:
            self._pid = supervisor.spawn(argv, supervisor.start["env"], root, {0: given, 1: said, 2: said})
        except OSError:
            os.close(writer)
            os.close(errors)
            raise
        finally:
            os.close(given)
            os.close(said)
        self._feed = Feed(supervisor.wire, channel, writer, lambda _: supervisor.drop(writer))
        self._errors = Collect(errors, 4096, supervisor.drop, tail=True)
        supervisor.add(self._feed)
        supervisor.add(self._errors)
        supervisor.channels[channel] = self
        supervisor.children[self._pid] = self._ended

    def _ended(self, code: int) -> None:
        words = self._errors.rest().decode("utf-8", "replace").strip()[-500:]
        self._supervisor.drop(self._feed.fd)
        self._supervisor.drop(self._errors.fd)
        if code:
            self._supervisor.refuse(self._channel, f"tar ended with status {code}: {words}")
        else:
            self._supervisor.done(self._channel)

    def data(self, data: bytes) -> None:
        """More of the stream."""
        self._feed.data(data)

    def end(self) -> None:
        """Its end."""
        self._feed.end()

    def credit(self, size: int) -> None:
        """Nothing is sent."""

    def close(self) -> None:
        """The host gave up."""
        os.kill(self._pid, _signal.SIGKILL)


class Reading:
    """The beginning of a file."""

    def __init__(self, supervisor: Supervisor, channel: int, path: bytes, limit: int) -> None:
        self._supervisor, self._channel = supervisor, channel
        fd = _open_inside(supervisor.start["work"], path, os.O_RDONLY)
        self._drain = Drain(supervisor.wire, channel, fd, self._finish)
        self._drain.left = limit
        supervisor.add(self._drain)
        supervisor.channels[channel] = self
        if limit == 0:
            self._finish(False)

    def _finish(self, broken: bool) -> None:
        self._supervisor.drop(self._drain.fd)
        if broken:
            self._supervisor.refuse(self._channel, "cannot be read")
        else:
            self._supervisor.done(self._channel)

    def credit(self, size: int) -> None:
        """The host took that much."""
        self._drain.credit(size)

    def data(self, data: bytes) -> None:
        """Nothing is expected."""

    def end(self) -> None:
        """Nothing is expected."""

    def close(self) -> None:
        """The host wants no more of it."""
        self._finish(False)


class Writing:
    """A whole file. An existing one keeps its mode unless ``executable`` is asked for."""

    def __init__(self, supervisor: Supervisor, channel: int, path: bytes, executable: bool) -> None:
        self._supervisor, self._channel = supervisor, channel
        self._fd, new = _create_inside(supervisor.start["work"], path)
        self._mode = 0o755 if executable else 0o644 if new else None
        supervisor.channels[channel] = self

    def data(self, data: bytes) -> None:
        """More of it."""
        left = data
        try:
            while left:
                left = left[os.write(self._fd, left) :]
        except OSError as error:
            os.close(self._fd)
            self._supervisor.refuse(self._channel, f"cannot be used: {os.strerror(error.errno or 0)}")
            return
        self._supervisor.wire.send(CREDIT, self._channel, COUNT.pack(len(data)))

    def end(self) -> None:
        """Its end."""
        if self._mode is not None:
            os.fchmod(self._fd, self._mode)
        os.close(self._fd)
        self._supervisor.done(self._channel)

    def credit(self, size: int) -> None:
        """Nothing is sent."""

    def close(self) -> None:
        """The host gave up."""
        os.close(self._fd)
        self._supervisor.refuse(self._channel, "given up")


class Listener:
    """A port on the loopback; what connects to it becomes a channel."""

    def __init__(self, supervisor: Supervisor, port: int) -> None:
        self._supervisor, self._port, self.fd = supervisor, port, -1
        self._socket = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM | _socket.SOCK_NONBLOCK)
        try:
            self._socket.setsockopt(_socket.SOL_SOCKET, _socket.SO_REUSEADDR, 1)
            self._socket.bind(("127.0.0.1", port))
            self._socket.listen(CONNECTIONS)
        except OSError:
            self._socket.close()
            return
        self.fd = self._socket.fileno()
        supervisor.add(self)

    def want(self) -> int:
        """What to wait for: over the cap, the next ones wait in the kernel."""
        full = sum(1 for channel in self._supervisor.channels if channel >= TUNNEL) >= CONNECTIONS
        return 0 if full or not self._supervisor.wire.room else _IN

    def ready(self) -> None:
        """Take the next connection."""
        try:
            fd, _ = self._socket._accept()  # type: ignore[attr-defined]
        except OSError:
            return  # it went away, or there is no descriptor free: it waits
        Tunnel(self._supervisor, fd, self._port)


class Tunnel:
    """One connection made inside. Each direction ends by itself; what breaks it off is told as CLOSE."""

    def __init__(self, supervisor: Supervisor, fd: int, port: int) -> None:
        supervisor.last = supervisor.last + 1 if supervisor.last < 0xFFFFFFFF else TUNNEL
        self._supervisor, self._channel = supervisor, supervisor.last
        self._socket = _socket.socket(fileno=fd)
        self._drain = Drain(supervisor.wire, self._channel, fd, self._inner_end)
        self._feed = Feed(supervisor.wire, self._channel, os.dup(fd), self._outer_end)
        self._half = False
        supervisor.add(self._drain)
        supervisor.add(self._feed)
        supervisor.channels[self._channel] = self
        supervisor.wire.send(OPEN, self._channel, COUNT.pack(port))

    def _inner_end(self, broken: bool) -> None:
        if broken:
            self._break()
            return
        self._supervisor.ends.pop(self._drain.fd)
        self._supervisor.wire.send(END, self._channel)
        self._one_of_two()

    def _outer_end(self, broken: bool) -> None:
        if broken:
            self._break()
            return
        try:
            self._socket.shutdown(_socket.SHUT_WR)
        except OSError:
            pass
        self._one_of_two()

    def _one_of_two(self) -> None:
        if self._half:
            self.close()
        self._half = True

    def _break(self) -> None:
        self._supervisor.wire.send(CLOSE, self._channel)
        self._feed.drop()
        self.close()

    def data(self, data: bytes) -> None:
        """From the host."""
        self._feed.data(data)

    def end(self) -> None:
        """The host says no more."""
        self._feed.end()

    def credit(self, size: int) -> None:
        """The host took that much."""
        self._drain.credit(size)

    def close(self) -> None:
        """Let go of it, once what the host said before is read."""
        if self._feed.flushing:
            self._supervisor.ends.pop(self._socket.fileno(), None)
            self._half = True
        elif self._supervisor.channels.pop(self._channel, None) is not None:
            self._supervisor.ends.pop(self._socket.fileno(), None)
            self._supervisor.drop(self._feed.fd)
            self._socket.close()


def _ping(supervisor: Supervisor, channel: int) -> None:
    supervisor.done(channel)


_REQUESTS: dict[str, Callable[..., Any]] = {
    "run": Running,
    "pack": Packing,
    "unpack": Unpacking,
    "read": Reading,
    "write": Writing,
    "ping": _ping,
}


def _become(kernel: Kernel, landlock: Landlock, pipes: Mapping[int, int]) -> None:
    """In the child: a command's own signals, limits and descriptors."""
    for number in (_signal.SIGPIPE, _signal.SIGXFSZ, _signal.SIGCHLD):
        _signal.signal(number, _signal.SIG_DFL)
    kernel.prctl(_SET_DUMPABLE, 1)  # without it the next file would not be ours
    kernel.prctl(_SET_DEATH_SIGNAL, _signal.SIGKILL)
    try:
        score = os.open("/proc/self/oom_score_adj", os.O_WRONLY | os.O_CLOEXEC)
        os.write(score, b"1000")
        os.close(score)
    except OSError:
        pass
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for inside in (0, 1, 2):
        os.dup2(pipes[inside], inside)
    landlock.restrict()  # before its own descriptor may be covered
    if _TELL in pipes:
        os.dup2(pipes[_TELL], _TELL)
        os.set_inheritable(_TELL, True)  # where both were the same


def _execute(argv: tuple[bytes, ...], env: Mapping[bytes, bytes]) -> int:
    """Replace this process as a shell would find the program; a shell's exit code where it cannot."""
    name, said, code = argv[0], "not found", 127
    places = [b""] if b"/" in name else env.get(b"PATH", b"/usr/bin:/bin").split(b":")
    for place in places:
        path = os.path.join(place, name)
        try:
            os.execve(path, argv, env)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            if error.errno == errno.ENOEXEC:  # a script without a first line that names its shell
                os.execve(b"/bin/sh", [b"sh", path, *argv[1:]], env)
            code, said = 126, error.strerror or "cannot be run"
    os.write(2, name + f": {said}\n".encode())
    return code


def _make_readable() -> None:
    """In the child, from the working folder down: what lacks its owner's right to be read gets it."""
    folders = ["."]
    while folders:
        folder = folders.pop()
        try:
            _ensure(folder, 0o500)
            with os.scandir(folder) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
                    elif entry.is_file(follow_symlinks=False):
                        _ensure(entry.path, 0o400)
        except OSError:
            continue  # tar will say so


def _ensure(path: str, bits: int) -> None:
    mode = os.lstat(path).st_mode
    if mode & bits != bits:
        os.chmod(path, stat.S_IMODE(mode) | bits)


def _parts_inside(root: bytes, path: bytes) -> list[bytes]:
    """The names below the root that lead to a path, links resolved. Raises RefusedError when it leads out."""
    top = os.path.realpath(root)
    real = os.path.realpath(os.path.join(top, path))
    if not real.startswith(top.rstrip(b"/") + b"/"):
        raise RefusedError(OUTSIDE)
    return real[len(top.rstrip(b"/")) + 1 :].split(b"/")


def _folder_inside(root: bytes, names: Sequence[bytes], *, make: bool) -> int:
    """The folder, opened step by step, so that a link that appears meanwhile is not followed. Raises OSError."""
    fd = os.open(os.path.realpath(root), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for name in names:
            if make:
                try:
                    os.mkdir(name, 0o755, dir_fd=fd)
                except FileExistsError:
                    pass
            below = os.open(name, os.O_RDONLY | os.O_DIRECTORY | _OPEN, dir_fd=fd)
            os.close(fd)
            fd = below
    except OSError:
        os.close(fd)
        raise
    return fd


def _open_inside(root: bytes, path: bytes, flags: int) -> int:
    *folders, name = _parts_inside(root, path)
    try:
        folder = _folder_inside(root, folders, make=False)
    except (FileNotFoundError, NotADirectoryError):
        raise RefusedError(MISSING) from None
    try:
        if not stat.S_ISREG(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            raise RefusedError(NOT_A_FILE)
        return os.open(name, flags | _OPEN, dir_fd=folder)
    except FileNotFoundError:
        raise RefusedError(MISSING) from None
    finally:
        os.close(folder)


def _create_inside(root: bytes, path: bytes) -> tuple[int, bool]:
    """A file to write, emptied, and whether it is new."""
    *folders, name = _parts_inside(root, path)
    folder = _folder_inside(root, folders, make=True)
    try:
        try:
            mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
        except FileNotFoundError:
            return os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _OPEN, 0o644, dir_fd=folder), True
        if not stat.S_ISREG(mode):
            raise RefusedError(NOT_A_FILE)
        return os.open(name, os.O_WRONLY | os.O_TRUNC | _OPEN, dir_fd=folder), False
    finally:
        os.close(folder)


def _put(path: bytes, data: bytes) -> None:
    """A file that programs here have to find, in place of whatever lies there."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _OPEN, 0o644)
    os.write(fd, data)
    os.close(fd)


def _bounds() -> tuple[object, ...]:
    """All that another process of the same user could have changed about us for good."""
    limits = tuple(resource.getrlimit(number) for number in range(16))  # RLIM_NLIMITS, which Python does not name
    return limits, os.getpriority(os.PRIO_PROCESS, 0), os.sched_getscheduler(0), os.sched_getaffinity(0)


def _starved() -> int:
    """How many processes of this sandbox the kernel killed for want of memory, where that can be read here."""
    for path in ("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control"):
        try:
            with open(path, "rb") as file:
                for line in file.read(4096).splitlines():
                    name, _, value = line.partition(b" ")
                    if name == b"oom_kill":
                        return int(value)
        except (OSError, ValueError):
            continue
    return 0


def main(start: dict[str, Any]) -> None:
    """Take the two ends of the stream from standard input and output, hide, and serve."""
    if start["sweep"] and not may_sweep(os.getuid(), process_namespace(), start["host"]):
        os.write(2, b"this is no sandbox of its own, so nothing may be swept here\n")
        raise SystemExit(3)
    receive, wire = os.dup(0), Wire(os.dup(1))
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1):
        os.dup2(null, fd)
    os.close(null)
    os.umask(0o022)
    kernel = Kernel()
    kernel.prctl(_SET_SUBREAPER, 1)
    for path, data in start["files"]:
        _put(path, data)
    start["hidden"] = kernel.prctl(_SET_DUMPABLE, 0) == 0
    Supervisor(start, receive, wire, kernel).run()
    os._exit(0)  # there is nothing to tidy up, and tidying takes longer than most commands
