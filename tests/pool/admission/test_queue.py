"""The order of the waiting: class, ageing, paused sessions, fairness, deadline, arrival; and nobody waits for ever."""

from __future__ import annotations

from itertools import count

from hypothesis import given, settings
from hypothesis import strategies as st

from pool.admission.classes import LEVELS, OVERDUE, RANKS, Classes
from pool.admission.fairness import Service
from pool.admission.queue import Lane, Queue, Ticket
from pool.config import AdmissionConfig
from pool.placement.view import Ask, Prompt
from pool.types import RequestClass

CLASSES = Classes(AdmissionConfig())
OPEN: frozenset[Lane] = frozenset()


class Line:
    """A queue, and what is served from it."""

    def __init__(self, patience: float = 1e9) -> None:
        self.service = Service(half_life=1e9)
        self.queue = Queue(CLASSES, self.service, patience)
        self.numbers = count()

    def add(
        self,
        name: str = "",
        request_class: RequestClass = "default",
        *,
        at: float = 0.0,
        program: str = "p",
        deadline: float = 1e6,
        lane: Lane = "new",
        last_used: float = 0.0,
        timeout: float = 1e6,
    ) -> Ticket:
        number = next(self.numbers)
        ask = Ask(name or f"r{number}", "t", f"s{number}", Prompt(10), at, deadline, program, request_class)
        rank = RANKS[request_class]
        expires = min(deadline, at + timeout)
        ticket = Ticket(ask, at, number, program, rank, rank, expires, lane, last_used)
        self.queue.push(ticket)
        return ticket

    def next(self, shut: frozenset[Lane] = OPEN) -> Ticket | None:
        """Serve whoever is first."""
        for level in range(LEVELS):
            if ticket := self.queue.head(level, shut):
                self.queue.remove(ticket)
                return ticket
        return None

    def order(self) -> list[str]:
        names = []
        while ticket := self.next():
            names.append(ticket.ask.request)
        return names


def longest(line: Line) -> str:
    ticket = line.queue.longest(RANKS["default"])
    return ticket.ask.request if ticket else ""


def test_better_class_goes_first() -> None:
    line = Line()
    line.add("bulk", "bulk")
    line.add("default", "default")
    line.add("interactive", "interactive")
    assert line.order() == ["interactive", "default", "bulk"]


def test_who_waited_too_long_goes_by_arrival_before_paused_and_least_served_ones() -> None:
    line = Line(patience=5.0)
    line.service.charge("served", 20_000, 0.0)
    line.add("old", at=0.0, program="served")
    line.add("older paused", at=1.0, lane="paused", last_used=1.0)
    line.add("paused", at=4.0, lane="paused", last_used=3.0)
    line.add("fresh", at=4.0, program="new")
    line.queue.advance(6.0)
    assert line.order() == ["old", "older paused", "paused", "fresh"]


def test_long_wait_is_no_claim_against_programs_that_got_a_tenth() -> None:
    """A task tree of a thousand sessions, all waiting long, must not shut out a small one."""
    line = Line(patience=5.0)
    line.service.charge("hog", 1_000_000, 0.0)
    for i in range(3):
        line.add(f"hog{i}", at=0.0, program="hog")
    line.add("small", at=3.0, program="small")
    line.queue.advance(6.0)
    assert longest(line) == "hog0"
    line.queue.advance(9.0)
    assert longest(line) == "small"
    assert line.order()[0] == "small"


def test_who_has_a_live_place_needs_nobody_elses() -> None:
    line = Line(patience=5.0)
    line.add("live", at=0.0, lane="live")
    line.queue.advance(9.0)
    assert longest(line) == ""


def test_stepping_over_again_and_again_leaves_nothing_behind() -> None:
    line = Line(patience=5.0)
    for i in range(10):
        line.add(at=float(i))
    line.queue.advance(20.0)
    level = RANKS["default"]
    for _ in range(2_000):
        ticket = line.queue.head(level, OPEN)
        assert ticket is not None
        line.queue.step_over(ticket)
        line.queue.back(ticket)
    assert sum(len(heap) for heap in line.queue._waited.values()) < 200
    assert len(line.order()) == 10


