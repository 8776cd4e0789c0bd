"""What stands before every route: who calls, whether they may, no page of a browser, and a body within bounds."""

from __future__ import annotations

import asyncio
import pwd
import re
from functools import lru_cache

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from swarm.answers import Role
from swarm.api.desk import Caller, Desk
from swarm.api.failures import Turned, answer
from swarm.config_door import known_host

HEAD_LIMIT = 65_536  # bytes of a request's head: its path and its headers
BODY_LIMIT = 1_000_000  # bytes of a request
TASTED = 8_000_000  # bytes of one that is too large that are read and dropped, so that its sender hears the answer
BODY_SECONDS = 30.0  # that a caller may take to send one

_LOOKING = {"GET", "HEAD", "OPTIONS"}
_OWN = re.compile(r"/v1/tasks(/.*)?|/v1/batches")
_RANK: dict[Role, int] = {"viewer": 0, "submitter": 1, "operator": 2}


def needed(method: str, path: str) -> Role:
    """The least right that a call takes. What is not named here takes all."""
    if method in _LOOKING:
        return "viewer"
    return "submitter" if _OWN.fullmatch(path) else "operator"


class Guard:
    """An ASGI application in front of another. Only it decides who calls."""

    def __init__(self, app: ASGIApp, desk: Desk) -> None:
        self._app = app
        self._desk = desk

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, with its caller and its whole body, or answer it."""
        if scope["type"] != "http":
            return
        try:
            _framed(scope)
            scope.setdefault("state", {})["caller"] = self._caller(scope)
            body = await _body(scope, receive)
        except Turned as turned:
            await answer(turned)(scope, receive, send)
            return
        await self._app(scope, _replay(body, receive), send)

    def _caller(self, scope: Scope) -> Caller:
        """Raises Turned."""
        headers = Headers(scope=scope)
        _no_page(headers)
        uid = scope["state"].get("peer_uid")
        if uid is not None:
            return Caller(user_name(uid), "operator")  # the socket's rights are those of its file
        caller = self._with_token(headers)
        least = needed(scope["method"], scope["path"])
        if _RANK[caller.role] < _RANK[least]:
            why = f"the token {caller.name} is a {caller.role}'s, and this takes a {least}'s"
            raise Turned(403, "that is not allowed", why, "use another token: swarm token add --role")
        return caller

    def _with_token(self, headers: Headers) -> Caller:
        if not known_host(headers.get("host", ""), self._desk.hosts):
            mend = "call it by its address, or name the host in daemon.tcp.hosts"
            raise Turned(
                421, "the daemon is not called that", f"{headers.get('host', '')[:100]!r} is no name of it", mend
            )
        scheme, _, token = headers.get("authorization", "").partition(" ")
        if self._desk.tokens is None or scheme.lower() != "bearer" or not token.strip():
            mend = "send Authorization: Bearer TOKEN; swarm token add makes one"
            raise Turned(401, "the daemon does not know who calls", "the request has no token", mend)
        found = self._desk.tokens.find(token.strip())
        if found is None:
            mend = "see the tokens with swarm token list, make one with swarm token add"
            raise Turned(401, "the daemon does not know who calls", "it does not know that token", mend)
        if wait := self._desk.tokens.wait(found):
            why = f"the token {found.name} may make {found.per_minute} requests a minute"
            raise Turned(429, "that is too fast", why, f"wait {wait:.1f} s", retry_after=wait)
        return Caller(found.name, found.role, found)


def _framed(scope: Scope) -> None:
    """Raises Turned for a head beyond the bound, and for one that says twice where its body ends (RFC 9112, 6.3)."""
    size = len(scope.get("raw_path") or b"") + len(scope.get("query_string", b""))
    size += sum(len(name) + len(value) + 4 for name, value in scope["headers"])
    if size > HEAD_LIMIT:
        why = f"its head has more than {HEAD_LIMIT} bytes"
        raise Turned(431, "the request is too large", why, "send fewer and shorter headers")
    if {b"content-length", b"transfer-encoding"} <= {name for name, _ in scope["headers"]}:
        why = "it has a Content-Length and a Transfer-Encoding"
        raise Turned(400, "the request is not understood", why, "send one of them")


def _no_page(headers: Headers) -> None:
    """Raises Turned for a request that a web page had a browser make: no page has any business here."""
    origin, site = headers.get("origin"), headers.get("sec-fetch-site")
    if origin is not None or site not in {None, "none"}:
        why = f"it comes from a web page ({(origin or site or '')[:100]!r})"
        raise Turned(403, "the daemon answers no web page", why, "use swarm, swarm.client or another program")


@lru_cache(maxsize=256)
def user_name(uid: int) -> str:
    """The name of a user of this machine."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid:{uid}"


async def _body(scope: Scope, receive: Receive) -> bytes:
    """The whole body. Raises Turned for one that is too large or takes too long."""
    if scope["method"] in {"GET", "HEAD", "OPTIONS"}:
        return b""
    body, size = bytearray(), 0
    try:
        async with asyncio.timeout(BODY_SECONDS):
            while True:
                message = await receive()
                size += len(message.get("body", b""))
                ended = message["type"] == "http.disconnect" or not message.get("more_body")
                if size > BODY_LIMIT and (ended or size > TASTED):
                    why = f"it has more than {BODY_LIMIT} bytes"
                    raise Turned(413, "the request is too large", why, "say it in fewer words")
                if size <= BODY_LIMIT:
                    body += message.get("body", b"")
                if ended:
                    return bytes(body)
    except TimeoutError:
        why = f"its body was not there after {BODY_SECONDS:.0f} s"
        raise Turned(408, "the request came too slowly", why, "send it at once") from None


def _replay(body: bytes, receive: Receive) -> Receive:
    """The body once more, in one piece, and then whatever comes."""
    told = False

    async def again() -> Message:
        nonlocal told
        if told:
            return await receive()
        told = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again
