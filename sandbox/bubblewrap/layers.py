"""Where a sandbox's work and home lie, in layers: a fork freezes what there is and gives both a new layer on top. Pure.

A layer is a tmpfs, mounted at a numbered place of the sandbox's own mount namespace. The lowest is shown as it is; with
frozen layers below, an overlay shows them together. Only the standard library is imported: the helper shares this.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

PLACE = "/mnt"  # covered in these namespaces only
SLOTS = 20
DEEPEST = 16
FILTER = 3  # descriptor on which the helper's child holds the compiled rules
_LEAST_BYTES, _LEAST_FILES = 64 * 1024, 64


@dataclass(frozen=True)
class Store:
    """One writable place: its limits, the frozen layers (newest first) and the slot of the layer that is written to."""

    name: str
    size: int
    inodes: int
    mode: int
    executable: bool = True
    frozen: tuple[int, ...] = ()
    slot: int = 0

    def layer(self, slot: int) -> str:
        """Where a layer is mounted."""
        return f"{PLACE}/{self.name}/{slot}"

    @property
    def shown(self) -> str:
        """The folder that the sandbox sees."""
        return self.layer(self.slot) + ("/top" if self.frozen else "")

    @property
    def lowers(self) -> tuple[str, ...]:
        """Folders of the frozen layers, newest first; only the lowest was shown without an overlay."""
        return tuple(
            self.layer(slot) + ("/up" if at < len(self.frozen) - 1 else "") for at, slot in enumerate(self.frozen)
        )

    @property
    def deep(self) -> bool:
        """Whether it has to be copied into one layer before it can be frozen again."""
        return len(self.frozen) >= DEEPEST

    def parted(self) -> Store:
        """Both sides of a fork, each with a new layer of its own on what was frozen."""
        return self._on((self.slot, *self.frozen))

    def flattened(self) -> Store:
        """The same content as one layer."""
        return self._on(())

    def _on(self, frozen: tuple[int, ...]) -> Store:
        free = next(slot for slot in range(SLOTS) if slot not in {self.slot, *self.frozen})
        return replace(self, frozen=frozen, slot=free)


def room_left(store: Store, used_bytes: int, used_files: int) -> tuple[int, int]:
    """Bytes and files of a new layer; what the frozen ones hold counts. Never 0, which would be no limit."""
    return max(store.size - used_bytes, _LEAST_BYTES), max(store.inodes - used_files, _LEAST_FILES)


def to_json(stores: tuple[Store, ...]) -> list[dict[str, Any]]:
    """Plain data for the helper."""
    return [dict(vars(store)) for store in stores]


def from_json(stores: list[dict[str, Any]]) -> tuple[Store, ...]:
    """The other way round."""
    return tuple(Store(**(fields | {"frozen": tuple(fields["frozen"])})) for fields in stores)
