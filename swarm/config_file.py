"""Finds, reads and judges a swarm.toml: the door through which settings, and keys from the environment, come in."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from platformdirs import user_config_path
from pydantic import BaseModel, SecretStr, ValidationError

from swarm.config import DaemonConfig, Settings, impossible
from swarm.config_lines import lines_of
from swarm.config_sandbox import sandbox_misfits
from swarm.config_text import Problem, dotted, problems
from swarm.errors import ConfigError

NAME = "swarm.toml"
SYSTEM = Path("/etc/agent-swarm") / NAME
VARIABLE = "SWARM_CONFIG"
SHOWN = 12  # problems on one screen
PASSWORD_LIMIT = 4096  # bytes of a file with a password

Model = TypeVar("Model", bound=BaseModel)


class Loaded(NamedTuple):
    """Settings in force, the file they came from, and what that file says."""

    settings: Settings
    path: Path
    raw: dict[str, Any]


def candidates(environ: Mapping[str, str], here: Path | None) -> tuple[Path, ...]:
    """Where a swarm.toml is looked for when none is named, first match wins; ``here`` is the current folder."""
    if named := environ.get(VARIABLE):
        return (Path(named).expanduser(),)
    return (*([here / NAME] if here else ()), user_config_path("agent-swarm") / NAME, SYSTEM)


def find(given: Path | None, environ: Mapping[str, str], here: Path) -> Path:
    """The file to read: the one named by the caller or by $SWARM_CONFIG, else the first that exists.

    Raises ConfigError when there is none; a named one is not checked here.
    """
    if (found := seek(given, environ, here)) is not None:
        return found
    looked = ", ".join(str(place) for place in candidates(environ, here))
    raise ConfigError(
        f"there is no {NAME}: looked at {looked}", "write one with: swarm init (or name one with --config PATH)"
    )


def seek(given: Path | None, environ: Mapping[str, str], here: Path | None) -> Path | None:
    """As `find`, but None when there is none, for what needs no file. Without ``here`` only a person's own counts."""
    if given is not None:
        return given.expanduser()
    places = candidates(environ, here)
    return places[0] if environ.get(VARIABLE) else next((place for place in places if _exists(place)), None)


def load(path: Path, environ: Mapping[str, str]) -> Loaded:
    """Read and judge one file. Raises ConfigError that names the file, the line and the mend."""
    text = _read(path)
    raw = _parse(path, text)
    folder = path.absolute().parent
    settings = _absolute(_with_keys(_judged(path, text, raw), folder, environ), folder)
    _insist(path, text, impossible(settings))
    return Loaded(settings, path, raw)


def load_parts(path: Path, parts: Collection[str]) -> Loaded:
    """Some sections of a file, which need not be enough for a daemon; the others keep their defaults, unread.

    Raises ConfigError as `load` does, for what is wrong in these sections and for names that are no section at all.
    """
    text = _read(path)
    raw = _parse(path, text)
    read = {name: part for name, part in raw.items() if name in parts or name not in Settings.model_fields}
    settings = _absolute(_judged(path, text, read), path.absolute().parent)
    _insist(path, text, tuple(sandbox_misfits(settings.sandbox)))
    return Loaded(settings, path, raw)


def _judged(path: Path, text: str, raw: Mapping[str, Any]) -> Settings:
    try:
        # Strict, so that "4" is no number; by way of JSON, so that text still becomes a path and a list a tuple.
        return Settings.model_validate_json(json.dumps(raw, default=str), strict=True)
    except ValidationError as error:
        raise _refused(path, problems(error, Settings, text)) from None


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:
        return True  # there, and not ours to see: reading it will say so


def _read(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        raise ConfigError(
            f"{path}: there is no such file", "write one with: swarm init, or name another with --config PATH"
        ) from None
    except IsADirectoryError:
        raise ConfigError(f"{path}: is a folder, not a file", f"name the file in it: {path / NAME}") from None
    except PermissionError:
        mend = f"let your user read it (ls -l {path} shows who may), or name another with --config PATH"
        raise ConfigError(f"{path}: you may not read it", mend) from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: byte {error.start} is not UTF-8", "save the file as UTF-8 text") from None
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}", "name another file with --config PATH") from None


