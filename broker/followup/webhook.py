"""The listener that forges call. A call that is signed means: look at that repository now. Its body is never parsed.

GitHub and Gitea sign the body (HMAC-SHA256), GitLab sends the secret itself.
https://docs.github.com/en/webhooks/using-webhooks/validating-webhook-deliveries
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

MAX_BODY = 4 << 20  # a forge sends up to 25 MiB; what is larger is noticed by polling
MAX_DELIVERIES = 10_000
AT_ONCE = 8
PER_SECOND = 20.0
BURST = 100.0
BODY_SECONDS = 10.0
_IDS = ("x-github-delivery", "x-gitea-delivery", "x-gitlab-event-uuid")


class Webhook:
    """``secret`` gives the shared secret, ``names`` the repositories, ``hint`` is called with one of them.

    A call without a good signature gets 401 whatever it names, one with a good signature for an unknown name 404; both
    without a word more.
    """

    def __init__(
        self,
        secret: Callable[[], bytes],
        names: Callable[[], Collection[str]],
        hint: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._secret = secret
        self._names = names
        self._hint = hint
        self._gate = asyncio.Semaphore(AT_ONCE)
        self._seen: OrderedDict[str, None] = OrderedDict()
        self._room = BURST
        self._clock = clock
        self._at = clock()

    def app(self) -> Starlette:
        """The application."""
        return Starlette(routes=[Route("/hook/{repository}", self._called, methods=["POST"])])

    async def _called(self, request: Request) -> Response:
        if not self._has_room() or self._gate.locked():
            return Response(status_code=429, headers={"Retry-After": "10"})
        async with self._gate:
            body = await _read(request)
            if body is None:
                return Response(status_code=413)
            secret = await asyncio.to_thread(self._secret)
            if not signed(request.headers, body, secret):
                return Response(status_code=401)
        repository = str(request.path_params["repository"])
        if repository not in self._names():
            return Response(status_code=404)
        if self._is_new(repository, request.headers, body):
            self._hint(repository)
        return Response(status_code=204)

    def _has_room(self) -> bool:
        now = self._clock()
        self._room = min(BURST, self._room + (now - self._at) * PER_SECOND)
        self._at = now
        if self._room < 1:
            return False
        self._room -= 1
        return True

    def _is_new(self, repository: str, headers: Mapping[str, str], body: bytes) -> bool:
        """Whether this delivery was not seen before. Its id is not signed, so a body sent again counts as seen too."""
        keys = [f"body {hashlib.sha256(repository.encode() + b' ' + body).hexdigest()}"]
        keys += [f"id {headers[name][:100]}" for name in _IDS if name in headers]
        new = not any(key in self._seen for key in keys)
        for key in keys:
            self._seen[key] = None
            self._seen.move_to_end(key)
        while len(self._seen) > MAX_DELIVERIES:
            self._seen.popitem(last=False)
        return new


def signed(headers: Mapping[str, str], body: bytes, secret: bytes) -> bool:
    """Whether a call bears the secret's signature, in the way of any of the forges. Takes the same time either way."""
    if not secret:
        return False
    digest = hmac.new(secret, body, hashlib.sha256).hexdigest().encode()
    wanted = {"x-hub-signature-256": b"sha256=" + digest, "x-gitea-signature": digest, "x-gitlab-token": secret}
    given = [(headers.get(name, "").encode(errors="replace"), right) for name, right in wanted.items()]
    return any([hmac.compare_digest(one, right) for one, right in given])  # noqa: C419 - all of them, always


async def _read(request: Request) -> bytes | None:
    """The body; None if it is too large, too slow or broken off."""
    declared = request.headers.get("content-length", "0")
    if not declared.isdigit() or int(declared) > MAX_BODY:
        return None
    parts, size = [], 0
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for chunk in request.stream():
                parts.append(chunk)
                size += len(chunk)
                if size > MAX_BODY:
                    return None
    except (TimeoutError, ClientDisconnect):
        return None
    return b"".join(parts)
