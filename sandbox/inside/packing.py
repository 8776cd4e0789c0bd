"""Folders as tar streams, out and in."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import os
import stat

from sandbox.inside.ends import Collect, Drain, Feed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sandbox.inside.keeper import Keeper


_RECORD = b"--blocking-factor=128"  # 64 KiB at a time, not 10
_CREATE = (b"--create", b"--format=gnu", b"--sparse", b"--sort=name", _RECORD, b"--file=-", b".")
_EXTRACT = (b"--extract", b"--no-same-owner", b"--no-same-permissions", _RECORD, b"--file=-")


class Packing:
    """A folder as a tar stream. What the agent made unreadable would look deleted, so it is opened up first."""

    def __init__(self, supervisor: Keeper, channel: int, root: bytes) -> None:
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

    def __init__(self, supervisor: Keeper, channel: int, root: bytes) -> None:
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