def _parse(path: Path, text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        mend = "correct the line; https://toml.io shows the format"
        raise ConfigError(f"{path}: is not TOML: {error}", mend) from None


def _insist(path: Path, text: str, found: tuple[Problem, ...]) -> None:
    """Raises ConfigError where settings cannot work, each with its line."""
    if found:
        lines = lines_of(text)
        placed = [problem.model_copy(update={"line": _line(problem, lines)}) for problem in found]
        raise _refused(path, tuple(sorted(placed, key=lambda problem: problem.line or 0)))


def _refused(path: Path, found: tuple[Problem, ...]) -> ConfigError:
    shown = [f"  {problem}" for problem in found[:SHOWN]]
    if len(found) > SHOWN:
        shown.append(f"  and {len(found) - SHOWN} more")
    listed = "\n".join(shown)
    return ConfigError(f"{path}: cannot be used\n{listed}", "correct these; every setting: swarm config explain")


def _line(problem: Problem, lines: Mapping[tuple[str | int, ...], int]) -> int | None:
    """The line of what a problem is about, or of the nearest thing around it; a name in its key may hold dots."""
    names = {dotted(path): number for path, number in lines.items()}
    around = [name for name in names if problem.key == name or problem.key.startswith((f"{name}.", f"{name}["))]
    return names[max(around, key=len)] if around else None


def _with_keys(settings: Settings, folder: Path, environ: Mapping[str, str]) -> Settings:
    """The settings with keys put in that the file only names; one that is not set stays out."""
    endpoints = tuple(
        endpoint.model_copy(update={"api_key": SecretStr(environ[endpoint.api_key_env])})
        if endpoint.api_key_env and endpoint.api_key is None and environ.get(endpoint.api_key_env)
        else endpoint
        for endpoint in settings.pool.endpoints
    )
    daemon = settings.daemon
    if daemon.database_password is None and (password := _password(daemon, folder, environ)):
        daemon = daemon.model_copy(update={"database_password": SecretStr(password)})
    pool = settings.pool.model_copy(update={"endpoints": endpoints})
    return settings.model_copy(update={"daemon": daemon, "pool": pool})


def _password(daemon: DaemonConfig, folder: Path, environ: Mapping[str, str]) -> str | None:
    """The database's password; None where it is not to be had, which only who opens the database needs to know."""
    if daemon.database_password_file is None:
        return environ.get(daemon.database_password_env or "")
    path = _under(folder, daemon.database_password_file)
    try:
        with path.open("rb") as file:
            mine = os.fstat(file.fileno()).st_mode & 0o077 == 0
            return file.read(PASSWORD_LIMIT).decode("utf-8").strip() if mine else None
    except (OSError, UnicodeDecodeError):
        return None


def _absolute(settings: Settings, folder: Path) -> Settings:
    """The settings with ``~`` and relative paths resolved against the file's folder, not against where one stands."""
    settings = _resolved(settings, folder)
    embedded = settings.pool.embedded
    if embedded.weights:
        embedded = embedded.model_copy(update={"weights": str(_under(folder, Path(embedded.weights)))})
    gateway = settings.pool.gateway
    if gateway.socket:
        gateway = gateway.model_copy(update={"socket": str(_under(folder, Path(gateway.socket)))})
    pool = settings.pool.model_copy(update={"embedded": embedded, "gateway": gateway})
    return settings.model_copy(update={"pool": pool})


def _resolved(model: Model, folder: Path) -> Model:
    """A part of the settings with every path in it resolved, wherever it stands."""
    values = {name: getattr(model, name) for name in type(model).model_fields}
    moved = {name: made for name, value in values.items() if (made := _moved(value, folder)) != value}
    return model.model_copy(update=moved) if moved else model


def _moved(value: Any, folder: Path) -> Any:
    if isinstance(value, Path):
        return _under(folder, value)
    if isinstance(value, BaseModel):
        return _resolved(value, folder)
    if isinstance(value, tuple):
        return tuple(_moved(each, folder) for each in value)
    if isinstance(value, dict):
        return {name: _moved(each, folder) for name, each in value.items()}
    return value


def _under(folder: Path, path: Path) -> Path:
    return folder / path.expanduser()
