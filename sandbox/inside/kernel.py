"""The calls that Python's library lacks, and Landlock by them."""

from __future__ import annotations

import os
import stat
import struct

try:
    import _ctypes
except ImportError:  # a minimal Python has none, and then it must still start
    _ctypes = None  # type: ignore[assignment]

from sandbox.inside.protocol import RefusedError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any


SET_DEATH_SIGNAL, SET_DUMPABLE, SET_SUBREAPER, SET_NO_NEW_PRIVILEGES = 1, 4, 36, 38


class Kernel:
    """The calls that Python's library lacks. Where `_ctypes` is missing everything answers -1."""

    def __init__(self) -> None:
        self._call: Callable[..., int] | None = None
        if _ctypes is None:
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
        self._kernel.prctl(SET_NO_NEW_PRIVILEGES, 1)
        if self.version and self._kernel.syscall(446, self._rules, 0):
            raise RefusedError("Landlock cannot be entered")
