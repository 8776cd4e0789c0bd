"""Where asks go: filters with reasons, load for new sessions, the prefix for old ones unless seconds say otherwise."""

from __future__ import annotations

from collections import Counter

import pytest

from pool.placement.placer import Placer
from pool.placement.settings import Settings
from pool.placement.view import Site
from pool.types import Usage
from tests.pool.placement.world import World, chain


def reasons(world: World, **more: object) -> dict[str, str]:
    decision = world.choose(world.ask("s", **more))  # type: ignore[arg-type]
    return {row.endpoint: row.left_out for row in decision.rows}


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"state": "down"}, "down"),
        ({"state": "unknown"}, "not looked at yet"),
        ({"draining": True}, "draining"),
        ({"cooling": 2.5}, "cooling for 2.5 s"),
        ({"room": 0}, "no room"),
        ({"window": 1000}, "window of 1000 tokens is too small"),
        ({"role": "prefill"}, "prefill part of a pair"),
    ],
)
def test_endpoint_that_may_not_take_it_is_left_out_with_the_reason(fields: dict[str, object], reason: str) -> None:
    world = World("a", "b")
    world.change("a", **fields)
    assert reasons(world) == {"a": reason, "b": ""}


def test_missing_capability_is_named() -> None:
    world = World("a", "b")
    world.change("b", capabilities=frozenset({"tools", "json_schema"}))
    told = reasons(world, needs=frozenset({"tools", "json_schema"}))
    assert told == {"a": "lacks json_schema, tools", "b": ""}


def test_tried_and_closed_endpoints_are_left_out() -> None:
    world = World("a", "b", "c")
    ask = world.ask("s")
    decision = world.choose(ask, tried={"a"}, allow=lambda name: "its live set is full" if name == "b" else "")
    assert decision.endpoint == "c"
    assert {row.endpoint: row.left_out for row in decision.rows} == {
        "a": "tried already",
        "b": "its live set is full",
        "c": "",
    }


def test_nobody_is_said_with_all_reasons_and_when_to_ask_again() -> None:
    world = World("a", "b")
    world.change("a", cooling=3.0)
    world.change("b", state="down")
    decision = world.choose(world.ask("s"))
    assert (decision.endpoint, decision.again) == (None, 3.0)
    assert decision.reason == "a: cooling for 3.0 s; b: down"
    with pytest.raises(ValueError, match="nothing to reserve"):
        world.placer.reserve(world.ask("s"), decision)
    assert World().choose(world.ask("s")).reason == "the tier has no endpoint"


def test_window_is_never_refused_by_an_estimate_alone() -> None:
    world = World("a")
    world.change("a", window=1700)
    assert world.choose(world.ask("s", 100)).endpoint == "a"  # 1600 tokens and 256 to come, if the estimate holds
    world.change("a", window=1000)
    assert world.choose(world.ask("s", 100)).endpoint is None


def test_roomier_window_is_preferred_to_a_doubtful_one() -> None:
    world = World("a", "b")
    world.change("a", window=1700)
    world.change("b", window=4000)
    assert world.choose(world.ask("s", 100)).endpoint == "b"


def test_new_sessions_spread_one_after_another_and_all_at_once() -> None:
    for held in (False, True):
        world, places = World("a", "b", "c", "d"), []
        for i in range(20):
            if held:
                places.append(world.take(world.ask(f"s{i}")))
            else:
                world.turn(f"s{i}")
        homes = Counter(world.placer.home(f"s{i}") for i in range(20))
        assert max(homes.values()) - min(homes.values()) <= 1, homes


def test_shared_system_prompt_does_not_draw_all_sessions_to_one_endpoint() -> None:
    world = World("a", "b", "c", "d")
    for i in range(40):
        world.turn(f"s{i}", 400, shared=300)
    homes = Counter(world.placer.home(f"s{i}") for i in range(40))
    assert len(homes) == 4
    assert max(homes.values()) <= 20


