"""The classes of requests: their ranks, how a waiting one rises, and which free places a class may take; pure."""

from __future__ import annotations

from collections.abc import Sequence

from pool.config import AdmissionConfig, ClassConfig
from pool.types import RequestClass

OVERDUE = 0  # the level above all classes: who aged out of the best one is served first come, first served
RANKS: dict[RequestClass, int] = {"interactive": 1, "default": 2, "bulk": 3}
LEVELS = len(RANKS) + 1


class Classes:
    """The settings of the classes by rank, 1 the best."""

    def __init__(self, settings: AdmissionConfig) -> None:
        self._by_rank: tuple[ClassConfig, ...] = (settings.interactive, settings.default, settings.bulk)

    def of(self, rank: int) -> ClassConfig:
        """Settings of a rank."""
        return self._by_rank[rank - 1]

    def reserved(self, rank: int, capacity: int, held: Sequence[int]) -> int:
        """Free places that this rank must leave to the ones above it.

        ``held`` are the places that each rank has (index 0 unused). A floor is rounded down, so that an endpoint with
        few places is not closed to everybody but the best class.
        """
        return sum(
            max(0, int(capacity * self.of(above).floor) - held[above])
            for above in range(1, rank)
            if self.of(above).floor
        )
