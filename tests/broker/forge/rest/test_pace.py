"""A forge's limits are obeyed, content is spaced, and a long wait is an error with a time, never a hang."""

from __future__ import annotations

import threading

import pytest

from broker.errors import ForgeError
from broker.forge.rest.pace import Answered, Pace, Paces, Tempo, Window, is_limit, spent, wait_for

NOW = 1_000_000.0
SECONDARY = "You have exceeded a secondary rate limit. Please wait a few minutes before you try again."


class Clock:
    """Time that passes by sleeping alone."""

    def __init__(self) -> None:
        self.now, self.slept = NOW, []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


def pace(clock: Clock, **tempo: float) -> Pace:
    return Pace("forge.example", Tempo(**tempo), clock=clock, sleep=clock.sleep)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("answer", "limit"),
    [
        (Answered(429, {}), True),
        (Answered(403, {}, SECONDARY), True),
        (Answered(403, {"retry-after": "5"}), True),
        (Answered(403, {"x-ratelimit-remaining": "0"}), True),
        (Answered(403, {"x-ratelimit-remaining": "12"}, "Resource not accessible by integration"), False),
        (Answered(422, {}, '{"errors":[{"message":"was submitted too quickly"}]}'), True),
        (Answered(422, {}, "Validation Failed"), False),
        (Answered(401, {}), False),
        (Answered(200, {"x-ratelimit-remaining": "0"}), False),
    ],
)
def test_a_limit_is_told_from_a_lack_of_rights(answer, limit):
    assert is_limit(answer) is limit


@pytest.mark.parametrize(
    ("headers", "strikes", "wait"),
    [
        ({"retry-after": "7"}, 3, 7),
        ({"retry-after": "7", "x-ratelimit-remaining": "0", "x-ratelimit-reset": "1000900"}, 0, 7),
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": "1000900"}, 0, 901),
        ({"ratelimit-remaining": "0", "ratelimit-reset": "1000030"}, 0, 31),
        ({}, 0, 60),
        ({}, 1, 120),
        ({}, 2, 240),
        ({}, 99, 3600),
        ({"retry-after": "Mon, 12 Jan 1970 13:46:50 GMT"}, 0, 10),
        ({"retry-after": "999999999"}, 0, 3600),
        ({"retry-after": "-5"}, 0, 60),
        ({"retry-after": "nonsense"}, 0, 60),
        ({"retry-after": "9" * 400}, 0, 60),
        ({"retry-after": "1e99"}, 0, 60),
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": "-1"}, 0, 60),
    ],
)
def test_the_wait_is_what_the_forge_says_else_a_minute_and_then_longer(headers, strikes, wait):
    """GitLab left the headers out on several paths over the years (365728, 217312, 206603): then a minute."""
    assert wait_for(Answered(429, headers), NOW, strikes) == wait


def test_the_last_answer_of_an_hour_closes_the_door_before_a_refusal(clock):
    one = pace(clock)
    answer = Answered(200, {"x-ratelimit-remaining": "0", "x-ratelimit-reset": str(int(NOW) + 500)})
    assert spent(answer, NOW) == 501
    assert one.after(answer) is False
    with pytest.raises(ForgeError) as caught:
        one.before(writes=False)
    assert (caught.value.reason, caught.value.when) == ("limit", NOW + 501)
    assert "UTC" in str(caught.value)
    clock.now += 502
    one.before(writes=False)


def test_refusals_in_a_row_wait_longer_and_a_good_answer_forgives(clock):
    one = pace(clock)
    waits = []
    for _ in range(3):
        assert one.after(Answered(403, {}, SECONDARY))
        waits.append(one.refused().when - clock.now)
        clock.now = one.refused().when
    assert waits == [60, 120, 240]
    one.after(Answered(200, {}))
    one.after(Answered(403, {}, SECONDARY))
    assert one.refused().when - clock.now == 60


def test_content_is_a_second_apart_and_reads_are_not(clock):
    one = pace(clock)
    for _ in range(3):
        one.before(writes=True, creates=True)
        one.before(writes=False)
    assert clock.slept == [1.0, 1.0]


def test_no_more_than_eighty_creations_a_minute_and_five_hundred_an_hour(clock):
    one = pace(clock, gap=0.0, patience=4000.0, points=10**6)
    at = []
    for _ in range(600):
        one.before(writes=True, creates=True)
        at.append(clock.now)
    assert all(at[n + 80] - at[n] >= 60 for n in range(520))
    assert all(at[n + 500] - at[n] >= 3600 for n in range(100))


def test_a_wait_beyond_patience_is_an_error_and_costs_nothing(clock):
    one = pace(clock, gap=0.0, per_minute=2, patience=5.0)
    one.before(writes=True, creates=True)
    one.before(writes=True, creates=True)
    for _ in range(3):
        with pytest.raises(ForgeError) as caught:
            one.before(writes=True, creates=True)
        assert caught.value.when == NOW + 60
    assert clock.slept == []


def test_writes_weigh_five_reads(clock):
    one = pace(clock, points=10, patience=100.0)
    one.before(writes=True)
    for _ in range(5):
        one.before(writes=False)
    assert clock.slept == []
    one.before(writes=False)
    assert clock.slept == [60.0]


def test_threads_share_one_pace_a_host():
    paces = Paces(Tempo(gap=0.0, per_minute=40, patience=0.0))
    done, refused = [], []

    def work() -> None:
        for _ in range(20):
            try:
                paces.of("forge.example").before(writes=True, creates=True)
            except ForgeError:
                refused.append(1)
            else:
                done.append(1)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert (len(done), len(refused)) == (40, 120)
    paces.of("other.example").before(writes=True, creates=True)


def test_a_window_tells_when_there_is_room():
    window = Window(60.0, 10)
    window.take(6, 0.0)
    window.take(4, 10.0)
    assert window.free_at(1, 20.0) == 60.0
    assert window.free_at(8, 20.0) == 70.0
    assert window.free_at(6, 61.0) == 61.0
