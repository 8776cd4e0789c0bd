"""GitHub's side of App tokens on loopback, strict: what it is asked is checked by the App's public key."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import email.utils
import secrets
import socket
import threading
import time

import jwt
import uvicorn
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from starlette.applications import Starlette
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

GRANTED = {
    "metadata": "read",
    "contents": "write",
    "issues": "write",
    "pull_requests": "write",
    "checks": "read",
    "statuses": "write",
}
_LEVELS = {"read": 1, "write": 2}


def key_pair() -> tuple[bytes, bytes]:
    """A private key in PEM, and its public half."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    return private, public


class AppForge:
    """Gives tokens as GitHub does; ``ahead`` seconds is how far its clock is before ours."""

    def __init__(self, public: bytes, app: str = "12345") -> None:
        self.public, self.app_id = public, app
        self.url = ""
        self.reset()

    def reset(self) -> None:
        """As it was."""
        self.installation = 77
        self.repository = ("team", "web")
        self.granted = dict(GRANTED)
        self.ahead = 0.0
        self.life = 3600.0
        self.more: dict[str, object] = {}
        self.revoking = 204
        self.redirect = ""
        self.delay = 0.0
        self.tokens: dict[str, dict[str, object]] = {}
        self.calls: list[str] = []

    def now(self) -> float:
        return time.time() + self.ahead

    def _answer(self, data: object, status: int) -> Response:
        answer = JSONResponse(data, status) if data is not None else Response(status_code=status)
        answer.headers["date"] = email.utils.formatdate(self.now(), usegmt=True)
        return answer

    def _problem(self, request) -> str:
        kind, _, token = request.headers.get("authorization", "").partition(" ")
        if kind != "Bearer":
            return "A JSON web token could not be decoded"
        try:
            claims = jwt.decode(
                token, self.public, algorithms=["RS256"], options={"verify_exp": False, "verify_iat": False}
            )
        except jwt.PyJWTError:
            return "A JSON web token could not be decoded"
        if claims["iss"] != self.app_id:
            return "Integration not found"
        if claims["iat"] > self.now():
            return "'Issued at' claim ('iat') must be in the past"
        if not self.now() < claims["exp"] <= self.now() + 600:
            return "'Expiration time' claim ('exp') is too far in the future or in the past"
        return ""

    async def installed(self, request) -> Response:
        self.calls.append("installation")
        if self.redirect:
            return Response(status_code=302, headers={"location": self.redirect})
        if problem := self._problem(request):
            return self._answer({"message": problem}, 401)
        where = request.path_params
        if (where["owner"], where["name"]) != self.repository:
            return self._answer({"message": "Not Found"}, 404)
        return self._answer({"id": self.installation}, 200)

    async def access(self, request) -> Response:
        self.calls.append("access_tokens")
        await asyncio.sleep(self.delay)
        if problem := self._problem(request):
            return self._answer({"message": problem}, 401)
        if request.path_params["id"] != self.installation:
            return self._answer({"message": "Not Found"}, 404)
        asked = await request.json()
        wanted = asked["permissions"]
        if any(_LEVELS[level] > _LEVELS.get(self.granted.get(name, ""), 0) for name, level in wanted.items()):
            message = "The permissions requested are not granted to this installation."
            return self._answer({"message": message}, 422)
        token = "ghs_" + secrets.token_hex(18)
        self.tokens[token] = asked
        until = dt.datetime.fromtimestamp(self.now() + self.life, dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        told = {
            "token": token,
            "expires_at": until,
            "permissions": wanted,
            "repository_selection": "selected",
            "repositories": [{"name": name} for name in asked["repositories"]],
        }
        return self._answer({**told, **self.more}, 201)

    async def revoke(self, request) -> Response:
        self.calls.append("revoke")
        if self.revoking == 204:
            self.tokens.pop(request.headers["authorization"].removeprefix("token "))
        return self._answer(None, self.revoking)

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/repos/{owner}/{name}/installation", self.installed, methods=["GET"]),
                Route("/app/installations/{id:int}/access_tokens", self.access, methods=["POST"]),
                Route("/installation/token", self.revoke, methods=["DELETE"]),
            ]
        )


@contextlib.contextmanager
def serving(forge: AppForge):
    """Serves it on loopback."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = uvicorn.Server(uvicorn.Config(forge.app(), log_config=None, lifespan="off", date_header=False))
        thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listener])))
        thread.start()
        forge.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        try:
            yield forge
        finally:
            server.should_exit = True
            thread.join(10)
