"""Why a request to the pool failed, classed by what a caller can do about it.

PoolError
├── PoolConfigError      the configuration names no such tier or is unusable
├── PermanentError       the request itself is wrong (400, 401, 404, 422): never retried
├── ContextOverflowError prompt and output do not fit the model's window: shorten, or ask a longer-window tier
├── OverloadError        the tier is full (429, 503); ``retry_after`` seconds where told
├── TransientError       a passing fault (5xx, reset before the first byte): retried within the budget
└── NoEndpointError      no endpoint of the tier is alive
"""

from __future__ import annotations


class PoolError(Exception):
    """Base of all errors of this room."""


class PoolConfigError(PoolError):
    """The configuration names no such tier or is unusable."""


class PermanentError(PoolError):
    """The request itself is wrong; sending it again cannot help."""


class ContextOverflowError(PoolError):
    """Prompt and output do not fit the model's window."""


class OverloadError(PoolError):
    """The tier is full."""

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class TransientError(PoolError):
    """A passing fault."""


class NoEndpointError(PoolError):
    """No endpoint of the tier is alive."""
