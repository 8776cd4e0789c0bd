"""The way out to the model gateway: inside an ordinary base URL, on the host one connection that the owner makes.

It reads HTTP instead of piping bytes, so that only a model API's own paths are reached (never admin or metrics), the
gateway's key is set here and never gets inside, and whose a request is comes from the sandbox's labels.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress

import httpcore

from sandbox.config import ModelExitConfig
from sandbox.egress.conversation import Asked, Caps, Conversation
from sandbox.egress.denied import Attempted, DeniedLog, cleaned
from sandbox.egress.dialling import Connect, Given, connect_to
from sandbox.egress.heads import Field, onward, value_of
from sandbox.egress.hosts import Place, climbs
from sandbox.egress.refusal import JSON, CutError, Refusal, RefusedError
from sandbox.egress.relay import Bottomless, Onward, Patience, Relay
from sandbox.egress.shares import Places, holder
from sandbox.egress.stream import Tunnel

METHODS = ("GET", "HEAD", "POST")
PLACEHOLDER = "sandbox"  # SDKs insist on a key; this is none
_CONNECTIONS = 4  # a request, each; clients keep some more open
_GATEWAY = Place("gateway", 80)


class ModelExit:
    """An Exit to the model gateway."""

    def __init__(
        self, config: ModelExitConfig, log: DeniedLog, connect: Connect | None = None, key: str | None = None
    ) -> None:
        """``connect`` makes the connection for a sandbox's labels, else ``config.gateway`` says where to.

        A ConnectionRefusedError of words that ``connect`` raises is told inside with a 403. ``key`` is what
        ``config.api_key_env`` holds. Raises ValueError where neither says where the gateway is.
        """
        if connect is None and config.gateway is None:
            raise ValueError("[sandbox.egress.model] gateway is not set: no way to a model gateway can be made")
        self._config = config
        self._log = log
        self._connect = connect or connect_to(config.gateway or "")
        self._key = key
        self._requests = Places(config.requests, "requests to models")
        self._connections = Places(config.requests * _CONNECTIONS, "connections to the model gateway")
        self._ours = {b"authorization", b"x-api-key", *(name.lower().encode() for name in config.headers)}

    @property
    def port(self) -> int:
        """Port inside."""
        return self._config.port

    def environment(self) -> Mapping[str, str]:
        """Base URLs and keys that are none, as the SDKs of OpenAI and Anthropic, LiteLLM and aider read them."""
        base = f"http://127.0.0.1:{self.port}"
        urls = {"OPENAI_BASE_URL": f"{base}/v1", "OPENAI_API_BASE": f"{base}/v1", "ANTHROPIC_BASE_URL": base}
        keys = dict.fromkeys(("OPENAI_API_KEY", "ANTHROPIC_API_KEY"), PLACEHOLDER)
        return urls | keys | dict.fromkeys(("no_proxy", "NO_PROXY"), "127.0.0.1,localhost")

    def files(self) -> Mapping[str, bytes]:
        """None."""
        return {}

    async def serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, labels: Mapping[str, str]
    ) -> None:
        """One connection from inside, to its end."""
        tunnel = Tunnel(reader, writer)
        talk = Conversation(tunnel, Caps(body=self._config.body, between=self._config.idle), errors=JSON)
        backend = Given(self._connect, labels)
        try:
            async with httpcore.AsyncConnectionPool(max_connections=1, network_backend=backend) as pool:
                with suppress(CutError):
                    await self._talk(talk, Relay(pool, Patience(10.0, self._config.idle)), labels)
        finally:
            await tunnel.aclose()

    async def _talk(self, talk: Conversation, relay: Relay, labels: Mapping[str, str]) -> None:
        asked: Asked | None = None
        who = holder(labels)
        try:
            with self._connections.one(who):
                while asked := await talk.ask():
                    target = self._target(asked)
                    going = Onward("http", _GATEWAY, target, self._fields(asked, labels), "the model gateway")
                    with self._requests.one(who):
                        if not await relay.pass_on(talk, asked, going, Bottomless()):
                            return
                    asked = None
        except RefusedError as error:
            if error.refusal.denied:
                tried = Attempted(method=asked.method, path=asked.target) if asked else Attempted()
                self._log.note("model", labels, tried, error.refusal.reason)
            await talk.refuse(error.refusal)

    def _target(self, asked: Asked) -> str:
        """The path and query that travel on. The host that it names plays no part. Raises RefusedError."""
        if value_of(asked.fields, b"upgrade"):
            raise RefusedError(Refusal(403, "no other protocol (such as WebSocket) is passed on to the model gateway"))
        if asked.method not in METHODS:
            words = f"{cleaned(asked.method, 20)} is not passed on to the model gateway, but {', '.join(METHODS)}"
            raise RefusedError(Refusal(405, words))
        target = asked.target
        if target.lower().startswith(("http://", "https://")):
            target = "/" + target.split("/", 3)[3] if target.count("/") > 2 else "/"
        path = target.partition("?")[0]
        if climbs(path) or not any(_is(path, allowed) for allowed in self._config.paths):
            paths = ", ".join(self._config.paths)
            words = f"{cleaned(path, 100)} is not passed on to the model gateway, but {paths}"
            raise RefusedError(Refusal(404, words))
        return target

    def _fields(self, asked: Asked, labels: Mapping[str, str]) -> tuple[Field, ...]:
        ours = {name: labels.get(label, "") for name, label in self._config.headers.items()}
        ours |= {"authorization": f"Bearer {self._key}"} if self._key else {}
        told = [(n.encode(), v.encode()) for n, v in ours.items() if v and v.isascii() and v.isprintable()]
        theirs = [(n, v) for n, v in onward(asked.fields, self._config.passed) if n not in self._ours]
        return (*theirs, *told)


def _is(path: str, allowed: str) -> bool:
    if allowed.endswith("/*"):
        return path.startswith(allowed[:-1]) and len(path) >= len(allowed)
    return path == allowed
