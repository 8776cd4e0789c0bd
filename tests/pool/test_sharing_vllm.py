"""Two real vLLM servers that share their KV through a folder: what the pool foretells of the group is what they do."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from pool.config import EndpointConfig, PoolConfig
from pool.router import Pool
from pool.types import CompletionRequest
from tests.vllm_server import started

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[EndpointConfig, ...]]:
    """Both in one sharing group, over the connector that keeps KV in files (before 0.12 SharedStorageConnector)."""
    told = {
        "kv_connector": "ExampleConnector",
        "kv_role": "kv_both",
        "kv_connector_extra_config": {"shared_storage_path": str(tmp_path_factory.mktemp("kv"))},
    }
    flags = ("--kv-transfer-config", json.dumps(told))
    with started(*flags) as one, started(*flags) as other:
        yield tuple(
            EndpointConfig(name=name, url=server.up(), share_group="folder", transfer_rate=10_000.0)
            for name, server in (("a", one), ("b", other))
        )


async def test_prefix_that_one_has_computed_is_warm_on_the_other(group: tuple[EndpointConfig, ...]) -> None:
    async with Pool(PoolConfig(endpoints=group, canaries=False)) as pool:
        await pool.ready("default", 60)
        ask = CompletionRequest(
            tier="default", session="s", prompt="Agents share one prefix in one folder. " * 60, max_tokens=4,
            temperature=0, deadline=300,
        )  # fmt: skip
        first = await pool.complete(ask)
        assert first.usage.cached_tokens == 0
        await pool.drain(first.endpoint)
        second = await pool.complete(ask)
        assert second.endpoint != first.endpoint
        assert second.choices[0].content == first.choices[0].content
        decision = pool.explain(second.request)
    assert decision is not None
    (taken,) = [row for row in decision.rows if row.endpoint == second.endpoint]
    assert taken.hit_tokens == second.usage.cached_tokens == decision.actual_hit > 256
    assert taken.seconds["transfer"] > 0
