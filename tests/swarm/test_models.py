"""What an attempt's agent asks of models is charged to its task by the servers' own counts, until the budget ends."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from pool.config import EndpointConfig, GatewayConfig, KeyConfig, PoolConfig
from pool.gateway.bound import Answered
from pool.gateway.replies import RefusedError
from pool.router import Pool
from pool.testing import PretendServer, pretend_vllm, server_error
from pool.tiers.front import Tiers
from pool.types import Usage
from swarm.budgets.ledger import BudgetLedger
from swarm.budgets.prices import Price, Prices
from swarm.budgets.scopes import Standing
from swarm.models import Meter, Models
from swarm.types import Budget, Spent

LABELS = {"task": "t1", "attempt": "t1.1", "kind": "work"}
ASK = {"model": "small", "messages": [{"role": "user", "content": "hello"}]}


def ledger(before: Spent | None = None, **budget: Any) -> BudgetLedger:
    return BudgetLedger(Budget(**budget), before or Spent(), Spent(), lambda _: None)


def answered(tokens: int = 10, status: str = "200") -> Answered:
    usage = Usage(prompt_tokens=tokens - 1, completion_tokens=1) if status == "200" else None
    return Answered("small", "a", "m", status, tokens, usage, 0.1)


@asynccontextmanager
async def models(server: PretendServer, **gateway: Any) -> AsyncIterator[Models]:
    config = PoolConfig(
        endpoints=(EndpointConfig(name="a", url=server.url, tier="small"),),
        gateway=GatewayConfig(**gateway),
        retries=0,
    )
    async with Pool(config) as pool:
        await pool.ready("small")
        yield Models(pool, Tiers(pool, config))


async def ask(models: Models, labels: dict[str, str] = LABELS) -> tuple[int, dict[str, Any]]:
    reader, writer = await models.connect(labels)
    raw = json.dumps(ASK).encode()
    writer.write(
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n"
        b"content-length: %d\r\n\r\n%b" % (len(raw), raw)
    )
    async with asyncio.timeout(10):
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    return int(head.split()[1]), json.loads(body)


async def test_calls_are_charged_to_the_attempt_by_what_the_server_counted() -> None:
    book = ledger()
    async with pretend_vllm() as server, models(server) as inside, inside.serving("t1.1", "t1", "small", book) as calls:
        status, body = await ask(inside)
        assert status == 200
        assert (book.spent().steps, book.spent().tokens) == (1, body["usage"]["total_tokens"])
        (call,) = calls.taken()
        assert (call.endpoint, call.model) == ("a", server.model)
        assert calls.taken() == []
        assert calls.model == server.model


async def test_the_time_and_the_price_of_a_call_from_inside_are_charged_as_well() -> None:
    prices = Prices(endpoints={"a": Price(gpu_second=2.0)})
    book = BudgetLedger(Budget(), Spent(), Spent(), lambda _: None, prices=prices)
    async with pretend_vllm() as server, models(server) as inside, inside.serving("t1.1", "t1", "small", book) as calls:
        await ask(inside)
        (call,) = calls.taken()
    assert 0 < call.gpu_seconds <= call.seconds
    assert book.spent().gpu_seconds == call.gpu_seconds
    assert book.spent().money == pytest.approx(2 * call.gpu_seconds)
    assert book.spent().prompt_tokens > 0


async def test_a_day_that_is_spent_refuses_what_an_agent_inside_asks() -> None:
    book = ledger()
    book.heard((Standing("user:ann", {"money": 1.0}, Spent(money=1.0)),))
    meter = Meter(book)
    with pytest.raises(RefusedError) as found, meter.holding(1):
        pass
    assert found.value.refusal.status == 403
    assert "the day's budget of user ann" in meter.over
    assert meter.limit == "user:ann.money"


async def test_spent_budget_refuses_for_good_and_says_so() -> None:
    book = ledger(tokens=1)
    async with pretend_vllm() as server, models(server) as inside, inside.serving("t1.1", "t1", "small", book) as calls:
        assert (await ask(inside))[0] == 200
        assert "tokens are spent" in calls.over
        status, body = await ask(inside)
        assert status == 403
        assert "the budget of this task is spent" in body["error"]["message"]
        assert len(server.requests) == 1


async def test_what_earlier_attempts_spent_counts() -> None:
    book = ledger(before=Spent(steps=5), steps=5)
    async with pretend_vllm() as server, models(server) as inside, inside.serving("t1.1", "t1", "small", book):
        assert (await ask(inside))[0] == 403
        assert server.requests == []


async def test_failed_call_costs_no_step_and_is_told() -> None:
    book = ledger()
    async with (
        pretend_vllm(lambda _: server_error()) as server,
        models(server) as inside,
        inside.serving("t1.1", "t1", "small", book) as calls,
    ):
        assert (await ask(inside))[0] >= 500
        assert (book.spent().steps, book.spent().tokens) == (0, 0)
        assert [call.status for call in calls.taken()] != ["200"]


@pytest.mark.parametrize(
    "labels", [{}, {"attempt": "t2.1", "kind": "work"}, LABELS | {"kind": "check"}, LABELS | {"kind": "setup"}]
)
async def test_no_other_sandbox_reaches_a_model(labels: dict[str, str]) -> None:
    async with pretend_vllm() as server, models(server) as inside, inside.serving("t1.1", "t1", "small", ledger()):
        with pytest.raises(ConnectionRefusedError):
            await inside.connect(labels)


async def test_nothing_is_answered_once_the_attempt_is_over() -> None:
    async with pretend_vllm() as server, models(server) as inside:
        async with inside.serving("t1.1", "t1", "small", ledger()):
            pass
        with pytest.raises(ConnectionRefusedError):
            await inside.connect(LABELS)


async def test_keys_of_the_gateway_are_not_asked_for_inside() -> None:
    keys = (KeyConfig(name="somebody", sha256="0" * 64),)
    async with (
        pretend_vllm() as server,
        models(server, keys=keys) as inside,
        inside.serving("t1.1", "t1", "small", ledger()),
    ):
        assert (await ask(inside))[0] == 200


def test_calls_side_by_side_wait_where_others_hold_the_rest_of_the_budget() -> None:
    meter = Meter(ledger(tokens=100))
    with meter.holding(90), meter.holding(90), pytest.raises(RefusedError) as caught, meter.holding(1):
        pass
    assert (caught.value.refusal.status, caught.value.refusal.retry_after is not None) == (429, True)
    assert not meter.over


def test_quiet_is_counted_between_calls_alone() -> None:
    now = [0.0]
    meter = Meter(ledger(), clock=lambda: now[0])
    now[0] = 5.0
    assert meter.quiet == 5.0
    with meter.holding(1):
        assert meter.quiet == 0.0
        meter.answered(answered())
    now[0] = 6.0
    assert (meter.quiet, meter.answers) == (1.0, 1)


def test_refusals_do_not_count_as_life() -> None:
    now = [0.0]
    meter = Meter(ledger(), clock=lambda: now[0])
    now[0] = 5.0
    meter.answered(answered(0, "404"))
    assert (meter.quiet, meter.answers) == (5.0, 0)
