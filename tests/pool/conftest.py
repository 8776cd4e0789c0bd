"""Fixtures of the pool's tests: short patience, so that a fault is met in milliseconds."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pool.config import EndpointConfig, PoolConfig
from pool.testing import PretendServer

Settings = Callable[..., PoolConfig]


@pytest.fixture
def settings() -> Settings:
    """A configuration of the given servers, named a, b, c ... in the tier "small"."""

    def make(*servers: PretendServer, tier: str = "small", **more: object) -> PoolConfig:
        endpoints = tuple(
            EndpointConfig(name=name, url=server.url, tier=tier)
            for name, server in zip("abcdefgh", servers, strict=False)
        )
        patience: dict[str, object] = {"probe_interval": 0.1, "connect_timeout": 2.0, "first_byte_timeout": 10.0}
        return PoolConfig.model_validate({"endpoints": endpoints, **patience, **more})

    return make
