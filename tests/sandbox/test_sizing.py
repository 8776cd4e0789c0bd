"""How many sandboxes are held ready: never more than the bounds, none for what nobody asks for, enough for what is."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sandbox.types import MIB
from sandbox.warm.sizing import IDLE_COST, Bounds, Demand, back_off, share, starters, wanted

IDLE = 300.0
times = st.floats(0, 10_000)
demands = st.builds(Demand, level=st.floats(0, 1000), last=times, start=st.floats(0, 60))
bounds = st.builds(
    Bounds,
    count=st.integers(0, 64),
    memory=st.integers(0, 4096 * MIB),
    processors=st.integers(1, 128),
    idle=st.floats(1, 1000),
)


def asked(times: list[float], start: float = 0.5) -> Demand:
    demand = Demand(start=start)
    for at in times:
        demand = demand.asked(at)
    return demand


@given(st.dictionaries(st.text(max_size=3), demands, max_size=8), times, bounds)
def test_all_specs_together_never_exceed_a_bound_and_none_gets_more_than_it_wants(found, now, limits) -> None:
    given_out = share(found, now, limits)
    assert given_out.keys() == found.keys()
    total = sum(given_out.values())
    assert total <= limits.count
    assert total * IDLE_COST <= limits.memory
    for key, count in given_out.items():
        assert 0 <= count <= wanted(found[key], now, limits.idle)


@given(st.dictionaries(st.text(max_size=3), demands, min_size=1, max_size=8), times, bounds)
def test_room_is_never_left_while_somebody_wants_it(found, now, limits) -> None:
    given_out = share(found, now, limits)
    unmet = any(count < wanted(found[key], now, limits.idle) for key, count in given_out.items())
    assert not unmet or sum(given_out.values()) == limits.total


@given(st.lists(times, min_size=1, max_size=30), st.floats(0, 5))
def test_more_demand_or_slower_starts_never_want_fewer(at, start) -> None:
    at = sorted(at)
    now = at[-1]
    some, more = asked(at, start), asked([*at, now], start)
    assert 1 <= wanted(some, now, IDLE) <= wanted(more, now, IDLE)
    assert wanted(some, now, IDLE) <= wanted(asked(at, start + 1.0), now, IDLE)


@given(demands, st.floats(0, 10_000))
def test_without_a_demand_nothing_is_held(demand, later) -> None:
    assert wanted(demand, demand.last + IDLE + 1 + later, IDLE) == 0
    assert wanted(Demand(), later, IDLE) == 0


@given(st.lists(st.floats(0, 100), max_size=50))
def test_the_time_to_start_stays_between_what_was_seen(seconds) -> None:
    demand = Demand()
    for each in seconds:
        demand = demand.started(each)
    assert min([0.5, *seconds]) - 1e-9 <= demand.start <= max([0.5, *seconds]) + 1e-9


def test_a_lone_task_has_one_ready_and_a_busy_house_several() -> None:
    assert wanted(asked([0.0]), 1.0, IDLE) == 1
    busy = asked([second / 4 for second in range(240)], start=1.0)  # four a second, each takes a second to start
    assert 4 <= wanted(busy, 60.0, IDLE) <= 12


def test_a_busy_spec_leaves_one_to_each_of_the_others() -> None:
    found = {"busy": asked([99.0] * 500, start=10.0), "a": asked([98.0]), "b": asked([97.0])}
    assert share(found, 100.0, Bounds(count=4, memory=4096 * MIB, processors=8, idle=IDLE)) == {
        "busy": 2,
        "a": 1,
        "b": 1,
    }


def test_failures_wait_longer_and_longer_but_not_for_ever() -> None:
    waits = [back_off(failures) for failures in range(100)]
    assert waits[:4] == [0.0, 1.0, 2.0, 4.0]
    assert waits == sorted(waits)
    assert max(waits) == 60.0


def test_small_machines_start_one_at_a_time() -> None:
    assert [starters(count) for count in (1, 2, 4, 8, 16, 128)] == [1, 1, 1, 2, 4, 4]
