"""The one REST door to all remote forges: fixed host, bounded answers, no redirects, paced, repeated where safe."""

from __future__ import annotations

import functools
import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import httpx
from pydantic import SecretStr
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_exponential, wait_random

from broker.disguises import struck
from broker.errors import AbsentError, ForgeError
from broker.forge.rest.address import Address, lower, next_query
from broker.forge.rest.pace import Answered, Pace
from broker.forge.rest.problems import Problem, Reason, clean, read
from broker.scope import Lend, Scope

Query = Mapping[str, str | int]
Asked = Query | tuple[tuple[str, str], ...]
_CHUNK = 64 * 1024
_UNSENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)


@dataclass(frozen=True)
class Bounds:
    """Seconds and bytes: for a connection, one read, one whole call; of one answer; how often a safe call is tried."""

    connect: float = 10.0
    silence: float = 30.0
    call: float = 60.0
    answer: int = 8 << 20
    tries: int = 3
    pause: float = 0.5


@dataclass(frozen=True)
class Dialect:
    """How one kind of forge is spoken to: the headers that a token goes into, and those of every call."""

    name: str
    sign: Callable[[str], Mapping[str, str]]
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Reply:
    """A good answer, or a 304 (``unchanged``). Header names in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def unchanged(self) -> bool:
        """Nothing is new since the ETag or time that was sent along."""
        return self.status == 304

    def json(self) -> Any:
        """The body's value, None if it is empty. Raises ForgeError."""
        if not self.body.strip():
            return None
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            raise ForgeError("the forge's answer is no JSON", "try again later", reason=Reason.BROKEN) from None

    def mapping(self) -> dict[str, Any]:
        """The body as an object. Raises ForgeError."""
        value = self.json()
        if not isinstance(value, dict):
            raise ForgeError("the forge's answer is not what its API promises", reason=Reason.BROKEN)
        return value

    def list(self) -> list[dict[str, Any]]:
        """The body as a list of objects; anything else in it is left out. Raises ForgeError."""
        value = self.json()
        if not isinstance(value, list):
            raise ForgeError("the forge's answer is not what its API promises", reason=Reason.BROKEN)
        return [item for item in value if isinstance(item, dict)]


@dataclass(frozen=True)
class Page:
    """Of a list: the maps in it, and what to ask for the next, None if this is the last."""

    items: list[dict[str, Any]]
    onward: Asked | None
    etag: str = ""
    unchanged: bool = False


@dataclass(frozen=True)
class Call:
    """One request. ``again``: repeating it does no harm; ``creates``: it makes content that forges ration."""

    method: str
    path: str
    query: Asked = ()
    body: Mapping[str, Any] | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    again: bool = True
    creates: bool = False
    doing: str = ""
    limit: int | None = None
    cut: bool = False


