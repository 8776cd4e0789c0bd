"""Passes one request on to a server, and its answer back piece by piece, within caps. httpcore speaks upstream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import dataclass
from typing import Protocol

import httpcore

from sandbox.egress.conversation import Asked, Conversation
from sandbox.egress.heads import Field, homeward, value_of
from sandbox.egress.hosts import WEB, Place
from sandbox.egress.refusal import CutError, Refusal, RefusedError

_FAILED = (
    *(OSError, httpcore.TimeoutException, httpcore.NetworkError, httpcore.ProtocolError),
    *(httpcore.UnsupportedProtocol, httpcore.PoolTimeout),
)


class Purse(Protocol):
    """Counts the bytes of answers."""

    def fits(self, length: int) -> None:
        """Raises RefusedError where so many more bytes would be too many."""

    def take(self, length: int) -> None:
        """Count them. Raises RefusedError where they are too many."""


class Bottomless:
    """Counts nothing."""

    def fits(self, length: int) -> None:
        """Everything fits."""

    def take(self, length: int) -> None:
        """Nothing is counted."""


@dataclass(frozen=True, slots=True)
class Onward:
    """A request as it travels on. ``name``: what the server is called in a refusal."""

    scheme: str
    where: Place
    target: str
    fields: tuple[Field, ...]
    name: str


@dataclass(frozen=True, slots=True)
class Patience:
    """Seconds: to connect, without a byte, and for the whole."""

    connect: float
    idle: float
    whole: float | None = None


class Relay:
    """One way upstream. ``kept_back``: fields of answers that are not told inside."""

    def __init__(
        self, pool: httpcore.AsyncConnectionPool, patience: Patience, kept_back: frozenset[bytes] = frozenset()
    ) -> None:
        self._pool = pool
        self._patience = patience
        self._kept_back = kept_back

    async def pass_on(self, talk: Conversation, asked: Asked, onward: Onward, purse: Purse) -> bool:
        """Ask upstream and tell the answer; whether the connection may go on.

        Given up when the client hangs up. Raises RefusedError for what is refused, CutError for what broke off.
        """
        work = asyncio.ensure_future(self._answer(talk, asked, onward, purse))
        watch = asyncio.ensure_future(talk.hung_up())
        try:
            await asyncio.wait({work, watch}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                raise CutError("the client hung up")
            return work.result()
        finally:
            work.cancel()
            watch.cancel()
            await asyncio.gather(work, watch, return_exceptions=True)

    async def _answer(self, talk: Conversation, asked: Asked, onward: Onward, purse: Purse) -> bool:
        begun = False
        try:
            async with asyncio.timeout(self._patience.whole), self._ask(talk, asked, onward) as answer:
                _check(asked, answer, onward, purse)
                begun = True
                async with aclosing(_counted(answer, purse)) as pieces:
                    return await talk.answer(answer.status, homeward(answer.headers, self._kept_back), pieces)
        except _FAILED as error:
            if begun:
                raise CutError("the server's answer broke off") from error
            raise RefusedError(_bad_news(error, onward.name)) from error

    def _ask(self, talk: Conversation, asked: Asked, onward: Onward) -> AbstractAsyncContextManager[httpcore.Response]:
        connect, idle = self._patience.connect, self._patience.idle
        length = value_of(asked.fields, b"content-length")
        framing = [(b"content-length", length.encode())] if length else []
        return self._pool.stream(
            asked.method,
            httpcore.URL(scheme=onward.scheme, host=onward.where.host, port=onward.where.port, target=onward.target),
            headers=[(b"host", host_field(onward.where, onward.scheme)), *framing, *onward.fields],
            content=talk.body() if asked.body else None,
            extensions={"timeout": {"connect": connect, "pool": connect, "read": idle, "write": idle}},
        )


def host_field(where: Place, scheme: str) -> bytes:
    """The Host field of a request to a place: without the port that goes without saying."""
    whole = str(where)
    return (whole.rpartition(":")[0] if where.port == WEB[scheme] else whole).encode()


def _check(asked: Asked, answer: httpcore.Response, onward: Onward, purse: Purse) -> None:
    if answer.status == 101:
        raise RefusedError(Refusal(502, f"{onward.name} changed the protocol, which nobody asked for"))
    told = value_of([(name.lower(), value) for name, value in answer.headers], b"content-length")
    if told and told.isdigit() and asked.method != "HEAD":
        purse.fits(int(told))


async def _counted(answer: httpcore.Response, purse: Purse) -> AsyncGenerator[bytes, None]:
    async for piece in answer.aiter_stream():
        purse.take(len(piece))
        yield piece


def _bad_news(error: Exception, name: str) -> Refusal:
    words = " ".join(str(error).split()) or type(error).__name__
    if "CERTIFICATE_VERIFY_FAILED" in words:
        mend = "where it is a mirror of yours, start the daemon with SSL_CERT_FILE naming its authority's certificate"
        return Refusal(502, f"{name} has a certificate that this host does not trust; {mend}", denied=False)
    if isinstance(error, TimeoutError | httpcore.TimeoutException):
        return Refusal(504, f"{name} did not answer in time", denied=False)
    return Refusal(502, f"{name} cannot be reached or broke off: {words[:200]}", denied=False)