def test_paused_sessions_come_back_before_new_ones_the_most_recent_first() -> None:
    """Its cache is the least likely to be evicted yet."""
    line = Line()
    line.add("new")
    line.add("old", lane="paused", last_used=10.0)
    line.add("recent", lane="paused", last_used=90.0)
    assert line.order() == ["recent", "old", "new"]


def test_least_served_program_goes_first_then_the_earliest_deadline_then_arrival() -> None:
    line = Line()
    line.service.charge("rich", 1_000, 0.0)
    line.add("rich", program="rich", deadline=10.0)
    line.add("late", program="poor", deadline=500.0)
    line.add("soon", program="poor", deadline=100.0)
    line.add("soon too", program="poor", deadline=100.0)
    assert line.order() == ["soon", "soon too", "late", "rich"]


def test_programs_with_equal_service_take_turns() -> None:
    line = Line()
    for i in range(3):
        line.add(f"a{i}", program="a")
        line.add(f"b{i}", program="b")
    served: list[str] = []
    while ticket := line.next():
        served.append(ticket.program)
        line.service.charge(ticket.program, 100, 0.0)
        line.queue.touch(ticket.program)
    assert served[0] != served[1]
    assert sorted(served[:4]) == ["a", "a", "b", "b"]


def test_service_taken_back_moves_a_program_forward_again() -> None:
    line = Line()
    line.service.charge("a", 100, 0.0)
    line.service.charge("b", 200, 0.0)
    line.add("a", program="a")
    line.add("b", program="b")
    line.service.charge("b", -150, 0.0)
    line.queue.touch("b")
    assert line.order() == ["b", "a"]


def test_waiting_rises_class_by_class_and_then_above_all() -> None:
    line = Line()
    bulk = line.add("bulk", "bulk")
    line.queue.advance(59.0)
    assert bulk.level == RANKS["bulk"]
    line.queue.advance(60.0)
    assert bulk.level == RANKS["default"]
    line.queue.advance(91.0)
    assert bulk.level == RANKS["interactive"]
    line.queue.advance(106.0)
    assert bulk.level == OVERDUE
    line.add("interactive", "interactive", at=106.0)
    assert line.order() == ["bulk", "interactive"]


def test_late_look_lets_a_request_rise_all_the_way_at_once() -> None:
    line = Line()
    bulk = line.add("bulk", "bulk")
    line.queue.advance(200.0)
    assert bulk.level == OVERDUE


def test_time_over_is_told_once_and_by_whose_limit() -> None:
    line = Line()
    patient = line.add("patient", timeout=5.0)
    hurried = line.add("hurried", deadline=3.0)
    assert line.queue.next_due() == 3.0
    assert line.queue.advance(4.0) == [hurried]
    assert line.queue.advance(6.0) == [patient]
    assert line.queue.advance(60.0) == []
    assert (hurried.late, patient.late) == (True, False)
    assert len(line.queue) == 0


def test_refiled_and_stepped_over_tickets_show_once() -> None:
    line = Line()
    ticket = line.add("x", lane="live")
    line.queue.refile(ticket, "paused", 5.0)
    line.queue.refile(ticket, "live", 5.0)
    level = RANKS["default"]
    head = line.queue.head(level, OPEN)
    assert head is ticket
    line.queue.step_over(ticket)
    assert line.queue.head(level, OPEN) is None
    line.queue.back(ticket)
    assert line.order() == ["x"]


def test_shut_lane_is_passed_over() -> None:
    line = Line()
    line.add("new")
    line.add("live", lane="live")
    shut: frozenset[Lane] = frozenset({"new", "paused"})
    first = line.next(shut)
    assert first is not None
    assert first.ask.request == "live"
    assert line.next(shut) is None
    assert len(line.queue) == 1


