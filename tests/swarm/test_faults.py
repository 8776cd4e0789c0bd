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
from sandbox.errors import ImageError, SandboxLostError, SandboxUnavailableError, WorkspaceError
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


def test_a_mend_that_comes_along_is_told_once_and_a_full_disk_breaks_no_sandbox() -> None:
    """A newcomer read "...; mend: ...; mend: ..." of images, and that a sandbox broke where the disk was full."""
    image = fault_of(ImageError("there is no image at /x; mend: put one there")).failure
    assert (image.why, image.mend) == ("there is no image at /x", "put one there")
    full = fault_of(SandboxUnavailableError("the disk has 0.99 GiB free; mend: free some space")).failure
    assert (full.what, full.mend) == ("no sandbox can be had for it", "free some space")
    both = "no sandbox can be used:\n  docker: x; mend: a\n  bwrap: y; mend: b"
    assert fault_of(SandboxUnavailableError(both)).failure.why == both
