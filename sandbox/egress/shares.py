"""What one sandbox may have of a way out at a time and in all. Counters, bounded."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from sandbox.egress.refusal import Refusal, RefusedError

SANDBOX = "sandbox"  # the label that names one sandbox
_REMEMBERED = 10_000  # sandboxes whose bytes are remembered


def holder(labels: Mapping[str, str]) -> str:
    """Whose share it is: the sandbox's; where it has no name, that of all with the same labels."""
    return labels.get(SANDBOX) or repr(sorted(labels.items()))


class Places:
    """At most ``most`` of something at a time for each holder."""

    def __init__(self, most: int, what: str) -> None:
        self._most = most
        self._what = what
        self._taken: dict[str, int] = {}

    @contextmanager
    def one(self, who: str) -> Iterator[None]:
        """One of them while inside. Raises RefusedError where the holder has all of its own."""
        if self._taken.get(who, 0) >= self._most:
            raise RefusedError(Refusal(429, f"a sandbox has at most {self._most} {self._what} at a time"))
        self._taken[who] = self._taken.get(who, 0) + 1
        try:
            yield
        finally:
            self._taken[who] -= 1
            if not self._taken[who]:
                del self._taken[who]


class Totals:
    """Bytes that each holder had so far; whoever asked longest ago is forgotten first."""

    def __init__(self, answer: int, total: int) -> None:
        self.answer = answer
        self.total = total
        self._had: OrderedDict[str, int] = OrderedDict()

    def had(self, who: str) -> int:
        """Bytes so far."""
        return self._had.get(who, 0)

    def add(self, who: str, length: int) -> None:
        """Count bytes."""
        self._had[who] = self._had.pop(who, 0) + length
        if len(self._had) > _REMEMBERED:
            self._had.popitem(last=False)

    def purse(self, who: str) -> OneAnswer:
        """The purse of one answer to a holder."""
        return OneAnswer(self, who)


class OneAnswer:
    """A purse: bounds one answer, and with all others of its holder their sum."""

    def __init__(self, totals: Totals, who: str) -> None:
        self._totals = totals
        self._who = who
        self._length = 0

    def fits(self, length: int) -> None:
        """Raises RefusedError where so many more bytes would be too many."""
        if self._length + length > self._totals.answer:
            raise RefusedError(Refusal(403, f"the answer is longer than the {self._totals.answer} bytes allowed"))
        if self._totals.had(self._who) + length > self._totals.total:
            raise RefusedError(Refusal(403, f"this sandbox has had the {self._totals.total} bytes allowed to it"))

    def take(self, length: int) -> None:
        """Count them. Raises RefusedError where they are too many."""
        self.fits(length)
        self._length += length
        self._totals.add(self._who, length)
