"""What the settings are, mean and weaken, for a person: every key, warnings, and what `serve` would refuse."""

from __future__ import annotations

import types
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel

from broker.config.settings import BrokerConfig


def warnings(config: BrokerConfig, uid: int) -> tuple[str, ...]:
    """What is allowed but weakens the wall between the broker and its callers; ``uid`` is the broker's own."""
    both = sorted(set(config.roles.person) & set(config.roles.coordinator))
    found = [f"uid {user} is both person and coordinator: it can grant to itself" for user in both]
    if uid in config.roles.coordinator:
        found.append(f"the coordinator runs as the broker's own uid {uid}: it can read the credential")
    return tuple(found)


def obstacles(config: BrokerConfig, uid: int) -> tuple[str, ...]:
    """Repositories that `serve` would refuse, run as ``uid``, each with the mend."""
    found = []
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
    return tuple(found)


def fields(model: type[BaseModel] = BrokerConfig, place: str = "") -> list[tuple[str, str, str]]:
    """Every key as (dotted name, default, meaning), in the order of the file."""
    rows: list[tuple[str, str, str]] = []
    for name, field in model.model_fields.items():
        inner, here = _model_in(field.annotation), f"{place}{name}"
        if inner is None:
            rows.append((here, "required" if field.is_required() else _short(field.default), field.description or ""))
        else:
            step = ".NAME." if get_origin(field.annotation) is dict else "."
            rows += fields(inner, here + step)
    return rows


def _model_in(annotation: Any) -> type[BaseModel] | None:
    candidates = [annotation]
    if get_origin(annotation) in (dict, Union, types.UnionType, Annotated):
        candidates = list(get_args(annotation))
    return next((one for one in candidates if isinstance(one, type) and issubclass(one, BaseModel)), None)


def _short(value: Any) -> str:
    text = str(list(value)) if isinstance(value, tuple) else str(value)
    return text if len(text) <= 60 else text[:57] + "..."
