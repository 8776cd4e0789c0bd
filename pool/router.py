"""The pool's door: takes a request, has it placed, sends it, and sends it again elsewhere where that is safe.

A tier is a property of the request: nothing here climbs to another one. A request is sent again only while nothing of
meaning reached its caller, within one count, one deadline and the pool's one bucket of retries.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self, TypeVar

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception

from pool.breaker import Breaker
from pool.config import EndpointConfig, PoolConfig
from pool.dispatch import Dispatch, Stats, Waiting
from pool.endpoint import Answer, Heard
from pool.errors import (
    ContextOverflowError,
    EndpointDeadError,
    ModelMissingError,
    NoEndpointError,
    OverloadError,
    PermanentError,
    PoolConfigError,
    PoolError,
    StalledError,
    TornError,
    TransientError,
)
from pool.lease import Lease
from pool.member import Clock, Member
from pool.patience import Watch, first_budget
from pool.placement.blocks import Keys
from pool.placement.placer import Placer
from pool.placement.view import Decision, Site
from pool.relayed import Relayed
from pool.resume import can, safe
from pool.retry import BACKOFF, Budget
from pool.roster import JOIN_INTERVAL, Roster
from pool.standing import Standings
from pool.trip import Need, Start, Started, Trip, Visit, fitted
from pool.types import ChatRequest, CompletionRequest, EndpointStatus, Reply
from pool.wire.capability import Record

__all__ = ["Need", "Pool", "Started"]

T = TypeVar("T")
Request = ChatRequest | CompletionRequest
