"""Reads a broker.toml, and any other file that only the broker's user may read; says all that is wrong with it."""

from __future__ import annotations

import difflib
import os
import pwd
import stat
import tomllib
from pathlib import Path
from typing import Any, get_origin

from pydantic import ValidationError

from broker.config.base import model_in
from broker.config.settings import BrokerConfig
from broker.errors import ConfigError


def load(path: Path) -> BrokerConfig:
    """Reads a broker.toml. Raises ConfigError with everything that is wrong, each with its place."""
    return parse(path, read_private(path))


def parse(path: Path, text: bytes) -> BrokerConfig:
    """The settings that a broker.toml's content means; ``path`` is for the words of the ConfigError alone."""
    try:
        raw = tomllib.loads(text.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not TOML: {error}", "correct the line named above") from None
    try:
        return BrokerConfig.model_validate(raw)
    except ValidationError as error:
        lines = "\n".join(f"  {_line(detail)}" for detail in error.errors(include_url=False, include_input=False))
        mend = "swarm-broker config fields lists every key and what it means"
        raise ConfigError(f"{path} is wrong:\n{lines}", mend) from None


def read_private(path: Path, limit: int = 1 << 20, *, absent: str = "") -> bytes:
    """Reads a file that this user owns and nobody else can read; ``absent`` is the mend where there is none.

    Raises ConfigError otherwise.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}", _mend_for(path, error, absent)) from None
    info = os.fstat(handle)
    if not stat.S_ISREG(info.st_mode):
        os.close(handle)
        raise ConfigError(f"{path} is not a plain file", absent)
    with os.fdopen(handle, "rb") as file:
        if info.st_uid != os.geteuid():
            raise ConfigError(
                f"{path} belongs to uid {info.st_uid}, not to uid {os.geteuid()}", _owned(path, info.st_uid)
            )
        if info.st_mode & 0o077:
            raise ConfigError(f"{path} can be read by other users", f"chmod 600 {path}")
        data = file.read(limit + 1)
    if len(data) > limit:
        raise ConfigError(f"{path} is longer than {limit} bytes")
    return data


def _owned(path: Path, uid: int) -> str:
    me = os.geteuid()
    try:
        return f"chown {me} {path}" if me else f"run this as its owner: runuser -u {pwd.getpwuid(uid).pw_name} -- ..."
    except KeyError:
        return f"there is no user {uid}: chown the file to the user whom the broker runs as"


def _mend_for(path: Path, error: OSError, absent: str) -> str:
    if isinstance(error, FileNotFoundError):
        return absent or f"swarm-broker init --config {path} writes one"
    if isinstance(error, PermissionError):
        return f"it must be this user's own: chown {os.geteuid()} {path}; chmod 600 {path}"
    return "it must be a plain file, not a link"


def _line(detail: Any) -> str:
    place = ".".join(str(part) for part in detail["loc"])
    if detail["type"] != "extra_forbidden":
        return f"{place}: {detail['msg']}"
    near = difflib.get_close_matches(str(detail["loc"][-1]), _names_at(detail["loc"][:-1]), n=1, cutoff=0.5)
    return f"{place}: unknown key" + (f", did you mean {near[0]}?" if near else "")


def _names_at(loc: tuple[int | str, ...]) -> list[str]:
    here: Any = BrokerConfig
    for part in loc:
        table = model_in(here)
        if table is None or get_origin(here) is dict:
            here = table
        elif str(part) in table.model_fields:
            here = table.model_fields[str(part)].annotation
    found = model_in(here)
    return [] if found is None else list(found.model_fields)
