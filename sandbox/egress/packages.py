"""The way out to package registries: an allowlisting proxy that reads what it passes on, https as well.

A CONNECT is answered by ending TLS here, with a certificate of our own authority; so methods and paths are judged, and
CONNECT host, SNI and Host field must name one host. Upstream a connection goes to the address that was judged.
"""

from __future__ import annotations

import asyncio
import json
import re
import ssl
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

import httpcore

from sandbox.config import PackagesExitConfig
from sandbox.egress.authority import Authority
from sandbox.egress.conversation import Asked, Caps, Conversation
from sandbox.egress.denied import Attempted, DeniedLog, cleaned
from sandbox.egress.dialling import Checked, Resolve, resolve
from sandbox.egress.heads import onward, value_of
from sandbox.egress.hosts import WEB, Allowlist, Place, is_literal, place
from sandbox.egress.refusal import CutError, Refusal, RefusedError
from sandbox.egress.relay import Onward, Patience, Relay
from sandbox.egress.shares import Places, Totals, holder
from sandbox.egress.stream import Tunnel, receive, secured

CERTIFICATE = "/tmp/.egress-ca.pem"  # noqa: S108 - inside a sandbox, whose /tmp is its own
TRUST = (
    *("SSL_CERT_FILE", "PIP_CERT", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS", "CARGO_HTTP_CAINFO"),
    *("GIT_SSL_CAINFO", "CURL_CA_BUNDLE"),
)
PROXY = ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
# No credential, cookie or field of the sandbox's own making travels on.
PASSED = (
    *("accept", "accept-encoding", "accept-language", "user-agent", "range", "if-range", "if-match", "if-none-match"),
    *("if-modified-since", "if-unmodified-since", "cache-control", "pragma", "content-type", "git-protocol"),
)
_BODY = 8 * 1024 * 1024  # of a POST, where one is listed
_PATIENCE = 60.0  # seconds without a byte
_HANDSHAKE = 15.0
TLS = b"\x16"  # what a handshake begins with
_ABSOLUTE = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]*)://(?P<authority>[^/?#]*)(?P<rest>.*)\Z", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class _Way:
    """What one connection from inside goes by. ``where``: the one place of a tunnel, None before there is one."""

    relay: Relay
    labels: Mapping[str, str]
    where: Place | None = None


