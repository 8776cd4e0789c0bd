"""Who is flat: judged from figures made for each case."""

from __future__ import annotations

from typing import Any

from pool.bench.figures import Outcome, summary
from pool.bench.meters import Strain
from pool.bench.verdict import Level, flat_because


def level(
    at: int, rate: float, *, ttft: float = 0.1, gap: float = 0.02, lost: int = 0, waited: float = 0.0, **strain: Any
) -> Level:
    seconds = 10.0
    one = Outcome(0.0, "ok", ttft, ttft + 1, [gap], 10, int(rate * seconds / at), waited=waited)
    gone = [Outcome(0.0, "rejected", why="OverloadError: queue full")] * lost
    return Level(concurrency=at, summary=summary([one] * at + gone, seconds), strain=Strain(**strain))


def test_a_sweep_that_grows_is_not_flat() -> None:
    verdict = flat_because([level(1, 100), level(2, 195), level(4, 380)])
    assert (verdict.flat, verdict.since) == ("not flat", None)


def test_a_sweep_that_brought_nothing_at_all_is_not_said_to_grow() -> None:
    verdict = flat_because([level(1, 0), level(2, 0)])
    assert (verdict.flat, verdict.since) == ("unknown", None)
    assert "no request was answered" in verdict.because


def test_the_first_level_that_brings_nothing_is_where_it_went_flat() -> None:
    verdict = flat_because([level(1, 100), level(2, 190), level(4, 192, waiting=2.0, most_running=2, running=2)])
    assert (verdict.flat, verdict.since) == ("server", 4)
    assert "--max-num-seqs" in verdict.because


def test_a_late_loop_is_the_clients_fault_whatever_the_server_says() -> None:
    """lighteval#1190, prime-rl and others measured their own client and blamed the server."""
    verdict = flat_because([level(1, 100), level(2, 101, lag=0.2, waiting=5.0)])
    assert verdict.flat == "client"
    assert "200 ms late" in verdict.because


def test_a_busy_processor_is_the_clients_fault() -> None:
    assert flat_because([level(1, 100), level(2, 101, processor=0.95)]).flat == "client"


def test_preemptions_mean_a_full_cache() -> None:
    verdict = flat_because([level(8, 100), level(16, 90, preemptions=12, kv_usage=0.99, waiting=4.0)])
    assert (verdict.flat, "KV cache is full" in verdict.because) == ("server", True)


def test_longer_steps_without_a_queue_mean_a_busy_engine() -> None:
    verdict = flat_because([level(8, 100, gap=0.02), level(16, 101, gap=0.05, running=16, waiting=0.0)])
    assert (verdict.flat, "steps take longer" in verdict.because) == ("server", True)


def test_later_first_tokens_alone_mean_prefill() -> None:
    verdict = flat_because([level(8, 100, ttft=0.5), level(16, 101, ttft=1.1)])
    assert "prefill" in verdict.because


def test_our_own_queue_is_told_from_the_servers() -> None:
    verdict = flat_because([level(8, 100), level(16, 101, ttft=1.0, waited=0.9)])
    assert verdict.flat == "pool"


def test_refusals_are_named_with_their_reason() -> None:
    verdict = flat_because([level(8, 100), level(16, 101, lost=16)])
    assert "queue full" in verdict.because


def test_no_evidence_is_no_verdict() -> None:
    assert flat_because([level(1, 100)]).flat == "unknown"
    assert flat_because([level(1, 100), level(2, 100)]).flat == "unknown"