class Door:
    """To one repository's forge. Blocking; safe between threads. Each visit borrows one credential of one scope."""

    def __init__(
        self,
        address: Address,
        dialect: Dialect,
        lend: Lend,
        pace: Pace,
        *,
        bounds: Bounds = Bounds(),
        redact: Callable[[str], str] = str,
    ) -> None:
        self.address = address
        self.redact = redact
        self._dialect, self._lend, self._pace, self._bounds = dialect, lend, pace, bounds
        self._trust: ssl.SSLContext = address.trust() or _usual_trust()

    @contextmanager
    def visit(self, scope: Scope = Scope.READ) -> Iterator[Visit]:
        """Calls under one borrowed credential; it is given back, and where possible revoked, at the end."""
        with self._lend(scope) as token, self._client(token) as client:
            yield Visit(self, client, "" if token is None else token.get_secret_value())

    def _client(self, token: SecretStr | None) -> httpx.Client:
        signed = {} if token is None else self._dialect.sign(token.get_secret_value())
        headers = {
            "User-Agent": "agent-swarm-broker",
            "Accept": "application/json",
            "Accept-Encoding": "identity",  # what is counted is what was sent: no answer unfolds in memory
            **self._dialect.headers,
            **signed,
        }
        wait = self._bounds
        return httpx.Client(
            headers=headers,
            verify=self._trust,
            timeout=httpx.Timeout(wait.silence, connect=wait.connect),
            follow_redirects=False,
            trust_env=False,  # no proxy, netrc or certificate that the environment would name
            limits=httpx.Limits(max_connections=2),
        )

    def ask(self, visit: Visit, call: Call) -> Reply:
        """One call with its waits and repetitions. Raises ForgeError."""
        attempts = Retrying(
            stop=stop_after_attempt(self._bounds.tries),
            wait=wait_exponential(multiplier=self._bounds.pause, max=8.0) + wait_random(0, self._bounds.pause),
            retry=retry_if_exception_type(_Passing),
            reraise=True,
        )
        try:
            return attempts(self._once, visit, call)
        except _Passing as last:
            raise last.error from None

    def _once(self, visit: Visit, call: Call) -> Reply:
        self._pace.before(writes=call.method != "GET", creates=call.creates)
        try:
            reply = self._exchange(visit, call)
        except ForgeError as error:
            error.uncertain = not call.again
            raise
        except _UNSENT as error:
            raise _Passing(self._unreachable(error, call)) from None
        except httpx.HTTPError as error:  # it was sent, or a part of it
            failed = self._unreachable(error, call, uncertain=not call.again)
            raise (_Passing(failed) if call.again else failed) from None
        text = reply.body[:4096].decode(errors="replace") if reply.status >= 400 else ""
        if self._pace.after(Answered(reply.status, reply.headers, text)):
            raise _Passing(self._pace.refused())  # nothing was done; the wait is in the next try's turn
        if reply.status < 300 or reply.unchanged:
            return reply
        problem = read(
            reply.status, reply.body, reply.headers, call.doing, functools.partial(self._struck, visit.hidden)
        )
        raise self._bad_news(problem, reply.status, call)

    def _struck(self, hidden: str, text: str) -> str:
        return self.redact(struck(text, [hidden] if hidden else [], "[hidden]"))

    def _bad_news(self, problem: Problem, status: int, call: Call) -> ForgeError | _Passing:
        failed = problem.error(uncertain=status >= 500 and not call.again)
        return _Passing(failed) if status in {502, 503, 504} and call.again else failed

    def _unreachable(self, error: Exception, call: Call, *, uncertain: bool = False) -> ForgeError:
        kind = "did not answer in time" if isinstance(error, httpx.TimeoutException) else "could not be reached"
        detail = clean(self.redact(str(error)), 120)
        message = f"{call.doing + ': ' if call.doing else ''}{self.address.host} {kind}" + (
            f" ({detail})" if detail else ""
        )
        mend = (
            "it is looked first whether it was done" if uncertain else "try again later; look at api, url and ca_file"
        )
        return ForgeError(message, mend, reason=Reason.UNREACHABLE, uncertain=uncertain)

    def _exchange(self, visit: Visit, call: Call) -> Reply:
        with visit.line.ends_after(self._bounds.call):
            content = None if call.body is None else json.dumps(call.body).encode()
            headers = {**call.headers, **({"Content-Type": "application/json"} if content else {})}
            request = visit.client.build_request(
                call.method,
                self.address.url(call.path),
                params=dict(call.query) or None,
                content=content,
                headers=headers,
                extensions={"trace": visit.line.watch},
            )
            response = visit.client.send(request, stream=True)
            try:
                return Reply(response.status_code, lower(response.headers), self._bounded(response, call))
            finally:
                response.close()

    def _bounded(self, response: httpx.Response, call: Call) -> bytes:
        limit = call.limit or self._bounds.answer
        if response.headers.get("content-encoding", "identity") != "identity":
            raise ForgeError("the forge's answer is packed though none was wanted", reason=Reason.BROKEN)
        parts, size = [], 0
        for chunk in response.iter_raw(_CHUNK):
            parts.append(chunk)
            size += len(chunk)
            if size > limit:
                if call.cut:
                    break
                what = f"{call.doing}: " if call.doing else ""
                raise ForgeError(f"{what}the forge's answer is larger than {limit} bytes", reason=Reason.LARGE)
        return b"".join(parts)


@functools.cache
def _usual_trust() -> ssl.SSLContext:
    """The usual authorities; read once, since that takes longer than a call."""
    return httpx.create_ssl_context(trust_env=False)


