"""The commented broker.toml that a newcomer starts from, made from the descriptions in config. Pure but for `write`."""

from __future__ import annotations

import json
import os
import textwrap
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from broker.config.policy import Policy
from broker.config.repository import Repository
from broker.config.settings import BrokerConfig, Identity, Roles
from broker.errors import ConfigError

_HEAD = """\
# Settings of swarm-broker, the only process that holds a repository credential. Only its user may read this file:
#   chown swarm-broker broker.toml; chmod 600 broker.toml
# A line that starts with "# key =" shows a default. swarm-broker config check --config FILE tests the whole.
"""
_SAMPLE: dict[str, Any] = {
    "socket": "/run/swarm-broker/broker.sock",
    "state": "/var/lib/swarm-broker",
    "person": ["root"],
    "coordinator": ["swarm"],
    "forge": "local",
    "path": "/srv/git/demo.git",
}


def render(values: dict[str, Any] | None = None, repository: str = "demo") -> str:
    """The file's text. ``values`` replaces sample values: socket, state, person, coordinator, path."""
    filled = {**_SAMPLE, **(values or {})}
    parts = [_HEAD, _keys(BrokerConfig, filled)]
    for title, model in (
        ("roles", Roles),
        ("identity", Identity),
        (f"repositories.{repository}", Repository),
        (f"repositories.{repository}.policy", Policy),
    ):
        parts.append(f"[{title}]\n{_keys(model, filled)}")
    return "\n".join(parts)


def write(path: Path, text: str) -> None:
    """Writes a new file with mode 0600. Raises ConfigError if there is one already."""
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        raise ConfigError(f"{path} is there already", "remove it first, or name another with --config") from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}", "make its folder first") from None
    with os.fdopen(handle, "w") as file:
        file.write(text)


def _keys(model: type[BaseModel], filled: dict[str, Any]) -> str:
    return "".join(_key(name, field, filled) for name, field in model.model_fields.items() if _is_plain(field))


def _is_plain(field: FieldInfo) -> bool:
    tables = (BaseModel, dict)
    shown = field.annotation if isinstance(field.annotation, type) else object
    return not (issubclass(shown, tables) or "dict[" in str(field.annotation))


def _key(name: str, field: FieldInfo, filled: dict[str, Any]) -> str:
    words = textwrap.fill(field.description or "", 116, initial_indent="# ", subsequent_indent="# ")
    if name in filled and field.default is PydanticUndefined:
        return f"{words}\n{name} = {_toml(filled[name])}\n"
    shown = "..." if field.default is None else _toml(field.default)
    return f"{words}\n{_commented(f'{name} = {shown}')}\n"


def _commented(line: str) -> str:
    if len(line) <= 116:
        return f"# {line}"
    head, _, values = line.partition("[")
    rows = textwrap.wrap(values.rstrip("]"), 110, break_long_words=False, break_on_hyphens=False)
    return "\n".join([f"# {head}[", *(f"#   {row}" for row in rows), "# ]"])


def _toml(value: Any) -> str:
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_toml(one) for one in value) + "]"
    return json.dumps(str(value) if isinstance(value, Path) else value)