def test_memory_stays_bounded_while_thousands_give_up_behind_a_stuck_head() -> None:
    """Router state that grows with every request: llm-d/llm-d#2118, vllm-project/production-stack#687."""
    line = Line()
    line.add("stuck")
    for i in range(20_000):
        line.queue.remove(line.add(program=f"p{i % 50}", deadline=1e6 + i, at=float(i % 7)))
    assert len(line.queue._timers) < 500
    assert sum(len(h) for fair in line.queue._fair.values() for h in fair._heaps.values()) < 500
    assert sum(len(fair._order) for fair in line.queue._fair.values()) < 500
    assert line.order() == ["stuck"]


CLASS_NAMES: tuple[RequestClass, ...] = ("interactive", "default", "bulk")
arrivals = st.lists(
    st.tuples(st.sampled_from(CLASS_NAMES), st.integers(0, 3), st.sampled_from(("live", "paused", "new"))),
    min_size=0,
    max_size=3,
)


@settings(max_examples=25, deadline=None)
@given(st.lists(arrivals, min_size=1, max_size=20), st.sampled_from(CLASS_NAMES))
def test_nobody_starves_under_any_stream_of_better_ones(
    stream: list[list[tuple[RequestClass, int, Lane]]], mine: RequestClass
) -> None:
    """One place a second and a stream that never stops: the wait is bounded by ageing and by who was there before."""
    line = Line()
    line.service.charge("victim", 1e9, 0.0)
    for i in range(20):
        line.add(f"before {i}", "interactive")
    victim = line.add("victim", mine, program="victim", deadline=1e9)
    ageing = sum(CLASSES.of(rank).ageing for rank in range(1, RANKS[mine] + 1))
    for second in range(400):
        line.queue.advance(float(second))
        for request_class, program, lane in stream[second % len(stream)]:
            line.add(request_class=request_class, at=float(second), program=f"p{program}", lane=lane, last_used=second)
        served = line.next()
        if served is victim:
            break
        if served is not None:
            line.service.charge(served.program, 10, float(second))
            line.queue.touch(served.program)
    else:
        raise AssertionError("never served")
    overdue_before = 3 * ageing + 21  # arrivals until it was overdue itself, three a second at most
    assert second <= ageing + overdue_before


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("add"), st.sampled_from(CLASS_NAMES), st.integers(0, 3), st.floats(1, 200)),
            st.tuples(st.just("serve"), st.just(0), st.just(0), st.just(0.0)),
            st.tuples(st.just("cancel"), st.just(0), st.integers(0, 30), st.just(0.0)),
            st.tuples(st.just("time"), st.just(0), st.just(0), st.floats(0, 60)),
        ),
        max_size=120,
    )
)
def test_every_ticket_leaves_exactly_once(steps: list[tuple[str, RequestClass, int, float]]) -> None:
    line, now = Line(), 0.0
    inside: dict[int, Ticket] = {}
    left: list[int] = []

    def leave(ticket: Ticket) -> None:
        left.append(ticket.number)
        del inside[ticket.number]

    for what, request_class, number, value in steps:
        if what == "add":
            ticket = line.add(request_class=request_class, program=f"p{number}", at=now, timeout=value)
            inside[ticket.number] = ticket
        elif what == "serve":
            ticket = line.next()  # type: ignore[assignment]
            assert (ticket is None) == (not inside)
            if ticket is not None:
                leave(ticket)
        elif what == "cancel" and inside:
            ticket = list(inside.values())[number % len(inside)]
            line.queue.remove(ticket)
            line.queue.remove(ticket)
            leave(ticket)
        elif what == "time":
            now += value
            for ticket in line.queue.advance(now):
                leave(ticket)
        assert len(line.queue) == len(inside)
        assert sum(line.queue.count(rank) for rank in RANKS.values()) == len(inside)
        assert line.queue.ahead(LEVELS) == len(inside)
    while ticket := line.next():  # type: ignore[assignment]
        leave(ticket)
    assert not inside
    assert len(left) == len(set(left))
