"""One command, or lines one after the other, in a sandbox: its output streamed, Ctrl-C for the command alone."""

from __future__ import annotations

import asyncio
import codecs
import fcntl
import os
import re
import shlex
import signal
import stat
import sys
import termios
from collections.abc import Callable, Sequence

import typer

from sandbox.base import Sandbox
from sandbox.errors import SandboxPathError
from sandbox.types import Command, Outcome
from swarm.cli import screen
from swarm.cli.clean import clean
from swarm.cli.exits import Code
from swarm.errors import ConfigError

_LEAVE = re.compile(r"\s*(exit|logout)(\s+(\d{1,3}))?\s*;?\s*\Z")
_PROMPT = "sandbox$ "
INTERRUPTED = 130
MOST_GIVEN = 64 << 20  # bytes of standard input
_LONGEST = 16 << 20  # bytes of a line
_MISSING = 127


async def piped_in() -> bytes:
    """All of standard input, for one command. Raises ConfigError where it is too much."""
    data = bytearray()
    while chunk := await _chunk():
        data += chunk
        if len(data) > MOST_GIVEN:
            what = f"standard input holds more than {MOST_GIVEN >> 20} MiB"
            raise ConfigError(what, "put it into a file of DIR, and name that in the command")
    return bytes(data)


async def command(box: Sandbox, argv: Sequence[str], stdin: bytes = b"") -> int:
    """Run one command to its end; its exit code."""
    session = _Session(box)
    with session.attentive():
        code = await session.run(Command(argv=tuple(argv), stdin=stdin, whole=True))
    if not stdin and _waiting():
        screen.hint("what is piped in was not given to the command; with --stdin it is")
    if code == _MISSING and len(argv) == 1 and " " in argv[0]:
        screen.hint(
            f"one word with blanks is the name of a program; for a shell's line: -- sh -c {shlex.quote(argv[0])}"
        )
    return code


def _waiting() -> bool:
    """Whether a pipe or file at standard input holds something nobody reads."""
    try:
        kind = os.fstat(0).st_mode
        if not (stat.S_ISFIFO(kind) or stat.S_ISREG(kind)):
            return False
        return int.from_bytes(fcntl.ioctl(0, termios.FIONREAD, bytes(4)), sys.byteorder) > 0
    except OSError:
        return False


async def lines(box: Sandbox) -> int:
    """Run lines of standard input, each in the folder and with the variables of the last; the last exit code.

    A prompt is shown where a person types.
    """
    session, code, person, typed = _Session(box), 0, sys.stdin.isatty(), _Lines()
    with session.attentive():
        while (line := await typed.next(person=person)) is not None:
            if leaving := _LEAVE.match(line):
                return int(leaving[3]) & 255 if leaving[3] else code
            if line.strip():
                code = await session.run(Command(argv=("sh", "-c", line), session=True, whole=True))
    if person:
        screen.hint("exit")
    return code


class _Lines:
    """Lines of standard input, waited for without a thread, which could not be ended before its line comes."""

    def __init__(self) -> None:
        self._held, self._ended = b"", False

    async def next(self, *, person: bool) -> str | None:
        """The next line, None at the end. Raises ConfigError for one without an end."""
        if person:
            sys.stderr.write(_PROMPT)
            sys.stderr.flush()
        while b"\n" not in self._held and not self._ended:
            chunk = await _chunk()
            self._held, self._ended = self._held + chunk, not chunk
            if len(self._held) > _LONGEST and b"\n" not in self._held:
                raise ConfigError("a line of standard input is longer than 16 MiB", "put it into a file of DIR")
        if not self._held:
            return None
        line, _, self._held = self._held.partition(b"\n")
        try:
            return line.decode()
        except UnicodeDecodeError as error:
            raise ConfigError("a line of standard input is not UTF-8", "put it into a file of DIR") from error


async def _chunk() -> bytes:
    """Some bytes of standard input, none at its end or when its terminal is gone."""
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    try:
        loop.add_reader(0, ready.set)
    except PermissionError:  # epoll takes no plain file, which never lets one wait
        pass
    except OSError:
        return b""
    else:
        try:
            await ready.wait()
        finally:
            loop.remove_reader(0)
    try:
        return os.read(0, 1 << 16)
    except OSError:
        return b""


class _Session:
    """Runs commands one at a time, and lets Ctrl-C end the one that runs."""

    def __init__(self, box: Sandbox) -> None:
        self._box = box
        self._running: asyncio.Task[Outcome] | None = None
        self._stopped = False

    def attentive(self) -> _Attention:
        """Ctrl-C goes to the running command while this is held."""
        return _Attention(self._interrupt)

    async def run(self, asked: Command) -> int:
        """One command, its output printed as it comes; its exit code. Never raises for what it does."""
        printer = _Printer()
        self._running = asyncio.ensure_future(self._box.run(asked, printer.add))
        self._stopped = False
        try:
            outcome = await self._running
        except asyncio.CancelledError:
            if not self._stopped:
                raise
            printer.end()
            return INTERRUPTED
        except SandboxPathError as error:
            screen.hint(str(error))
            return 126
        finally:
            self._running = None
        printer.end()
        _remark(outcome, asked)
        return outcome.exit_code

    def _interrupt(self) -> None:
        if self._running is not None and not self._running.done():
            self._stopped = True
            self._running.cancel()
        elif sys.stdin.isatty():
            sys.stderr.write("\n" + _PROMPT)
            sys.stderr.flush()


class _Attention:
    """Holds the handler of Ctrl-C, and gives back the one before."""

    def __init__(self, act: Callable[[], None]) -> None:
        self._act = act

    def __enter__(self) -> None:
        self._before = signal.getsignal(signal.SIGINT)
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, self._act)

    def __exit__(self, *_: object) -> None:
        asyncio.get_running_loop().remove_signal_handler(signal.SIGINT)
        signal.signal(signal.SIGINT, self._before)


class _Printer:
    """Prints bytes from inside: cleaned for a terminal, so that they cannot steer it, else as they are."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._terminal = sys.stdout.isatty()

    def add(self, data: bytes) -> None:
        """Some output. Raises ConfigError where it cannot be written, so that none is missing without a word."""
        self._write(clean(self._decoder.decode(data)) if self._terminal else data)

    def end(self) -> None:
        """Whatever is still held back."""
        if self._terminal:
            self._write(clean(self._decoder.decode(b"", final=True)))

    def _write(self, piece: str | bytes) -> None:
        try:
            if isinstance(piece, bytes):
                sys.stdout.buffer.write(piece)
            else:
                sys.stdout.write(piece)
            sys.stdout.flush()
        except BrokenPipeError:
            screen.hush()
            raise typer.Exit(Code.PIPE) from None
        except OSError as error:
            screen.hush()  # what is held back would be tried again at the end, and fail without words
            what = f"standard output cannot be written: {error.strerror}, so what came out is not all"
            raise ConfigError(what, "make room there, or send it elsewhere") from error


def _remark(outcome: Outcome, asked: Command) -> None:
    """What a person has to know beside the output."""
    words = shlex.join(asked.argv[2:] if asked.session else asked.argv)[:60]
    if outcome.timed_out:
        screen.hint(f"[stopped after {outcome.seconds:.0f} s: {words}; sandbox.limits.wall is the limit]")
    if outcome.out_of_memory:
        screen.hint("[the kernel killed something for want of memory; sandbox.limits.memory is the limit]")
