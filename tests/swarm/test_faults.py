"""Which exceptions may pass, which last, and which need a person."""

from __future__ import annotations

import pytest

from pool.errors import (
    ContextOverflowError,
    NoEndpointError,
    OverloadError,
    PermanentError,
    PoolConfigError,
    TransientError,
)
from sandbox.errors import SandboxLostError, SandboxUnavailableError, WorkspaceError
from swarm.errors import BrokerError, BrokerUnreachableError, ConfigError
from swarm.faults import broken, fault_of


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (NoEndpointError("x"), "passing"),
        (OverloadError("x"), "passing"),
        (TransientError("x"), "passing"),
        (PermanentError("x"), "lasting"),
        (PoolConfigError("x"), "lasting"),
        (ContextOverflowError("x"), "lasting"),
        (SandboxLostError("x"), "passing"),
        (SandboxUnavailableError("x"), "lasting"),
        (WorkspaceError("x"), "lasting"),
        (BrokerUnreachableError("x", "y"), "passing"),
        (BrokerError("x", "y"), "person"),
        (ConfigError("x"), "lasting"),
        (ValueError(""), "lasting"),
    ],
)
def test_kinds(error: Exception, kind: str) -> None:
    fault = fault_of(error)
    assert fault.kind == kind
    assert fault.failure.why
    assert fault.text.startswith(fault.failure.what)
    assert broken(fault).fault == fault
