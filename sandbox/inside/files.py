"""Single files, below the workspace and nowhere else."""

from __future__ import annotations

import os
import stat

from sandbox.inside.ends import Drain
from sandbox.inside.protocol import COUNT, CREDIT, MISSING, NOT_A_FILE, OUTSIDE, RefusedError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from sandbox.inside.keeper import Keeper


_OPEN = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


class Reading:
    """The beginning of a file."""

    def __init__(self, supervisor: Keeper, channel: int, path: bytes, limit: int) -> None:
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

    def __init__(self, supervisor: Keeper, channel: int, path: bytes, executable: bool) -> None:
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


def put(path: bytes, data: bytes) -> None:
    """A file that programs here have to find, in place of whatever lies there."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
    except OSError:  # a folder
        os.rename(path, path + b".%d" % os.getpid())
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _OPEN, 0o644)
    os.write(fd, data)
    os.close(fd)