class Visit:
    """Calls under one credential. All raise ForgeError; `doing` is the lead of its words."""

    def __init__(self, door: Door, client: httpx.Client, hidden: str) -> None:
        self._door = door
        self.client, self.hidden, self.line = client, hidden, Line()

    def send(self, call: Call) -> Reply:
        """One call."""
        return self._door.ask(self, call)

    def get(self, path: str, query: Query | None = None, *, doing: str = "", etag: str = "") -> Reply:
        """Reads; with an ETag the answer may be ``unchanged``."""
        headers = {"If-None-Match": etag} if etag else {}
        return self.send(Call("GET", path, query or {}, headers=headers, doing=doing))

    def get_or_none(self, path: str, query: Query | None = None, *, doing: str = "") -> Reply | None:
        """Reads what may not be there."""
        try:
            return self.get(path, query, doing=doing)
        except ForgeError as error:
            if error.reason in {Reason.ABSENT, Reason.BRANCH}:  # Gitea and GitLab: "branch does not exist" in a 404
                return None
            raise

    def get_known(self, path: str, absent: str, mend: str = "") -> Reply:
        """Reads what was named by somebody. Raises AbsentError, with these words, if it is not there."""
        found = self.get_or_none(path)
        if found is None:
            raise AbsentError(absent, mend)
        return found

    def pages(
        self, path: str, query: Query | None = None, *, most: int = 10, doing: str = ""
    ) -> Iterator[list[dict[str, Any]]]:
        """Page after page of a list, at most ``most``; the Link header's query alone is followed, on the same path.

        What anybody wrote may make a page too large: it is then read in smaller ones, less what is too large by itself.
        """
        asked: Asked | None = query or {}
        for _ in range(most):
            if asked is None:
                return
            page = self.page(path, asked, doing=doing)
            yield page.items
            asked = page.onward

    def page(self, path: str, asked: Asked, *, doing: str = "", etag: str = "") -> Page:
        """One page of a list, in parts where it is too large."""
        headers = {"If-None-Match": etag} if etag else {}
        try:
            reply = self.send(Call("GET", path, asked, headers=headers, doing=doing))
        except ForgeError as error:
            if error.reason != Reason.LARGE:
                raise
            return self._in_parts(path, dict(asked), doing, error)
        if reply.unchanged:
            return Page([], None, unchanged=True)
        return Page(reply.list(), next_query(reply.headers.get("link")), reply.headers.get("etag", ""))

    def _in_parts(self, path: str, asked: dict[str, Any], doing: str, large: ForgeError) -> Page:
        name = next((name for name in ("per_page", "limit") if str(asked.get(name, "")).isdecimal()), "")
        if not name or not str(asked.get("page", 1)).isdecimal():
            raise large
        size, number = int(asked[name]), int(asked.get("page", 1))
        if size <= 1:  # one that is too large by itself is passed over
            return Page([], {**asked, "page": number + 1})
        items: list[dict[str, Any]] = []
        part = size // 10 if size % 10 == 0 else 1
        first = (number - 1) * size // part + 1
        for at in range(first, first + size // part):
            page = self.page(path, {**asked, name: part, "page": at}, doing=doing)
            items += page.items
            if page.onward is None:
                return Page(items, None)
        return Page(items, {**asked, "page": number + 1})

    def post(
        self, path: str, body: Mapping[str, Any], *, doing: str, again: bool = False, creates: bool = False
    ) -> Reply:
        """Makes something. What may have happened is not sent again unless ``again``: ForgeError(uncertain=True)."""
        return self.send(Call("POST", path, body=body, again=again, creates=creates, doing=doing))

    def put(self, path: str, body: Mapping[str, Any] | None, *, doing: str) -> Reply:
        """Sets something; the same again is the same."""
        return self.send(Call("PUT", path, body=body, doing=doing))

    def patch(self, path: str, body: Mapping[str, Any], *, doing: str) -> Reply:
        """Changes something to what is given; the same again is the same."""
        return self.send(Call("PATCH", path, body=body, doing=doing))


class _Passing(Exception):  # noqa: N818 - no error of its own: it carries one that a later try may not meet
    def __init__(self, error: ForgeError) -> None:
        super().__init__(str(error))
        self.error = error


class Line:
    """The connections of one visit, so that a call ends after a total time however slowly its bytes drip."""

    def __init__(self) -> None:
        self._sockets: list[socket.socket] = []

    def watch(self, event: str, info: Mapping[str, Any]) -> None:
        """Learns of connections from the transport's trace."""
        if event in {"connection.connect_tcp.complete", "connection.start_tls.complete"}:
            found = info["return_value"].get_extra_info("socket")
            if isinstance(found, socket.socket):
                self._sockets = [*self._sockets[-3:], found]

    @contextmanager
    def ends_after(self, seconds: float) -> Iterator[None]:
        """Shuts the connections when the time is over; the call then fails like on any lost connection."""
        timer = threading.Timer(seconds, self._shut)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _shut(self) -> None:
        for found in self._sockets:
            with suppress(OSError):
                found.shutdown(socket.SHUT_RDWR)
