"""Who may call and how much: keys by their hash, tokens a minute and a day, requests at a time. Given a clock."""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Protocol
from urllib.parse import urlsplit

from pool.config import KeyConfig
from pool.errors import PoolConfigError
from pool.gateway.bound import Bound
from pool.gateway.replies import Refusal, RefusedError
from pool.types import RequestClass

MINUTE, DAY = 60.0, 86_400.0
ORDER: tuple[RequestClass, ...] = ("interactive", "default", "bulk")  # the best first


class Budget:
    """A bucket of tokens that refills steadily. A spending may overdraw it, since answers are counted afterwards."""

    def __init__(self, most: int, period: float, clock: Callable[[], float]) -> None:
        self._most = most
        self._rate = most / period
        self._clock = clock
        self._left = float(most)
        self._at = clock()

    def wait(self, tokens: int) -> float:
        """Seconds until so many may be spent; 0 when they may now. A request beyond the whole bucket needs it full."""
        now = self._clock()
        self._left = min(float(self._most), self._left + (now - self._at) * self._rate)
        self._at = now
        lacking = min(tokens, self._most) - self._left
        return max(0.0, lacking / self._rate)

    def reserve(self, tokens: int) -> int:
        """Take tokens out before they are counted, at most a whole bucket: a guess must lock nobody out for days."""
        held = min(tokens, self._most)
        self._left -= held
        return held

    def settle(self, held: int, real: int) -> int:
        """Put the real number in the place of what was taken out; gives it back."""
        self._left = min(float(self._most), self._left + held - real)
        return real


@dataclass(slots=True)
class Caller:
    """One key's state. ``running`` counts its requests now. ``bound`` is for one that is a single session."""

    name: str
    best: RequestClass = "interactive"
    concurrent: int | None = None
    budgets: tuple[tuple[str, Budget], ...] = ()
    running: int = field(default=0)
    bound: Bound | None = None

    @contextmanager
    def request(self, tokens: int) -> Iterator[Callable[[int], None]]:
        """One request for as long as the block runs. ``tokens`` are reserved; the block calls what it is given with
        the real number, once known. Raises RefusedError (429) that says when to come back."""
        if self.concurrent is not None and self.running >= self.concurrent:
            words = f"key {self.name}: {self.concurrent} requests are running, which is all it may have at a time"
            raise RefusedError(Refusal(429, words, "too_many_requests", retry_after=1.0))
        for what, budget in self.budgets:
            if wait := budget.wait(tokens):
                words = f"key {self.name}: its tokens a {what} are spent; come back in {wait:.0f} s"
                raise RefusedError(Refusal(429, words, f"tokens_per_{what}", retry_after=wait))
        with self.bound.account.holding(tokens) if self.bound else nullcontext():
            held = [budget.reserve(tokens) for _, budget in self.budgets]
            self.running += 1

            def settle(real: int) -> None:
                held[:] = [budget.settle(had, real) for had, (_, budget) in zip(held, self.budgets, strict=True)]

            try:
                yield settle
            finally:
                self.running -= 1

    def lowered(self, asked: str | None) -> RequestClass:
        """The class of a request: what it asks for, never better than the key's."""
        best = ORDER.index(self.best)
        for rank, name in enumerate(ORDER):
            if name == asked:
                return ORDER[max(rank, best)]
        return "default" if best == 0 else self.best


class Callers(Protocol):
    """Tells who calls."""

    def caller(self, authorization: str | None, api_key: str | None = None) -> Caller:
        """Who calls, from a bearer token or an x-api-key header. Raises RefusedError (401)."""


class OneCaller:
    """The same caller whatever key is sent: the connection itself tells who calls."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    def caller(self, authorization: str | None, api_key: str | None = None) -> Caller:  # noqa: ARG002  the protocol
        """That caller."""
        return self._caller


class Keys:
    """All callers. Without any key everybody is one caller without bounds."""

    def __init__(self, configs: Sequence[KeyConfig], environ: Mapping[str, str], clock: Callable[[], float]) -> None:
        self._anybody = None if configs else Caller("anybody")
        self._by_hash = {_hash_of(config, environ): _caller(config, clock) for config in configs}
        if len(self._by_hash) < len(configs):
            raise PoolConfigError("two keys of the gateway are the same; give every caller its own")

    def caller(self, authorization: str | None, api_key: str | None = None) -> Caller:
        """Who calls, from a bearer token or an x-api-key header. Raises RefusedError (401)."""
        if self._anybody is not None:
            return self._anybody
        scheme, _, token = (authorization or "").partition(" ")
        given = token.strip() if scheme.lower() == "bearer" else api_key
        if not given:
            words = "this gateway wants a key: send it as Authorization: Bearer KEY"
            raise RefusedError(Refusal(401, words, "missing_api_key"))
        found = self._by_hash.get(hashed(given))
        if found is None:
            raise RefusedError(Refusal(401, "this gateway does not know that key", "invalid_api_key"))
        return found


def hashed(key: str) -> str:
    """How a key is stored. Keys are long and random, so a plain SHA-256 does."""
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def check_bind(host: str, configs: Sequence[KeyConfig]) -> None:
    """Raises PoolConfigError for an address that others can reach while no key is asked for."""
    if configs or _loopback(host):
        return
    raise PoolConfigError(
        f"the gateway would answer everybody who reaches {host}: without keys it listens on loopback only; "
        "add [[pool.gateway.keys]] with name and sha256 (or env), or listen on 127.0.0.1"
    )


def foreign_page(headers: Mapping[str, str]) -> str:
    """The address that a browser came by where that is not this machine; empty for everybody else.

    A page can reach a server on loopback by a plain POST, or by a name that is bound to 127.0.0.1 after it was loaded
    (DNS rebinding). Only keys keep such a page out where the name is meant to be another one.
    """
    for told in (headers.get("host"), headers.get("origin")):
        if told and not _here(told):
            return told[:200]
    return ""


@lru_cache(maxsize=64)  # callers name the same few addresses in each request
def _here(told: str) -> bool:
    """Whether an address, with or without a scheme, is this machine's own."""
    name = urlsplit(told if "//" in told else f"//{told}").hostname or ""
    return name == "localhost" or name.endswith(".localhost") or _loopback(name)


def _loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _hash_of(config: KeyConfig, environ: Mapping[str, str]) -> str:
    if config.sha256 is not None:
        return config.sha256
    key = environ.get(config.env or "")
    if not key:
        raise PoolConfigError(
            f"gateway key {config.name}: the environment variable {config.env} is not set; set it or give sha256"
        )
    return hashed(key)


def _caller(config: KeyConfig, clock: Callable[[], float]) -> Caller:
    told = (("minute", config.tokens_per_minute, MINUTE), ("day", config.tokens_per_day, DAY))
    return Caller(
        name=config.name,
        best=config.request_class,
        concurrent=config.concurrent,
        budgets=tuple((what, Budget(most, period, clock)) for what, most, period in told if most is not None),
    )
