"""Landlock as it is asked for."""

from __future__ import annotations

import os

from sandbox.inside import kernel


def test_landlock_is_asked_for_by_what_the_kernel_knows() -> None:
    class Pretend:
        def __init__(self, version: int) -> None:
            self.version = version
            self.calls: list[tuple[int | bytes | None, ...]] = []

        def prctl(self, option: int, value: int) -> int:
            return 0

        def syscall(self, *arguments: int | bytes | None) -> int:
            self.calls.append(arguments)
            if arguments[0] == 444 and arguments[1] is None:
                return self.version
            return os.dup(0) if arguments[0] == 444 else 0

    asked = {"read": ("/",), "write": ("/tmp",), "write_data": ("/no/such",), "devices": ("/dev/null",), "scoped": True}
    for version, size, handled, scoped in (
        (1, 8, (1 << 13) - 1, False),
        (2, 8, (1 << 14) - 1, False),
        (3, 8, (1 << 15) - 1, False),
        (4, 16, (1 << 15) - 1, False),
        (5, 16, (1 << 16) - 1, False),
        (6, 24, (1 << 16) - 1, True),
        (7, 24, (1 << 16) - 1, True),
    ):
        pretend = Pretend(version)
        landlock = kernel.Landlock(pretend, asked)  # type: ignore[arg-type]
        assert (landlock.version, landlock.scoped) == (version, scoped)
        made = pretend.calls[1]
        assert made[2] == size
        assert int.from_bytes(made[1][:8], "little") == handled  # type: ignore[index]
        rules = [int.from_bytes(call[3][:8], "little") for call in pretend.calls[2:]]  # type: ignore[index]
        assert len(rules) == 3, "an absent place is left out"
        assert all(rule & ~handled == 0 for rule in rules)
        assert not any(rule & (1 << 6 | 1 << 11) for rule in rules), "nobody makes device files"
    off = Pretend(0)
    assert kernel.Landlock(off, asked).version == 0  # type: ignore[arg-type]
    assert kernel.Landlock(Pretend(7), None).version == 0  # type: ignore[arg-type]
