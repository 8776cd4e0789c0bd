"""What a client is told where the pool has no answer: the reason, and no address of a server; the log keeps both."""

from __future__ import annotations

import logging
from dataclasses import replace

from pool.errors import OverloadError, PoolError
from pool.gateway.replies import Refusal, refusal_of
from pool.gateway.service import Service
from pool.gateway.veil import hidden

log = logging.getLogger(__name__)
FAULT = 500  # from this status on it is not the caller's doing


def told(service: Service, error: PoolError, what: str = "a request") -> Refusal:
    """The refusal for an error of the pool; ``what`` names the request in the log."""
    refusal = refusal_of(error)
    if refusal.status >= FAULT and not isinstance(error, OverloadError):
        log.warning("%s failed: %s", what, error)
    return replace(refusal, message=hidden(refusal.message, (one.url for one in service.pool.status())))
