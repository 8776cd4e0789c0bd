"""The file of tokens: made, revoked and read. It holds their hashes alone; a token is shown once, when it is made."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from swarm.answers import Role
from swarm.config_door import TokenConfig
from swarm.errors import ConfigError, TaskNotFoundError

PREFIX = "swarm_"  # by which a scan for leaked secrets knows one
MOST = 1000
LIMIT = 1_000_000  # bytes of the file

_TOKENS = TypeAdapter(tuple[TokenConfig, ...])


def made(name: str, role: Role, per_minute: int) -> tuple[str, TokenConfig]:
    """A new token, and what is kept of it. Raises ConfigError for a name that cannot be one."""
    token = PREFIX + secrets.token_urlsafe(32)
    try:
        return token, TokenConfig(name=name, sha256=hashed(token), role=role, per_minute=per_minute)
    except ValidationError as error:
        why = error.errors(include_url=False, include_input=False)[0]["msg"]
        raise ConfigError(
            f"no token can have that name or pace: {why}", "letters, digits and . _ @ - make a name"
        ) from None


def hashed(token: str) -> str:
    """How a token is kept. It is long and random, so a plain SHA-256 does."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def read(path: Path) -> tuple[TokenConfig, ...]:
    """All tokens of a file; none where there is no file. Raises ConfigError for one that cannot be read."""
    try:
        with path.open("rb") as file:
            return _TOKENS.validate_json(file.read(LIMIT))
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise ConfigError(f"the tokens in {path} cannot be read: {error.strerror}", "see daemon.tcp.tokens") from None
    except ValidationError:
        mend = f"mend it, or remove it and make the tokens anew: rm {path}"
        raise ConfigError(f"the file {path} does not hold tokens as swarm token add writes them", mend) from None


def add(path: Path, token: TokenConfig) -> None:
    """Write a token down. Raises ConfigError when its name is taken or the file cannot be written."""
    with _changing(path) as known:
        if any(each.name == token.name for each in known):
            raise ConfigError(f"there is a token {token.name} already", f"swarm token revoke {token.name}")
        if len(known) >= MOST:
            raise ConfigError(f"there are {MOST} tokens already", "revoke some: swarm token list")
        known.append(token)


def revoke(path: Path, name: str) -> None:
    """Take a token away; a running daemon knows at its next request. Raises TaskNotFoundError for an unknown name."""
    with _changing(path) as known:
        kept = [each for each in known if each.name != name]
        if len(kept) == len(known):
            raise TaskNotFoundError(f"there is no token {name} in {path}", "see them with: swarm token list")
        known[:] = kept


@contextmanager
def _changing(path: Path) -> Iterator[list[TokenConfig]]:
    """The file's tokens, written back at the end; one at a time, and whole or not at all."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with (path.parent / f".{path.name}.lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            known = list(read(path))
            yield known
            _write(path, known)
    except OSError as error:
        mend = "run it as the daemon's user, or as root"
        raise ConfigError(f"the tokens in {path} cannot be written: {error.strerror}", mend) from None


def _write(path: Path, known: list[TokenConfig]) -> None:
    fresh = path.with_name(f".{path.name}.new")
    fresh.unlink(missing_ok=True)
    handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        json.dump([each.model_dump(mode="json") for each in known], file, indent=2)
        file.flush()
        os.fsync(file.fileno())
        owner = path.parent.stat()
        if os.geteuid() == 0:
            os.fchown(file.fileno(), owner.st_uid, owner.st_gid)  # made by root, read by the daemon's user
    fresh.replace(path)