def test_burst_of_short_requests_with_a_prefix_in_common_is_kept_together_until_it_costs() -> None:
    world = World("a", "b")
    first = world.take(world.ask("s0", 300, shared=290))
    second = world.choose(world.ask("s1", 300, shared=290))
    assert second.expected_hit in (0, 290 * 16)
    assert (second.endpoint == first.endpoint) == (second.expected_hit > 0)


def test_later_turns_stay_where_the_prefix_lives() -> None:
    world = World("a", "b", "c")
    home = world.turn("s", 1000).endpoint
    for turn in range(1, 10):
        decision = world.turn("s", 1000 + 10 * turn)
        assert (decision.endpoint, decision.expected_hit) == (home, (990 + 10 * turn) * 16)
        assert decision.reason.startswith("stays")
        assert decision.moved_from is None


def test_hits_are_whole_blocks_of_the_endpoints_own_size_and_never_the_whole_prompt() -> None:
    world = World("a")
    world.change("a", block_tokens=128)
    world.turn("s", 100)
    assert world.choose(world.ask("s", 110)).expected_hit == 1536
    world.change("a", block_tokens=16)
    assert world.choose(world.ask("s", 100)).expected_hit == 1584


def test_session_moves_when_waiting_at_home_costs_more_seconds() -> None:
    world = World("a", "b")
    home = str(world.turn("s", 500).endpoint)
    for i in range(8):
        ask = world.ask(f"x{i}", 2000)
        world.placer.reserve(ask, world.placer.choose(ask, [world.sites[home]]))
    moved = world.choose(world.ask("s", 510))
    assert moved.endpoint != home
    assert moved.moved_from == home
    assert moved.reason.startswith("moves: saves")


def test_small_gain_moves_nobody() -> None:
    world = World("a", "b")
    home = world.turn("s", 100).endpoint
    ask = world.ask("other", 110)
    place = world.placer.reserve(ask, world.placer.choose(ask, [world.sites[str(home)]]))
    decision = world.choose(world.ask("s", 110))
    assert decision.endpoint == home
    place.release()


def test_deadline_moves_a_session_that_staying_would_make_late() -> None:
    world = World("a", "b")
    home = str(world.turn("s", 100).endpoint)
    for i in range(3):
        ask = world.ask(f"x{i}", 500)
        world.placer.reserve(ask, world.placer.choose(ask, [world.sites[home]]))
    rows = {row.endpoint: row for row in world.choose(world.ask("s", 110)).rows}
    assert world.choose(world.ask("s", 110)).endpoint == home or rows[home].total > 1
    tight = world.now + 5.6  # decoding alone takes 5.3 s
    assert world.choose(world.ask("s", 110, deadline=tight)).endpoint != home


def test_full_home_is_waited_for_while_moving_is_dearer_and_not_longer() -> None:
    world = World("a", "b")
    home = world.turn("s", 3000).endpoint
    world.change(str(home), cooling=1.5)
    ask = world.ask("s", 3010)
    waiting = world.choose(ask)
    assert waiting.endpoint is None
    assert waiting.reason == f"waits for {home}, which holds its prefix"
    assert waiting.again == pytest.approx(1.5)
    world.now += 30
    moved = world.choose(ask)
    assert moved.endpoint not in (None, home)
    assert moved.moved_from == home


def test_short_session_does_not_wait_for_its_home() -> None:
    world = World("a", "b")
    home = world.turn("s", 20).endpoint
    world.change(str(home), cooling=5.0)
    assert world.choose(world.ask("s", 25)).endpoint not in (None, home)


def test_home_that_died_or_was_tried_is_left_at_once() -> None:
    for change, tried in (({"state": "down"}, False), ({"draining": True}, False), ({}, True)):
        world = World("a", "b")
        home = str(world.turn("s", 3000).endpoint)
        world.change(home, **change)
        decision = world.choose(world.ask("s", 3010), tried={home} if tried else ())
        if tried:
            assert decision.endpoint in (None, *({"a", "b"} - {home}))
        else:
            assert decision.endpoint not in (None, home)


