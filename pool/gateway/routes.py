"""Which path is answered by what. Two doors: the public one, and the unix socket's, which has the admin routes too."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

from pool.errors import PoolError
from pool.gateway import admin, messages, tokenizing
from pool.gateway.bad_news import told
from pool.gateway.catalogue import cards, no_such_model
from pool.gateway.forward import caller_of, generate, respond
from pool.gateway.keys import foreign_page
from pool.gateway.paths import trimmed, unknown
from pool.gateway.reading import CHAT, TEXT
from pool.gateway.replies import Refusal, RefusedError, dumps
from pool.gateway.service import Service
from pool.gateway.web import Exchange, GoneError, Receive, Scope, Send

log = logging.getLogger(__name__)
Handler = Callable[[Exchange], Awaitable[None]]
BUDGET = "/v1/budget"  # of a caller that pays from an account
WORDS = (b"content-type", b"text/plain; charset=utf-8")
PAGE = (b"content-type", b"text/plain; version=0.0.4; charset=utf-8")


class Door:
    """An ASGI application. ``with_admin`` is for a socket that only its owner can reach."""

    def __init__(self, service: Service, *, with_admin: bool = False) -> None:
        self._service = service
        self._with_admin = with_admin
        self._routes: dict[str, tuple[str, Handler]] = {
            CHAT: ("POST", self._chat),
            TEXT: ("POST", self._text),
            "/v1/responses": ("POST", self._responses),
            messages.MESSAGES: ("POST", self._messages),
            messages.COUNT: ("POST", self._count),
            **dict.fromkeys(tokenizing.PATHS, ("POST", self._tokens)),
            "/v1/models": ("GET", self._models),
            "/health": ("GET", self._health),
            "/metrics": ("GET", self._metrics),
        }
        if service.only is not None:
            self._routes[BUDGET] = ("GET", self._budget)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; whatever goes wrong is told in OpenAI's shape."""
        exchange = Exchange(scope, receive, send, self._service.config.stall_timeout, self._service.held)
        try:
            with exchange.until_stopped():
                await self._answer(exchange)
        except GoneError:
            return
        except RefusedError as error:
            await self._refuse(exchange, error.refusal)
        except PoolError as error:
            await self._refuse(exchange, told(self._service, error, exchange.path))
        except Exception:  # the last door: a person sees no traceback, the log does
            log.exception("a request to %s failed", exchange.path)
            await exchange.refuse(Refusal(500, "the gateway has a fault; its log says more", "internal_error"))
        finally:
            exchange.let_go()

    async def _refuse(self, exchange: Exchange, refusal: Refusal) -> None:
        self._service.remember(exchange.request_id, f"{refusal.status} {refusal.message}")
        await exchange.refuse(refusal)

    async def _answer(self, exchange: Exchange) -> None:
        path = exchange.path
        open_to_all = not self._with_admin and not self._service.config.keys and self._service.only is None
        if open_to_all and (page := foreign_page(exchange.headers)):
            words = f"without keys the gateway answers this machine alone, not {page}; mend: [[pool.gateway.keys]]"
            raise RefusedError(Refusal(403, words, "foreign_address"))
        found = self._routes.get(path) or self._routes.get(trimmed(path))
        if found is not None and found[1] == self._metrics and self._service.only is not None:
            found = None  # they tell of everybody
        if found is not None:
            await self._allowed(exchange, *found)
        elif path.startswith("/v1/models/"):
            await self._allowed(exchange, "GET", self._model)
        elif self._with_admin and path.startswith(admin.PREFIX):
            await admin.answer(self._service, exchange)
        else:
            raise RefusedError(unknown(path, {route: method for route, (method, _) in self._routes.items()}))

    async def _allowed(self, exchange: Exchange, method: str, handler: Handler) -> None:
        if exchange.method == method or (method == "GET" and exchange.method == "HEAD"):
            await handler(exchange)
            return
        exchange.extra.append((b"allow", f"{method}, {'HEAD, ' if method == 'GET' else ''}OPTIONS".encode()))
        if exchange.method != "OPTIONS":
            raise RefusedError(Refusal(405, f"{exchange.path[:200]} takes {method}", "method_not_allowed"))
        await exchange.respond(200, b"", ())  # without a word of CORS, so that no page of another origin may go on

    async def _chat(self, exchange: Exchange) -> None:
        await generate(self._service, exchange, CHAT)

    async def _text(self, exchange: Exchange) -> None:
        await generate(self._service, exchange, TEXT)

    async def _responses(self, exchange: Exchange) -> None:
        await respond(self._service, exchange)

    async def _messages(self, exchange: Exchange) -> None:
        await messages.converse(self._service, exchange)

    async def _count(self, exchange: Exchange) -> None:
        await messages.count(self._service, exchange)

    async def _tokens(self, exchange: Exchange) -> None:
        await tokenizing.answer(self._service, exchange)

    async def _models(self, exchange: Exchange) -> None:
        caller_of(self._service, exchange)
        await exchange.respond(200, dumps({"object": "list", "data": self._cards()}))

    async def _model(self, exchange: Exchange) -> None:
        caller_of(self._service, exchange)
        name = trimmed(exchange.path).removeprefix("/v1/models/")
        listed = self._cards()
        for card in listed:
            if card["id"] == name:
                await exchange.respond(200, dumps(card))
                return
        raise no_such_model(name, (card["id"] for card in listed))

    async def _health(self, exchange: Exchange) -> None:
        ready = self._service.ready
        state = "ready" if ready else "draining" if self._service.draining else "no endpoint is alive"
        await exchange.respond(200 if ready else 503, dumps({"status": state}))

    async def _budget(self, exchange: Exchange) -> None:
        bound = caller_of(self._service, exchange).bound
        told = bound.account.left() if bound else "nothing is counted"
        await exchange.respond(200, f"{told}\n".encode(), (WORDS,))

    async def _metrics(self, exchange: Exchange) -> None:
        await exchange.respond(200, self._service.metrics.page(), (PAGE,))

    def _cards(self) -> list[dict[str, Any]]:
        found, only = cards(self._service.pool.config, self._service.pool.status()), self._service.only
        return found if only is None else [card for card in found if card["id"] == only]
