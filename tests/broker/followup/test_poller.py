"""The thread that looks: its pace, its patience, and its end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from broker.errors import BrokerError, FencedError, ForgeError
from broker.followup.poller import Poller


class Looks:
    """A look that counts, and fails as often as it is told."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self.hinted: list[bool] = []
        self.errors: list[Exception] = []
        self.reports: list[str] = []
        self.gate: threading.Event | None = None

    def __call__(self, hinted: bool) -> None:
        self.times.append(time.monotonic())
        self.hinted.append(hinted)
        if self.gate is not None:
            self.gate.wait(5)
        if self.errors:
            raise self.errors.pop(0)

    def until(self, count: int, seconds: float = 5.0) -> None:
        end = time.monotonic() + seconds
        while len(self.times) < count:
            assert time.monotonic() < end, f"{len(self.times)} looks"
            time.sleep(0.005)


Start = Callable[..., Poller]


@pytest.fixture
def looks() -> Looks:
    return Looks()


@pytest.fixture
def start(looks: Looks) -> Iterator[Start]:
    made: list[Poller] = []

    def begin(pause: float = 60.0, gap: float = 0.01) -> Poller:
        made.append(Poller("demo", looks, lambda: pause, looks.reports.append, gap=gap))
        made[-1].start()
        return made[-1]

    yield begin
    for poller in made:
        poller.close()


def test_it_looks_at_once_and_then_at_its_pace(start: Start, looks: Looks) -> None:
    began = time.monotonic()
    start(pause=0.1)
    looks.until(3)
    assert looks.times[0] - began < 0.1
    assert looks.times[2] - looks.times[0] >= 0.15  # the pause varies a little


def test_a_hint_shortens_the_wait(start: Start, looks: Looks) -> None:
    poller = start()
    looks.until(1)
    poller.hint()
    looks.until(2)
    assert looks.hinted == [False, True]


def test_a_flood_of_hints_makes_one_look_a_gap(start: Start, looks: Looks) -> None:
    poller = start(gap=0.3)
    looks.until(1)
    for _ in range(2000):
        poller.hint()
    looks.until(2)
    for _ in range(2000):
        poller.hint()
    time.sleep(0.1)
    assert len(looks.times) == 2
    assert looks.times[1] - looks.times[0] >= 0.29


def test_a_hint_during_a_look_is_not_lost(start: Start, looks: Looks) -> None:
    looks.gate = threading.Event()
    poller = start()
    looks.until(1)
    poller.hint()
    looks.gate.set()
    looks.until(2)


def test_an_ill_forge_is_left_in_peace_though_hints_come(start: Start, looks: Looks) -> None:
    looks.errors = [ForgeError("rate limit", when=time.time() + 30)]
    poller = start(pause=0.01)
    looks.until(1)
    for _ in range(100):
        poller.hint()
    time.sleep(0.15)
    assert len(looks.times) == 1
    assert looks.reports == ["rate limit"]


@pytest.mark.parametrize(
    "error", [ForgeError("down"), BrokerError("disk"), RuntimeError("a token: s3cret"), KeyError("x")]
)
def test_no_failure_ends_the_following_and_each_is_told_once(start: Start, looks: Looks, error: Exception) -> None:
    looks.errors = [error]
    poller = start(pause=0.01)
    looks.until(3)
    poller.close()
    assert len(looks.reports) == 2
    assert looks.reports[1] == ""
    assert "s3cret" not in looks.reports[0]


def test_it_ends_for_good_once_another_broker_has_taken_over(looks: Looks) -> None:
    looks.errors = [FencedError("another broker has taken over")]
    told: list[FencedError] = []
    poller = Poller("demo", looks, lambda: 0.01, looks.reports.append, fenced=told.append, gap=0.01)
    poller.start()
    looks.until(1)
    time.sleep(0.1)
    poller.hint()
    time.sleep(0.1)
    assert len(looks.times) == 1
    assert len(told) == 1
    assert looks.reports == []
    poller.close()


def test_a_log_that_cannot_be_written_does_not_end_the_looks(looks: Looks) -> None:
    def report(_reason: str) -> None:
        raise OSError(28, "no space left on device")

    looks.errors = [OSError(28, "no space left on device"), ForgeError("down")]
    poller = Poller("demo", looks, lambda: 0.01, report, gap=0.01)
    poller.start()
    looks.until(4)
    poller.close()


def test_it_ends_at_once_while_it_waits(start: Start, looks: Looks) -> None:
    poller = start()
    looks.until(1)
    began = time.monotonic()
    poller.close()
    assert time.monotonic() - began < 10
    poller.hint()
    time.sleep(0.05)
    assert len(looks.times) == 1


def test_the_end_waits_for_a_look_but_not_for_ever(start: Start, looks: Looks) -> None:
    looks.gate = threading.Event()
    poller = start()
    looks.until(1)
    began = time.monotonic()
    poller.close(patience=0.2)
    assert 0.15 < time.monotonic() - began < 20
    looks.gate.set()
