"""The step model schedules, preempts and counts as vLLM's scheduler does. Time is injected; nothing sleeps."""

from __future__ import annotations

import pytest

from pool.pretend.engine import Engine, EngineSettings, Sequence
from pool.pretend.kv import chain

PLAIN = EngineSettings(block_size=4, num_gpu_blocks=100, max_num_batched_tokens=32, max_num_seqs=4)


def sequence(name: str, prompt: int, target: int, *, text: str = "", priority: int = 0, arrival: float = 0) -> Sequence:
    data = (text or name).encode() * 1000
    keys = tuple(chain(data[: (prompt + target) * 4], 16))
    return Sequence(id=name, prompt=prompt, target=target, keys=keys, priority=priority, arrival=arrival)


def engine(settings: EngineSettings = PLAIN, *sequences: Sequence) -> Engine:
    made = Engine(settings)
    for one in sequences:
        made.add(one)
    return made


def run(made: Engine, most: int = 10_000) -> tuple[float, dict[str, float], list[str]]:
    """Until empty: the end, when each sequence ended, and who was preempted."""
    now, ended, lost = 0.0, {}, []
    for _ in range(most):
        if not made.inside:
            return now, ended, lost
        result = made.step(now)
        now += result.duration
        lost += result.preempted
        ended |= {one.id: now for one in result.finished}
    raise AssertionError("it never came to an end")


def with_fields(**changes: object) -> EngineSettings:
    fields = {name: getattr(PLAIN, name) for name in EngineSettings.__slots__}
    return EngineSettings(**{**fields, **changes})  # type: ignore[arg-type]


def test_step_costs_its_base_its_sequences_and_its_prompt_tokens() -> None:
    made = engine(PLAIN, sequence("a", 10, 3), sequence("b", 10, 3))
    first, second = made.step(0.0), made.step(1.0)
    assert first.duration == pytest.approx(0.006 + 2 * 0.00035 + 20 / 8000)
    assert second.duration == pytest.approx(0.006 + 2 * 0.00035)
    assert first.emitted == second.emitted == {"a": 1, "b": 1}


def test_long_prompt_is_prefilled_in_chunks_beside_those_that_decode() -> None:
    made = engine(PLAIN, sequence("short", 4, 20))
    made.step(0.0)
    made.add(sequence("long", 70, 2))
    emitted = [made.step(0.0).emitted for _ in range(3)]
    assert [set(one) for one in emitted] == [{"short"}, {"short"}, {"short", "long"}]  # 31 + 31 + 8 tokens


def test_no_more_run_at_a_time_than_the_settings_say() -> None:
    made = engine(PLAIN, *(sequence(str(i), 2, 5) for i in range(6)))
    made.step(0.0)
    assert (len(made.running), made.waiting) == (4, 2)


def test_second_prompt_with_the_same_beginning_is_cached_in_whole_blocks_and_never_wholly() -> None:
    made = engine(PLAIN, sequence("a", 16, 2, text="x"))
    run(made)
    again = sequence("b", 16, 2, text="x")
    made.add(again)
    run(made)
    assert again.cached == 12  # the last block is computed anew: its last token has to say what comes next
    assert (made.counters.queries, made.counters.hits) == (32, 12)


def test_next_turn_finds_prompt_and_output_of_the_turn_before() -> None:
    made = engine(PLAIN, sequence("turn", 10, 10, text="x"))
    run(made)
    later = sequence("next", 30, 2, text="x")
    made.add(later)
    run(made)
    assert later.cached == 16  # 20 tokens are known, but the last output token was never computed


def test_latest_loses_its_blocks_under_fcfs_and_computes_them_again() -> None:
    tight = with_fields(num_gpu_blocks=12)
    made = engine(tight, sequence("a", 16, 16), sequence("b", 16, 16))
    _, ended, lost = run(made)
    assert set(lost) == {"b"}
    assert ended["a"] < ended["b"]
    assert made.counters.preemptions == len(lost)
    assert made.cache.free == 12


def test_least_urgent_loses_its_blocks_under_priorities() -> None:
    tight = with_fields(num_gpu_blocks=12, scheduling_policy="priority")
    made = engine(tight, sequence("later", 16, 16, priority=9, arrival=0), sequence("soon", 16, 16, arrival=1))
    _, ended, lost = run(made)
    assert set(lost) == {"later"}
    assert ended["soon"] < ended["later"]


def test_priorities_order_the_queue_and_are_ignored_without_a_word_under_fcfs() -> None:
    """vllm-project/vllm#11361, #23347: a priority under fcfs changes nothing and nobody says so."""

    ended = {}
    for policy in ("priority", "fcfs"):
        made = Engine(with_fields(max_num_seqs=1, scheduling_policy=policy))
        for name, priority in (("a", 5), ("b", 5), ("c", 0)):
            made.add(sequence(name, 4, 2, priority=priority))
        times = run(made)[1]
        ended[policy] = sorted(times, key=times.__getitem__)
    assert ended == {"priority": ["c", "a", "b"], "fcfs": ["a", "b", "c"]}


def test_aborted_sequences_give_their_blocks_back_at_once() -> None:
    made = engine(PLAIN, sequence("a", 20, 50), sequence("b", 20, 50))
    made.step(0.0)
    made.add(sequence("c", 4, 4))
    made.abort(["a", "b", "c"])
    assert (made.inside, made.cache.free) == (0, 100)
    assert made.step(0.0).idle


def test_prompt_that_does_not_fit_now_waits_and_nobody_overtakes_it() -> None:
    made = engine(
        with_fields(num_gpu_blocks=12), sequence("a", 30, 10), sequence("big", 40, 2), sequence("small", 4, 2)
    )
    made.step(0.0)
    assert [one.id for one in made.running] == ["a"]
    assert set(run(made)[1]) == {"a", "big", "small"}


def test_sequence_that_never_fits_is_refused() -> None:
    with pytest.raises(ValueError, match="never fit"):
        engine(PLAIN, sequence("a", 390, 20))


def test_limit_of_requests_inside_counts_running_and_waiting() -> None:
    made = engine(with_fields(max_num_queued_reqs=3, max_num_seqs=1), sequence("a", 4, 9), sequence("b", 4, 9))
    made.step(0.0)
    assert made.takes(1)
    assert not made.takes(2)


def test_more_sessions_than_the_cache_holds_thrash_it() -> None:
    """PrimeIntellect-ai/prime-rl#3255: the hit rate falls to almost nothing once the live set outgrows the cache."""

    def hit_rate(sessions: int) -> float:
        made = Engine(with_fields(num_gpu_blocks=60, max_num_seqs=1))
        for turn in range(6):
            for name in range(sessions):
                made.add(sequence(f"{name}-{turn}", 20 + 4 * turn, 4, text=f"s{name}"))
        run(made)
        return made.counters.hits / made.counters.queries

    assert hit_rate(4) > 0.6
    assert hit_rate(12) < 0.1


def test_slower_engine_takes_its_factor() -> None:
    plain, slow = (engine(s, sequence("a", 30, 5)) for s in (PLAIN, PLAIN.slower(3)))
    assert run(slow)[0] == pytest.approx(3 * run(plain)[0])
