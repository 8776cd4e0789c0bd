"""Tokens of a GitHub App: one per operation, for one repository, with least rights, revoked at the end.

Source: docs.github.com/en/rest/apps/apps (access_tokens, installation), .../rest/apps/installations (DELETE
/installation/token), .../apps/creating-github-apps/authenticating-with-a-github-app (the JWT).
"""

from __future__ import annotations

import email.utils
import functools
import json
import re
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import jwt
from pydantic import SecretStr

from broker.config.credential import App
from broker.errors import ConfigError, ForgeError
from broker.scope import Scope
from broker.vault.sources import read

PERMISSIONS: Mapping[Scope, Mapping[str, str]] = {
    Scope.READ: {
        "metadata": "read",
        "contents": "read",
        "issues": "read",
        "pull_requests": "read",
        "checks": "read",
        "statuses": "read",
    },
    Scope.PUSH: {"metadata": "read", "contents": "write"},
    Scope.PULLS: {"metadata": "read", "pull_requests": "write"},
    Scope.ISSUES: {"metadata": "read", "issues": "write"},
    Scope.STATUS: {"metadata": "read", "statuses": "write"},
}
"""What a token may do. Never workflows, administration, actions or secrets."""

_JWT = re.compile(r"eyJ[\w-]+(?:\.[\w-]*)*")  # GitHub has no reason to give ours back; whoever stands before it may
_TIMEOUT = httpx.Timeout(20.0, connect=5.0)
_MAX_ANSWER = 256 * 1024
_SKEW = 60  # seconds that our clock may be ahead of the forge's
_JWT_SECONDS = 540  # the forge takes 600 at most, counted from its own clock
_SHORTEST_LIFE = 60.0
_HEADERS = {"Accept": "application/vnd.github+json", "User-Agent": "agent-swarm-broker"}


@dataclass(frozen=True)
class Target:
    """The repository that tokens are for, and the API that gives them; all of it from the settings."""

    api: str
    owner: str
    name: str
    ca_file: Path | None = None


@dataclass(frozen=True)
class Minted:
    """A token for one operation."""

    token: SecretStr
    expires: float


@dataclass(frozen=True)
class _Answer:
    status: int
    data: Any
    date: float | None