def test_suspect_is_taken_only_where_it_is_clearly_better() -> None:
    world = World("a", "b")
    home = str(world.turn("long", 3000).endpoint)
    world.turn("short", 20)
    world.change(home, state="suspect")
    assert world.choose(world.ask("long", 3010)).endpoint == home
    assert world.choose(world.ask("new", 20)).endpoint != home


def test_group_makes_a_prefix_warm_for_all_at_the_price_of_the_transfer() -> None:
    world = World("a", "b", group="g", transfer_rate=50_000.0)
    home = str(world.turn("s", 3000).endpoint)
    other = next(name for name in world.sites if name != home)
    world.change(home, draining=True)
    decision = world.choose(world.ask("s", 3010))
    row = next(row for row in decision.rows if row.endpoint == other)
    assert (decision.endpoint, decision.expected_hit) == (other, 48_000)
    assert row.seconds["transfer"] == pytest.approx(48_000 / 50_000)
    world.change(other, group=None)
    assert world.choose(world.ask("s", 3010)).expected_hit == 0


def test_dead_member_of_a_group_warms_nobody() -> None:
    world = World("a", "b", group="g", transfer_rate=50_000.0)
    home = str(world.turn("s", 3000).endpoint)
    world.change(home, state="down")
    assert world.choose(world.ask("s", 3010)).expected_hit == 0


def test_endpoint_that_returned_is_not_overrun() -> None:
    """Recovery without a herd: slow start and a bounded share of the sessions that move there."""
    world = World("a", "b", settings=Settings(rehomed_least=2))
    for i in range(20):
        world.turn(f"s{i}", 500)
    for i in range(20):
        ask = world.ask(f"s{i}", 510)
        world.placer.reserve(ask, world.placer.choose(ask, [world.sites["a"]]))
    world.change("b", warmth=0.2)
    world.placer.restarted("b")
    moved = 0
    for i in range(20):
        ask = world.ask(f"s{i}", 520)
        decision = world.choose(ask)
        moved += decision.moved_from is not None
        if decision.endpoint:
            world.placer.reserve(ask, decision)
    assert moved <= 2
    world.change("a", state="down")
    assert world.choose(world.ask("s0", 530)).endpoint == "b"  # nobody else is left


def test_decision_can_be_explained_with_its_price_and_what_came_of_it() -> None:
    world = World("a", "b")
    ask = world.ask("s", 1000)
    decision = world.choose(ask)
    place = world.placer.reserve(ask, decision)
    world.now += 4.0
    place.first_token()
    place.finish(Usage(prompt_tokens=16_000, completion_tokens=5, cached_tokens=0))
    told = world.placer.explain(ask.request)
    assert told is not None
    assert (told.endpoint, told.actual_ttft, told.actual_hit) == (decision.endpoint, 4.0, 0)
    assert told.regret == pytest.approx(4.0 - (decision.expected_ttft or 0), abs=0.01)
    row = next(row for row in told.rows if row.endpoint == told.endpoint)
    assert row.total == pytest.approx(sum(row.seconds.values()))
    assert set(row.seconds) <= {"queue", "prefill", "transfer", "decode", "future", "late", "doubt", "cold"}
    regret = world.placer.regrets()[str(decision.endpoint)]
    assert (regret.answers, regret.lost > 1) == (1, True)
    assert world.placer.explain("never asked") is None


def test_unpriced_endpoints_of_a_clear_stay_say_so() -> None:
    world = World("a", "b")
    home = world.turn("s", 3000).endpoint
    decision = world.choose(world.ask("s", 3010))
    other = next(row for row in decision.rows if row.endpoint != home)
    assert other.left_out.startswith("not priced: costs")
    assert len(decision.rows) == 2


def test_same_question_has_the_same_answer_whatever_the_order_of_the_endpoints() -> None:
    world = World("a", "b", "c", "d")
    for i in range(30):
        ask = world.ask(f"s{i}", 50 + i)
        forth, back = world.choose(ask), world.placer.choose(ask, world.listed[::-1])
        assert (forth.endpoint, forth.expected_ttft) == (back.endpoint, back.expected_ttft)
        world.placer.reserve(ask, forth)


