"""The ways out that sandboxes can be given, made from the settings: to the models, and to package registries."""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import MappingProxyType

from sandbox.base import Exit, Exits
from sandbox.config import EgressConfig
from sandbox.egress.denied import DeniedLog
from sandbox.egress.dialling import Connect
from sandbox.egress.model import ModelExit
from sandbox.egress.packages import PackagesExit
from sandbox.types import Network
from swarm.errors import ConfigError


def ways_out(
    config: EgressConfig,
    log: DeniedLog,
    *,
    connect: Connect | None = None,
    environment: Mapping[str, str] = os.environ,
) -> Exits:
    """What there is: always the registries, the models where ``connect`` or the settings lead to a gateway.

    ``connect`` goes before a gateway of the settings: it leads to the pool that charges a task. Raises ConfigError for
    settings that cannot be.
    """
    ways: dict[Network, Exit] = {}
    model = config.model
    try:
        if connect is not None or model.gateway is not None:
            key = environment.get(model.api_key_env) if model.api_key_env else None
            ways["model"] = ModelExit(model, log, connect, None if connect else key)
        ways["packages"] = PackagesExit(config.packages, log)
    except ValueError as error:
        mend = "correct sandbox.egress in swarm.toml; each setting: swarm config explain sandbox.egress"
        raise ConfigError(f"sandbox.egress: {error}", mend) from error
    return MappingProxyType(ways)
