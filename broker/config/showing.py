"""What the settings are, mean and weaken, for a person: every key, warnings, and what `serve` would refuse."""

from __future__ import annotations

import grp
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_origin

from pydantic import BaseModel

from broker.config import ground
from broker.config.base import model_in
from broker.config.credential import Source
from broker.config.policy import Policy
from broker.config.repository import Repository
from broker.config.settings import BrokerConfig


def warnings(config: BrokerConfig, uid: int) -> tuple[str, ...]:
    """What is allowed but weakens a wall; ``uid`` is the broker's own."""
    both = sorted(set(config.roles.person) & set(config.roles.coordinator))
    found = [f"uid {user} is both person and coordinator: it can grant to itself" for user in both]
    if uid in config.roles.coordinator:
        found.append(f"the coordinator runs as the broker's own uid {uid}: it can read the credential")
    if config.webhook and config.webhook.listen.rsplit(":", 1)[0] not in {"127.0.0.1", "localhost"}:
        found.append(f"webhook.listen = {config.webhook.listen} takes calls from other machines without TLS")
    found += _twice(config)
    for name, repository in config.repositories.items():
        found += [f"repositories.{name}.{line}" for line in _weak(repository)]
    return tuple(found)


def _twice(config: BrokerConfig) -> Iterator[str]:
    names: dict[str, str] = {}
    for name, repository in config.repositories.items():
        place = str(repository.path or repository.url)
        other = names.setdefault(place.casefold(), name)
        if other != name:
            yield f"repositories.{other} and .{name} are both {place}: a caller chooses between their policies"


def _weak(repository: Repository) -> Iterator[str]:
    for key in ("url", "api", "git"):
        if (getattr(repository, key) or "").startswith("http:"):
            yield f"{key} is plain http: whatever listens at that port of this machine gets the credential"
    if repository.forge != "local" and repository.visibility != "forge":
        yield f"visibility = {repository.visibility} is taken at its word; the forge is not asked who can read it"
    if (repository.intake.label or repository.intake.command) and repository.intake.permission == "triage":
        yield "intake.permission = triage: people who may not push start tasks with your models"
    yield from (f"policy.{line}" for line in _weak_policy(repository.policy, repository.visibility))


def _weak_policy(policy: Policy, visibility: str) -> Iterator[str]:
    if policy.allow_workflows:
        audience = "" if visibility == "private" else ", in a repository that the whole world may be reading"
        yield f"allow_workflows = true: a proposal may change what the forge's CI runs with its own secrets{audience}"
    elif not policy.workflow_paths:
        yield "workflow_paths is empty: no file counts as one that the forge's CI runs"
    if not policy.protected_paths or policy.protected in {"allow", "warn"}:
        yield "protected: manifests, CODEOWNERS and what other agents obey may change without a person's word"
    for key in ("secrets", "hidden_text"):
        if getattr(policy, key) in {"allow", "warn"}:
            yield f"{key} = {getattr(policy, key)}: what the scan finds is published all the same"
    if policy.allow_symlinks or policy.allow_submodules:
        yield "allow_symlinks or allow_submodules: whoever checks the branch out may write or fetch elsewhere"


def obstacles(config: BrokerConfig, uid: int) -> tuple[str, ...]:
    """What `serve` would refuse, run as ``uid``, each with the mend."""
    found = [f"{place} {problem}" for place, problem in _programs_and_files(config, uid)]
    for name, repository in config.repositories.items():
        if repository.path is None:
            continue
        place = f"repositories.{name}.path = {repository.path}"
        try:
            owner = (repository.path / "HEAD").stat().st_uid
        except OSError as error:
            found.append(f"{place} is no bare repository that can be read ({error.strerror}): git init --bare it")
            continue
        if owner != uid:
            found.append(f"{place} belongs to uid {owner}: chown -R {uid} {repository.path}")
    found += _ground(config, uid)
    return tuple(found)


def _ground(config: BrokerConfig, uid: int) -> Iterator[str]:
    """Groups, and the folders of sockets and state as far as they are there: a service's may be made by its start."""
    for key, name in (("socket_group", config.socket_group), ("person_group", config.person_group)):
        try:
            if name is not None:
                grp.getgrnam(name)
        except KeyError:
            yield f"{key} = {name} is no group of this machine: groupadd --system {name}"
    for folder in sorted({config.socket.parent, config.people.parent}):
        if folder.is_dir() and (problem := ground.folder(folder, uid)):
            yield f"the sockets' folder {folder} {problem}"
    if config.state.is_dir():
        info = config.state.stat()
        if info.st_uid != uid:
            yield f"state = {config.state} belongs to uid {info.st_uid}: chown -R {uid} {config.state}"
        elif info.st_mode & 0o077:
            yield f"state = {config.state} can be entered by other users: chmod 700 {config.state}"


def _programs_and_files(config: BrokerConfig, uid: int) -> Iterator[tuple[str, str]]:
    looks: list[tuple[str, Callable[[Path, int], str | None], Path]] = []
    for place, source in _sources(config, ""):
        if source.file is not None:
            looks.append((f"{place}.file", ground.secret, source.file))
        if source.command is not None:
            looks.append((f"{place}.command", ground.program, Path(source.command[0])))
    if config.canary is not None and config.canary.command:
        looks.append(("canary.command", ground.program, Path(config.canary.command[0])))
    for name, repository in config.repositories.items():
        if repository.policy.hook:
            looks.append((f"repositories.{name}.policy.hook", ground.program, Path(repository.policy.hook[0])))
        if repository.ca_file is not None:
            looks.append((f"repositories.{name}.ca_file", ground.trusted, repository.ca_file))
    for place, look, path in looks:
        if problem := look(path, uid):
            yield f"{place} = {path}", problem


def _sources(value: Any, place: str) -> Iterator[tuple[str, Source]]:
    if isinstance(value, Source):
        yield place, value
    elif isinstance(value, BaseModel):
        for name in type(value).model_fields:
            yield from _sources(getattr(value, name), f"{place}.{name}" if place else name)
    elif isinstance(value, dict):
        for name, entry in value.items():
            yield from _sources(entry, f"{place}.{name}")


def fields(model: type[BaseModel] = BrokerConfig, place: str = "") -> list[tuple[str, str, str]]:
    """Every key as (dotted name, default, meaning), in the order of the file."""
    rows: list[tuple[str, str, str]] = []
    for name, field in model.model_fields.items():
        inner, here = model_in(field.annotation), f"{place}{name}"
        if inner is None:
            rows.append((here, "required" if field.is_required() else _short(field.default), field.description or ""))
        else:
            step = ".NAME." if get_origin(field.annotation) is dict else "."
            rows += fields(inner, here + step)
    return rows


def _short(value: Any) -> str:
    text = str(list(value)) if isinstance(value, tuple) else str(value)
    return text if len(text) <= 60 else text[:57] + "..."
