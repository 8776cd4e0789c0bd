"""Virtual models on the real embedded model: logprobs come, votes are counted, and the report's sums are the usage."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from pool.config import EmbeddedConfig, PoolConfig, VirtualConfig
from pool.embedded import serve_embedded
from pool.router import Pool
from pool.tiers.front import Tiers
from pool.types import CompletionRequest, Reply
from tests.pool.tiers.below import chat

pytestmark = [pytest.mark.model, pytest.mark.timeout(600)]

VIRTUAL: dict[str, dict[str, Any]] = {
    "many": {"kind": "vote", "tiers": ("embedded",), "samples": 3, "compare": "number", "budget": 4096},
    "poor": {"kind": "vote", "tiers": ("embedded",), "samples": 64, "compare": "text", "budget": 300},
    "sure": {"kind": "confidence", "tiers": ("embedded", "again"), "threshold": -50.0},
    "never": {"kind": "confidence", "tiers": ("embedded", "again"), "threshold": -1e-9},
    "fused": {"kind": "fuse", "tiers": ("embedded", "again"), "budget": 4096},
    "checked": {"kind": "draft-verify", "tiers": ("embedded", "again"), "budget": 8192},
}


@asynccontextmanager
async def served(folder: Path) -> AsyncIterator[tuple[Pool, Tiers]]:
    """The embedded model as two tiers; only one server is behind them, so the second name costs nothing."""
    async with serve_embedded(EmbeddedConfig(enabled=True), log=folder / "llama.log") as endpoint:
        again = endpoint.model_copy(update={"name": "again", "tier": "again"})
        virtual = {name: VirtualConfig(**settings) for name, settings in VIRTUAL.items()}
        config = PoolConfig(endpoints=(endpoint, again), virtual=virtual)
        async with Pool(config) as pool:
            yield pool, Tiers(pool, config)


def adds_up(reply: Reply) -> None:
    report = reply.report
    assert report is not None
    done = [part for part in report.parts if not part.failed]
    assert reply.usage.prompt_tokens == sum(part.usage.prompt_tokens for part in done)
    assert reply.usage.completion_tokens == sum(part.usage.completion_tokens for part in done)
    assert all(part.usage.prompt_tokens > 0 and part.usage.completion_tokens > 0 for part in done)
    assert report.spent == reply.usage.prompt_tokens + reply.usage.completion_tokens
    assert report.spent <= report.budget
    assert reply.seconds >= max(part.seconds for part in done) - 0.01
    assert reply.model == "SmolLM2-135M-Instruct"


async def test_all_kinds_on_the_embedded_model(tmp_path: Path) -> None:
    question = "What is 2 plus 2? Answer with one number."
    async with served(tmp_path) as (_, tiers):
        vote = await tiers.chat(chat("many", question, max_tokens=12))
        adds_up(vote)
        assert vote.report is not None
        figures = vote.report.figures
        assert 2 <= figures["drawn"] <= 3
        assert 0 < figures["agreement"] <= 1
        assert sum(part.samples for part in vote.report.parts) == figures["drawn"]

        poor = await tiers.chat(chat("poor", "Tell a short story.", max_tokens=24, temperature=1.2))
        adds_up(poor)
        assert poor.report is not None
        assert poor.report.stopped == "budget"

        for name, tier, asked in (("sure", "embedded", 1), ("never", "again", 2)):
            reply = await tiers.chat(chat(name, question, max_tokens=12, temperature=0.0))
            adds_up(reply)
            assert reply.report is not None
            assert (reply.tier, len(reply.report.parts)) == (tier, asked)
            assert -20 < reply.report.figures["confidence:embedded"] < 0

        for name in ("fused", "checked"):
            reply = await tiers.chat(chat(name, question, max_tokens=12))
            adds_up(reply)
            assert reply.choices[0].content.strip()


async def test_logprobs_of_the_embedded_model_are_of_its_own_tokens(tmp_path: Path) -> None:
    async with served(tmp_path) as (pool, _):
        reply = await pool.chat(chat("embedded", "Count to five.", max_tokens=16, logprobs=True, temperature=0.0))
        raw = await pool.complete(
            CompletionRequest(tier="embedded", prompt="1 2 3 4", session="raw", max_tokens=8, logprobs=True)
        )
        plain = await pool.chat(chat("embedded", "Count to five.", max_tokens=16))
    for told in (reply, raw):
        (choice,) = told.choices
        assert "".join(choice.tokens).startswith(choice.content)
        assert len(choice.logprobs) == len(choice.tokens) == len(choice.margins)
        assert all(-50 < logprob <= 0 and not math.isnan(logprob) for logprob in choice.logprobs)
    assert plain.choices[0].logprobs == ()
