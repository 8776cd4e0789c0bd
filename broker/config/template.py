"""The commented broker.toml that a newcomer starts from, made from the descriptions in config. Pure but for `write`."""

from __future__ import annotations

import json
import os
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from broker.config.base import model_in
from broker.config.credential import App, Credential, Source
from broker.config.repository import ForgeKind
from broker.config.settings import BrokerConfig
from broker.errors import ConfigError

_HEAD = """\
# Settings of swarm-broker, the only process that holds a repository credential. Only its user may read this file:
#   chown swarm-broker broker.toml; chmod 600 broker.toml
# A line that starts with "# key =" shows a default. Lines that start with "## " are a table that is off as a whole.
# swarm-broker config check --config FILE tests it all. A running broker takes over what changes under
# enabled, default_base, visibility, policy, intake and follow; the rest needs a restart: docs/broker-policy.md.
"""
_SAMPLE: dict[str, Any] = {
    "socket": "/run/swarm-broker/broker.sock",
    "state": "/var/lib/swarm-broker",
    "roles.person": ["root"],
    "roles.coordinator": ["swarm"],
    "webhook.secret": {"file": "/etc/swarm-broker/webhook.secret"},
    "canary.file": "/var/lib/swarm/.git-credentials",
}
_TOKEN = {"file": "/etc/swarm-broker/token"}
_URL: dict[ForgeKind, str] = {
    "github": "https://github.com/example/web",
    "gitea": "https://git.example.org/example/web",
    "gitlab": "https://gitlab.example.org/example/web",
}
_FORMS: dict[type[BaseModel], str] = {
    Source: '# as { file = "/etc/swarm-broker/token" }, { keyring = "service/user" } or { command = ["/bin/x", "y"] }',
    App: '# as app = { id = "123456", installation = 7890123, key = { file = "/etc/swarm-broker/app.pem" } }',
}


@dataclass(frozen=True)
class _Table:
    """One table of the file: where it stands in it and in the settings, and whether it is on."""

    title: str
    place: str
    model: type[BaseModel]
    on: bool


def render(values: Mapping[str, Any] | None = None, repository: str = "demo", forge: ForgeKind = "local") -> str:
    """The file's text. ``values`` replaces sample values: socket, state, person, coordinator, path, url, token.

    ``token`` is where it lies, such as {"file": PATH}.
    """
    given = values or {}
    filled = {key: given.get(key.rpartition(".")[2], sample) for key, sample in _samples(forge).items()}
    tables = _tables(_Table("", "", BrokerConfig, on=True), repository, filled)
    return "\n".join([_HEAD, *(_rendered(table, filled) for table in tables)])


def _samples(forge: ForgeKind) -> dict[str, Any]:
    if forge == "local":
        return {**_SAMPLE, "repositories.forge": forge, "repositories.path": "/srv/git/demo.git"}
    return {
        **_SAMPLE,
        "repositories.forge": forge,
        "repositories.url": _URL[forge],
        "repositories.credential.token": _TOKEN,
    }


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


def _tables(table: _Table, repository: str, filled: Mapping[str, Any]) -> list[_Table]:
    found = [table]
    for name, field in table.model.model_fields.items():
        inner = _table_in(field)
        if inner is None:
            continue
        title = f"{name}.{repository}" if get_origin(field.annotation) is dict else name
        title, place = f"{table.title}.{title}".strip("."), f"{table.place}.{name}".strip(".")
        always = field.default is not None
        on = table.on and (always or any(key.startswith(f"{place}.") for key in filled if inner is Credential))
        found += _tables(_Table(title, place, inner, on), repository, filled)
    return found


def _table_in(field: FieldInfo) -> type[BaseModel] | None:
    inner = model_in(field.annotation)
    return None if inner in _FORMS else inner  # short enough for a line


def _rendered(table: _Table, filled: Mapping[str, Any]) -> str:
    off = "" if table.on else "## "
    lines = [f"{off}[{table.title}]"] if table.title else []
    for name, field in table.model.model_fields.items():
        if _table_in(field) is None:
            lines += [*_words(field), *_setting(name, field, filled.get(f"{table.place}.{name}".strip(".")), off)]
    return "\n".join(lines) + "\n"


def _words(field: FieldInfo) -> list[str]:
    told = textwrap.wrap(field.description or "", 116, initial_indent="# ", subsequent_indent="# ")
    return told + [line for kind, line in _FORMS.items() if model_in(field.annotation) is kind]


def _setting(name: str, field: FieldInfo, value: Any, off: str) -> list[str]:
    inner = model_in(field.annotation)
    if inner is App:
        return []  # one of two: its form is told in words
    if value is None and off and inner is Source:
        value = _TOKEN
    if value is not None:
        return [f"{off}{name} = {_toml(value)}"]
    unset = field.default is None or field.default is PydanticUndefined
    return _commented(f"{name} = {'...' if unset else _toml(field.default)}", off or "# ")


def _commented(line: str, mark: str) -> list[str]:
    if len(line) <= 116:
        return [f"{mark}{line}"]
    head, _, values = line.partition("[")
    rows = textwrap.wrap(values.rstrip("]"), 110, break_long_words=False, break_on_hyphens=False)
    return [f"{mark}{head}[", *(f"{mark}  {row}" for row in rows), f"{mark}]"]


def _toml(value: Any) -> str:
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_toml(one) for one in value) + "]"
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_toml(one)}" for key, one in value.items()) + " }"
    return json.dumps(str(value) if isinstance(value, Path) else value)
