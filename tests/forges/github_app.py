"""The stand-in for GitHub with an App installed: no token but those that it gives, good for what was asked alone."""

from __future__ import annotations

from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tests.broker.vault.app_stand_in import AppForge, key_pair
from tests.forges.github_stand_in import GitHubStandIn


class GitHubAppStandIn(GitHubStandIn):
    """One installation. ``given`` are all tokens that ever were, ``asked`` what for; the living ones are ``scoped``."""

    def __init__(self, folder: Any) -> None:
        super().__init__(folder)
        self.private, public = key_pair()
        self.tokens = AppForge(public)
        self.given: list[str] = []
        self.asked: list[dict[str, str]] = []

    def admits_git(self, password: str, *, writes: bool) -> bool:
        """By a living token of the App, to write with ``contents: write`` alone."""
        level = self.scoped.get(password, {}).get("contents")
        return level == "write" or (level == "read" and not writes)

    def app(self) -> Starlette:
        """The usual one behind the App's three calls."""
        api = "/api/v3"
        own = [
            Route(api + "/repos/{owner}/{name}/installation", self.tokens.installed, methods=["GET"]),
            Route(api + "/app/installations/{id:int}/access_tokens", self._access, methods=["POST"]),
            Route(api + "/installation/token", self._revoke, methods=["DELETE"]),
        ]
        return Starlette(routes=[*own, *super().app().routes])

    async def _access(self, request: Request) -> Response:
        answer = await self.tokens.access(request)
        for token, asked in self.tokens.tokens.items():
            if token not in self.given:
                self.given.append(token)
                self.scoped[token] = dict(asked["permissions"])
                self.asked.append(dict(asked["permissions"]))
        return answer

    async def _revoke(self, request: Request) -> Response:
        answer = await self.tokens.revoke(request)
        self.scoped = {token: may for token, may in self.scoped.items() if token in self.tokens.tokens}
        return answer
