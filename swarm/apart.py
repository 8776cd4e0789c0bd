"""Keeps what is wrong with one row from the rows after it, in the loops that run beside the coordinator."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from sandbox.errors import SandboxError
from swarm.errors import BrokerUnreachableError, StoreAwayError, SwarmError

log = logging.getLogger(__name__)


@contextmanager
def apart(what: str) -> Iterator[None]:
    """Log what goes wrong with ``what``, and let the next one have its turn.

    Raises StoreAwayError and BrokerUnreachableError alone: every row would meet those.
    """
    try:
        yield
    except (StoreAwayError, BrokerUnreachableError):
        raise
    except (SwarmError, SandboxError, OSError) as error:
        log.warning("%s: %s", what, error)
    except Exception:
        log.exception("%s: a fault of the daemon's own", what)
