"""The choice of an endpoint: what is never chosen, and who wins among the rest."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pool.pins import Pins
from pool.selection import Candidate, fit, keeps_pin, pick

candidates = st.lists(
    st.builds(
        Candidate,
        name=st.sampled_from("abcdef"),
        state=st.sampled_from(["unknown", "up", "suspect", "down"]),
        in_flight=st.integers(0, 9),
        room=st.integers(-1, 3),
        sessions=st.integers(0, 9),
        load=st.none() | st.integers(0, 99),
        cooling=st.sampled_from([0.0, 0.5, 9.0]),
        native_tools=st.sampled_from([None, True, False]),
    ),
    unique_by=lambda c: c.name,
)


@given(candidates, st.sets(st.sampled_from("abcdef")), st.booleans(), st.none() | st.sampled_from("abcdef"))
def test_nothing_unfit_is_ever_chosen(found: list[Candidate], tried: set[str], tools: bool, pinned: str | None) -> None:
    fitting = fit(found, tried=tried, tools=tools)
    chosen = pick(fitting, pinned)
    free = [c for c in fitting if c.room > 0 and c.cooling <= 0]
    assert (chosen is None) == (not free)
    if chosen is not None:
        assert chosen.state in ("up", "suspect")
        assert chosen.name not in tried
        assert chosen.native_tools or not tools
        assert chosen.name == pinned or chosen.in_flight <= min(c.in_flight for c in free if c.state == chosen.state)


def test_session_stays_though_its_place_is_the_busier_one() -> None:
    found = [Candidate("a", "up", in_flight=9, load=50), Candidate("b", "up")]
    assert pick(found, "a") == found[0]
    assert pick(found, None) == found[1]


def test_scraped_load_breaks_a_tie_only() -> None:
    idle, busy = Candidate("z", "up", in_flight=1, load=0), Candidate("a", "up", in_flight=0, load=80)
    assert pick([idle, busy], None) == busy
    assert pick([Candidate("a", "up", load=9), Candidate("z", "up", load=2)], None) == Candidate("z", "up", load=2)


def test_suspect_is_asked_when_nobody_better_is_there() -> None:
    suspect = Candidate("a", "suspect")
    assert pick([suspect, Candidate("b", "up", in_flight=5)], None) == Candidate("b", "up", in_flight=5)
    assert pick([suspect], None) == suspect


def test_pin_is_kept_while_its_endpoint_is_merely_full() -> None:
    full, cooling, other = Candidate("a", "up", room=0), Candidate("a", "up", cooling=5), Candidate("b", "up")
    assert keeps_pin([full, other], "a")
    assert not keeps_pin([cooling, other], "a")
    assert not keeps_pin([other], "a")
    assert not keeps_pin([full, other], None)


@given(st.lists(st.tuples(st.sampled_from("xyzuvw"), st.sampled_from("ab")), max_size=60))
def test_pins_are_bounded_and_their_counts_add_up(moves: list[tuple[str, str]]) -> None:
    pins = Pins(most=3)
    for session, name in moves:
        pins.put("t", session, name)
    held = {s: pins.get("t", s) for s in "xyzuvw" if pins.get("t", s)}
    assert len(held) == sum(pins.sessions.values()) == min(3, len({session for session, _ in moves}))
    assert all(count >= 0 for count in pins.sessions.values())
    recent = list(dict.fromkeys(session for session, _ in reversed(moves)))[:3]
    assert set(held) == set(recent)
