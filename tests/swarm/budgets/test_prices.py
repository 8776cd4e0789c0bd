"""What a model call costs."""

from __future__ import annotations

import pytest

from pool.gateway.bound import Answered
from pool.types import Choice, Part, Reply, Report, Usage
from swarm.budgets.prices import Price, Prices, bill, facts
from swarm.types import Spent

USAGE = Usage(prompt_tokens=1_000_000, completion_tokens=500_000, cached_tokens=400_000)


def reply(report: Report | None = None, **more: object) -> Reply:
    told = {"usage": USAGE, "endpoint": "a", "model": "m", "seconds": 10.0, "tier": "small", "gpu_seconds": 8.0}
    return Reply.model_validate({"choices": (Choice(),), "report": report, **told, **more})


def test_cached_tokens_cost_their_own_price() -> None:
    prices = Prices(tiers={"small": Price(prompt=3.0, cached=0.3, completion=15.0)})
    assert bill(prices, reply()).money == pytest.approx(0.6 * 3 + 0.4 * 0.3 + 0.5 * 15)


def test_without_a_price_of_their_own_they_cost_what_all_do() -> None:
    assert bill(Prices(tiers={"small": Price(prompt=3.0)}), reply()).money == pytest.approx(3.0)


def test_the_endpoints_price_counts_before_the_models_and_that_before_the_tiers() -> None:
    prices = Prices(
        endpoints={"a": Price(completion=2)}, models={"m": Price(completion=4)}, tiers={"small": Price(completion=6)}
    )
    assert bill(prices, reply()).money == pytest.approx(1)
    assert bill(prices, reply(endpoint="b")).money == pytest.approx(2)
    assert bill(prices, reply(endpoint="b", model="n")).money == pytest.approx(3)
    assert bill(prices, reply(endpoint="b", model="n", tier="other")).money == 0


def test_a_free_local_model_still_costs_the_time_of_its_gpus() -> None:
    """A cap on money never fires where every call costs 0; GPU-seconds count either way."""
    spent = bill(Prices(), reply())
    assert (spent.money, spent.gpu_seconds) == (0, 8.0)
    assert bill(Prices(tiers={"small": Price(gpu_second=0.001)}), reply()).money == pytest.approx(0.008)


def test_each_part_of_a_virtual_models_answer_costs_its_own_price() -> None:
    parts = (
        Part(role="draft", tier="small", usage=Usage(completion_tokens=10), gpu_seconds=1.0),
        Part(role="draft", tier="small", failed="it broke"),
        Part(role="judge", tier="large", usage=Usage(completion_tokens=30), gpu_seconds=2.0),
    )
    report = Report(name="v", kind="vote", parts=parts, spent=40, budget=100)
    prices = Prices(tiers={"small": Price(completion=1e6), "large": Price(completion=2e6)})
    spent = bill(prices, reply(report))
    assert spent == Spent(tokens=40, gpu_seconds=3.0, money=70.0)


def test_a_call_that_nobody_counted_costs_what_is_guessed() -> None:
    answered = Answered("small", "a", "m", "499", 70, None, 3.0, gpu_seconds=2.0)
    spent = bill(Prices(tiers={"small": Price(prompt=1e6)}), answered, answered.tokens)
    assert spent == Spent(tokens=70, prompt_tokens=70, gpu_seconds=2.0, money=70.0)


def test_a_server_cannot_have_cached_more_than_it_read() -> None:
    lying = reply(usage=Usage(prompt_tokens=10, cached_tokens=10**9))
    spent = bill(Prices(tiers={"small": Price(prompt=1e6, cached=0.0)}), lying)
    assert (spent.cached_tokens, spent.money) == (10, 0)


def test_what_a_conversation_had_before_and_no_cache_held_was_computed_once_more() -> None:
    told = reply(usage=Usage(prompt_tokens=100, cached_tokens=30), waited=1.0, prefill=None)
    assert facts(told, Spent(), context=80)["recomputed"] == 50
    assert facts(told, Spent(), context=0)["recomputed"] == 0
    assert "recomputed" not in facts(reply(usage=Usage(prompt_tokens=100)), Spent(), context=80)
    assert "prefill" not in facts(told, Spent())
