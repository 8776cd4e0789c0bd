"""An unmodified client's question, over real HTTP."""

from __future__ import annotations

import pytest

from pool.config import EndpointConfig
from pool.plain_client import trouble
from pool.testing import pretend_vllm, server_error, unfinished


async def test_a_good_server_is_no_trouble_and_sees_nothing_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_ORG_ID", "org-of-somebody")
    monkeypatch.setenv("OPENAI_API_KEY", "a-key-of-somebody")
    async with pretend_vllm() as server:
        config = EndpointConfig(name="a", url=server.url, api_key="ours")
        assert await trouble(config, server.model) == ""
        (asked,) = server.requests
        assert asked.headers["authorization"] == "Bearer ours"
        assert "somebody" not in str(asked.headers)


async def test_what_is_wrong_is_said() -> None:
    async with pretend_vllm([server_error(), unfinished("yes")]) as server:
        config = EndpointConfig(name="a", url=server.url)
        assert "500" in await trouble(config, server.model)
        assert await trouble(config, server.model)
        assert "404" in await trouble(config, "another")
    assert "Connection" in await trouble(config, "gone")