class PackagesExit:
    """An Exit to the registries that the operator lists."""

    def __init__(
        self,
        config: PackagesExitConfig,
        log: DeniedLog,
        *,
        find: Resolve = resolve,
        trust: ssl.SSLContext | None = None,
    ) -> None:
        """``find`` looks up addresses; ``trust`` judges upstream's certificates, else the system's (SSL_CERT_FILE).

        Raises ValueError for a line of the allowlist that names no host.
        """
        self._config = config
        self._log = log
        self._allowlist = Allowlist((*config.hosts, *config.mirrors), config.rules)
        self._backend = Checked(self._allowlist, find)
        self._trust = trust or ssl.create_default_context()
        self._authority = Authority()
        self._connections = Places(config.connections, "connections to registries")
        self._totals = Totals(config.answer, config.total)
        self._caps = Caps(body=_BODY)

    @property
    def port(self) -> int:
        """Port inside."""
        return self._config.port

    @property
    def policy(self) -> str:
        """What may be reached, as a stable text: what was made under another one may hold something else."""
        return json.dumps(self._config.model_dump(mode="json", exclude={"port"}), sort_keys=True)

    def environment(self) -> Mapping[str, str]:
        """The proxy and the certificate to trust, as pip, npm, cargo, go, gem, git, curl and Python read them."""
        proxies = dict.fromkeys(PROXY, f"http://127.0.0.1:{self.port}")
        direct = dict.fromkeys(("no_proxy", "NO_PROXY"), "127.0.0.1,localhost")
        index = {"PIP_INDEX_URL": self._config.pip_index} if self._config.pip_index else {}
        return proxies | direct | dict.fromkeys(TRUST, CERTIFICATE) | index

    def files(self) -> Mapping[str, bytes]:
        """The public certificate of the authority."""
        return {CERTIFICATE: self._authority.certificate}

    async def serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, labels: Mapping[str, str]
    ) -> None:
        """One connection from inside, to its end."""
        tunnel = Tunnel(reader, writer)
        patience = Patience(20.0, _PATIENCE, self._config.seconds)
        try:
            async with httpcore.AsyncConnectionPool(
                ssl_context=self._trust, max_connections=1, network_backend=self._backend
            ) as pool:
                way = _Way(Relay(pool, patience, kept_back=frozenset({b"set-cookie"})), labels)
                with suppress(CutError):
                    await self._one(tunnel, way)
        finally:
            await tunnel.aclose()

    async def _one(self, tunnel: Tunnel, way: _Way) -> None:
        talk = Conversation(tunnel, self._caps)
        try:
            with self._connections.one(holder(way.labels)):
                if where := await self._talk(talk, way):
                    tunnel.early = talk.early
                    await self._tunnel(tunnel, replace(way, where=where))
        except RefusedError as error:
            self._note(way, None, error.refusal)
            await talk.refuse(error.refusal)

    async def _talk(self, talk: Conversation, way: _Way, fault: Refusal | None = None) -> Place | None:
        """Requests to the end, all refused where there is a ``fault``; the place of a tunnel that may be had."""
        asked: Asked | None = None
        try:
            while asked := await talk.ask():
                _insist(fault)
                if asked.method == "CONNECT":
                    where = self._place_of_tunnel(asked, way)
                    await talk.accept()
                    return where
                going = self._judge(asked, way)
                if not await way.relay.pass_on(talk, asked, going, self._totals.purse(holder(way.labels))):
                    return None
                asked = None
        except RefusedError as error:
            self._note(way, asked, error.refusal)
            await talk.refuse(error.refusal)
        return None

    async def _tunnel(self, tunnel: Tunnel, way: _Way) -> None:
        """TLS as the host that was asked for, and requests to it alone."""
        if way.where is None:
            return
        tunnel.early = tunnel.early or await receive(tunnel, _HANDSHAKE)
        if tunnel.early[:1] != TLS:
            refusal = Refusal(400, f"in a tunnel to {way.where} TLS is spoken, and nothing else is passed on")
            self._note(way, None, refusal)
            await Conversation(tunnel, self._caps).refuse(refusal)
            return
        named: list[str | None] = []
        secret = await secured(tunnel, self._authority.context(way.where.host, named.append), _HANDSHAKE)
        sni = next(iter(named), None)
        fault = None
        if place(sni or "", 443) != Place(way.where.host, 443) and not (sni is None and is_literal(way.where.host)):
            fault = Refusal(421, f"TLS names {sni or 'no host'} (SNI), but CONNECT {way.where.host}")
        await self._talk(Conversation(secret, self._caps), way, fault)

    def _place_of_tunnel(self, asked: Asked, way: _Way) -> Place:
        """Where a CONNECT may lead. Raises RefusedError."""
        if way.where is not None:
            raise RefusedError(Refusal(403, "a CONNECT inside a tunnel is not passed on"))
        where = place(asked.target, None)
        if where is None or asked.body:
            raise RefusedError(Refusal(400, "CONNECT names no host and port, or holds a body"))
        told = value_of(asked.fields, b"host")  # HTTP/1.0, which Python's tunnels speak, may leave it out
        if told is not None and place(told, where.port) != where:
            raise RefusedError(_two_hosts(told, where))
        if words := self._allowlist.refuses_place(where, "https"):
            raise RefusedError(Refusal(403, words))
        if not self._authority.can_be(where.host):
            raise RefusedError(Refusal(400, f"{where.host} is a name that no certificate can hold"))
        return where

    def _judge(self, asked: Asked, way: _Way) -> Onward:
        """A request as it travels on. Raises RefusedError."""
        if value_of(asked.fields, b"upgrade"):
            raise RefusedError(Refusal(403, "no other protocol (such as WebSocket) is passed on to a registry"))
        if asked.body and asked.method in {"GET", "HEAD"}:
            raise RefusedError(Refusal(400, f"a {asked.method} with a body is not passed on"))
        scheme, where, target = _destination(asked, way.where)
        told = value_of(asked.fields, b"host")
        if words := self._allowlist.refuses_request(where, scheme, asked.method, target):
            raise RefusedError(Refusal(403, words))
        if told is not None and place(told, WEB[scheme]) != where:
            raise RefusedError(_two_hosts(told, where))
        return Onward(scheme, where, target, tuple(onward(asked.fields, PASSED)), str(where))

    def _note(self, way: _Way, asked: Asked | None, refusal: Refusal) -> None:
        if refusal.denied:
            self._log.note("packages", way.labels, _attempted(asked, way.where), refusal.reason)


def _insist(fault: Refusal | None) -> None:
    if fault:
        raise RefusedError(fault)


def _destination(asked: Asked, tunnel: Place | None) -> tuple[str, Place, str]:
    """Scheme, place, and path with query, that a request names. Raises RefusedError."""
    whole = _ABSOLUTE.match(asked.target)
    if whole is None and tunnel is None:
        raise RefusedError(Refusal(400, "this is a proxy: it takes http://HOST/PATH, and CONNECT for https"))
    scheme = whole["scheme"].lower() if whole else "https"
    if tunnel is None and scheme != "http":
        raise RefusedError(Refusal(400, f"{cleaned(scheme, 20)} is not passed on: http is, and https by CONNECT"))
    where = place(whole["authority"], WEB.get(scheme)) if whole else tunnel
    if where is None:
        raise RefusedError(Refusal(400, "its target names no host, or a user beside it"))
    if tunnel is not None and (scheme, where) != ("https", tunnel):
        raise RefusedError(_two_hosts(f"{scheme}://{where}", tunnel))
    target = whole["rest"] if whole else asked.target
    target = target if target.startswith("/") else f"/{target}"
    if "#" in target:
        raise RefusedError(Refusal(400, "its target holds a fragment"))
    return scheme, where, target


def _two_hosts(told: str, where: Place) -> Refusal:
    return Refusal(421, f"one request names two hosts: {cleaned(told, 100) or '(an empty one)'} and {where}")


def _attempted(asked: Asked | None, tunnel: Place | None) -> Attempted:
    if asked is None:
        return Attempted(host=tunnel.host, port=tunnel.port) if tunnel else Attempted()
    whole = _ABSOLUTE.match(asked.target)
    found, path = tunnel, asked.target
    if tunnel is None:
        named = whole["authority"] if whole else asked.target if asked.method == "CONNECT" else ""
        found = place(named, WEB.get(whole["scheme"].lower()) if whole else None) or Place(named, 0)
        path = whole["rest"] if whole else "" if asked.method == "CONNECT" else asked.target
    where = found or Place("", 0)
    return Attempted(host=where.host, port=where.port, method=asked.method, path=path)