class Minter:
    """Mints for one App and one repository. Used from several threads."""

    def __init__(self, app: App, target: Target, clock: Callable[[], float] = time.time) -> None:
        self._app = app
        self._target = target
        self._clock = clock
        self._lock = threading.Lock()
        self._installation = app.installation
        self._trust = _trust(target.ca_file)
        self._ahead = 0.0  # of our clock before the forge's, once it has said so

    def mint(self, scope: Scope) -> Minted:
        """A token that can do what the scope needs, in this repository, and nothing else.

        Raises ConfigError when key, installation or permissions are wrong, ForgeError when the forge cannot be asked.
        """
        asked = {"repositories": [self._target.name], "permissions": dict(PERMISSIONS[scope])}
        path = f"/app/installations/{self._installation_id()}/access_tokens"
        answer = self._as_app("POST", path, asked)
        if answer.status == 404 and self._app.installation is None:  # removed and installed anew since
            self._forget()
            path = f"/app/installations/{self._installation_id()}/access_tokens"
            answer = self._as_app("POST", path, asked)
        if answer.status != 201:
            raise self._problem(answer, f"a token to {scope}", PERMISSIONS[scope])
        minted = self._read(answer)
        if excess := _excess(answer.data, self._target.name, PERMISSIONS[scope]):
            self.revoke(minted)
            raise ConfigError(f"the forge gave a token that may do more than was asked for: {excess}; it was revoked")
        return minted

    def revoke(self, minted: Minted) -> bool:
        """Makes the token void; False if the forge did not confirm it. Raises nothing."""
        try:
            answer = self._send("DELETE", "/installation/token", f"token {minted.token.get_secret_value()}", None)
        except ForgeError:
            return False
        return answer.status in {204, 401, 404}  # void already is void, too

    def _read(self, answer: _Answer) -> Minted:
        token, until = (answer.data.get(name) for name in ("token", "expires_at"))
        if not (isinstance(token, str) and token.isascii() and token.isprintable() and 8 <= len(token) <= 1024):
            raise ForgeError("the forge answered with no token")
        try:
            expires = datetime.fromisoformat(str(until)).timestamp()
        except ValueError:
            raise ForgeError("the forge does not say how long its token is good") from None
        minted = Minted(SecretStr(token), expires)
        now = answer.date if answer.date is not None else self._clock() - self._ahead
        if expires - now < _SHORTEST_LIFE:
            self.revoke(minted)
            raise ForgeError("the forge gave a token that is expired already", "set this machine's clock")
        return minted

    def _installation_id(self) -> int:
        with self._lock:
            if self._installation is None:
                where = f"/repos/{quote(self._target.owner, safe='')}/{quote(self._target.name, safe='')}/installation"
                answer = self._as_app("GET", where, None)
                found = answer.data.get("id") if answer.status == 200 else None
                if not isinstance(found, int):
                    raise self._problem(answer, "the App's installation", {})
                self._installation = found
            return self._installation

    def _forget(self) -> None:
        with self._lock:
            self._installation = self._app.installation

    def _as_app(self, verb: str, path: str, body: Mapping[str, Any] | None) -> _Answer:
        """One call with a fresh JWT; a second one by the forge's own clock if it does not like ours."""
        answer = self._send(verb, path, f"Bearer {self._jwt()}", body)
        if answer.status == 401 and answer.date is not None:
            ahead = self._clock() - answer.date
            if abs(ahead - self._ahead) > _SKEW / 2:
                self._ahead = ahead
                answer = self._send(verb, path, f"Bearer {self._jwt()}", body)
        return answer

    def _jwt(self) -> str:
        now = int(self._clock() - self._ahead)
        claims = {"iat": now - _SKEW, "exp": now + _JWT_SECONDS - _SKEW, "iss": self._app.id}
        signed = _signed(claims, read(self._app.key, lines=True))
        if signed is None:  # raised here, where no error that saw the key can hang on to it
            raise ConfigError("the App's key is no RSA private key in PEM", "download it anew from the App's settings")
        return signed

    def _send(self, verb: str, path: str, authorization: str, body: Mapping[str, Any] | None) -> _Answer:
        headers = {**_HEADERS, "Authorization": authorization}
        problem = ""
        try:
            with (
                httpx.Client(timeout=_TIMEOUT, verify=self._trust, trust_env=False, follow_redirects=False) as client,
                client.stream(verb, self._target.api + path, headers=headers, json=body) as response,
            ):
                return _Answer(response.status_code, _json(response), _date(response.headers.get("date", "")))
        except httpx.HTTPError as error:
            problem = type(error).__name__
        raise ForgeError(f"{self._host()} cannot be asked for a token ({problem})", "try again later")

    def _host(self) -> str:
        return httpx.URL(self._target.api).host

    def _problem(self, answer: _Answer, what: str, permissions: Mapping[str, str]) -> ConfigError | ForgeError:
        place = f"{self._target.owner}/{self._target.name}"
        said = f"{self._host()} gives no {what.removeprefix('a ')} for {place}: {answer.status} {_words(answer.data)}"
        if answer.status == 401:
            return ConfigError(said, "is credential.app.id the App's own, and its key a valid one?")
        if answer.status == 404:
            return ConfigError(said, f"install the App on {place}")
        if answer.status == 422:
            wanted = ", ".join(f"{name}: {level}" for name, level in permissions.items())
            return ConfigError(said, f"the App needs, and the installation must accept: {wanted}")
        if answer.status == 403 and "suspended" in _words(answer.data):
            return ConfigError(said, "the installation is suspended: its owner lets it go on")
        return ForgeError(said, "try again later")


@functools.cache  # the usual authorities take a tenth of a second to read, and a token is minted per operation
def _trust(ca_file: Path | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca_file)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"the certificates in {ca_file} cannot be used: {error}", "correct ca_file") from None


def _signed(claims: Mapping[str, Any], key: SecretStr) -> str | None:
    try:
        return jwt.encode(dict(claims), key.get_secret_value(), algorithm="RS256")
    except (ValueError, TypeError, jwt.PyJWTError):
        return None


def _excess(data: Mapping[str, Any], name: str, asked: Mapping[str, str]) -> str:
    """What a token may do beyond what was asked for; empty if nothing, or if the forge does not tell."""
    given = data.get("permissions")
    if isinstance(given, dict):
        more = [str(key) for key, level in given.items() if level != "read" and asked.get(str(key)) != level]
        if more:
            return ", ".join(sorted(more))[:200]
    repositories = data.get("repositories")
    if isinstance(repositories, list):
        names = {str(one.get("name", "")) if isinstance(one, dict) else "" for one in repositories}
        if {one.lower() for one in names} - {name.lower()}:
            return "other repositories"
    return "all repositories" if data.get("repository_selection") == "all" else ""


def _json(response: httpx.Response) -> dict[str, Any]:
    """The body as an object; empty if it is anything else, too long or broken."""
    parts, size = [], 0
    for chunk in response.iter_bytes():
        parts.append(chunk)
        size += len(chunk)
        if size > _MAX_ANSWER:
            return {}
    try:
        data = json.loads(b"".join(parts))
    except (ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}


def _date(text: str) -> float | None:
    try:
        return email.utils.parsedate_to_datetime(text).timestamp()
    except (ValueError, TypeError):
        return None


def _words(data: Mapping[str, Any]) -> str:
    said = _JWT.sub("[hidden]", str(data.get("message", "")))[:200]
    return "".join(letter if letter.isprintable() else "?" for letter in said)