def test_choosing_changes_nothing() -> None:
    world = World("a", "b")
    world.turn("s", 100)
    before = [world.placer.load(name) for name in "ab"]
    for _ in range(5):
        world.choose(world.ask("s", 110))
        world.choose(world.ask("new", 110))
        world.placer.estimate(world.ask("new", 110), world.listed)
    assert [world.placer.load(name) for name in "ab"] == before
    assert world.placer.home("new") is None


def test_estimate_is_the_wait_at_the_soonest_living_endpoint() -> None:
    world = World("a", "b")
    world.turn("s", 3000)
    warm, cold = (world.placer.estimate(world.ask(s, 3010), world.listed) for s in ("s", "new"))
    assert warm is not None
    assert cold is not None
    assert warm < cold / 5
    assert world.placer.estimate(world.ask("s"), [Site("x", "t", "down")]) is None


def test_failed_request_leaves_no_belief_behind() -> None:
    world = World("a")
    with world.take(world.ask("s", 100)):
        pass
    assert world.choose(world.ask("s", 110)).expected_hit == 0
    world.turn("s", 100)
    with world.take(world.ask("s", 200)):
        pass
    assert world.choose(world.ask("s", 210)).expected_hit == 1600


def test_removed_endpoint_leaves_nothing_behind() -> None:
    world = World("a", "b")
    for i in range(6):
        world.turn(f"s{i}")
    world.placer.forget("a")
    assert world.placer.resident("a") == 0
    assert all(world.placer.home(f"s{i}") != "a" for i in range(6))
    assert "a" not in world.placer.regrets()


def test_all_that_is_remembered_is_bounded() -> None:
    world = World("a", "b", settings=Settings(most_sessions=50, most_decisions=20, default_kv_tokens=10_000))
    first = world.ask("s-first")
    world.take(first).release()
    for i in range(300):
        world.turn(f"s{i}", 30)
    memory = world.placer._memory
    assert len(memory.sessions) == 50
    assert len(world.placer._log._decisions) == 20
    assert world.placer.explain(first.request) is None
    assert memory.residency.nodes() <= 2 * 10_000 / 16
    assert sum(world.placer.load(name).live_sessions for name in "ab") == 50


def test_idle_sessions_stop_counting_as_live() -> None:
    world = World("a")
    for i in range(5):
        world.turn(f"s{i}")
    assert world.placer.load("a").live_sessions == 5
    world.now += 400
    world.turn("s0")
    load = world.placer.load("a")
    assert (load.live_sessions, load.live_tokens) == (1, 1640)


def test_prices_unseen_are_those_usual_in_the_pool() -> None:
    world = World("a", "b")
    for i in range(20):
        ask = world.ask(f"s{i}", 500)
        place = world.placer.reserve(ask, world.placer.choose(ask, [world.sites["a"]]))
        world.now += 20.0
        place.first_token()
        place.finish(Usage(prompt_tokens=8_000, completion_tokens=2, cached_tokens=0))
    rows = {row.endpoint: row for row in world.choose(world.ask("new", 500)).rows}
    assert rows["b"].ttft == pytest.approx(20.0, rel=0.3)
    assert world.placer.prefill_seconds("a", 8_000) == pytest.approx(20.0, rel=0.2)
    assert world.placer.prefill_seconds("b", 8_000) is None


def test_learning_without_a_reservation_counts_like_any_answer() -> None:
    world = World("a")
    ask = world.ask("s", 100)
    world.placer.learn(ask, "a", 0.5, Usage(prompt_tokens=1_600, completion_tokens=10, cached_tokens=0), 1.5)
    assert world.placer.cost("a").seen == 1
    assert world.choose(world.ask("s", 110)).expected_hit == 1600
    assert world.placer.load("a").in_flight == 0


def test_clock_of_the_process_is_the_default() -> None:
    placer = Placer()
    ask = World("a").ask("s", deadline=1e12)
    decision = placer.choose(ask, [Site("a", "t", "up")])
    assert decision.endpoint == "a"
    assert decision.at > 0
    assert chain("a") != chain("b")
