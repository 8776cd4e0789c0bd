"""What settings there are and what they come to: every field of a model explained, every value with its origin."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from swarm.config_text import models_in
from swarm.config_types import type_of
from swarm.types import Frozen

HIDDEN = "(set, not shown)"


class FieldDoc(Frozen):
    """One setting explained. ``default`` is TOML text, None where there is none and ``required`` tells the rest."""

    key: str
    type: str
    default: str | None
    required: bool
    description: str


class Setting(Frozen):
    """One setting as it is in force, and whether the file or the default says so. Secrets are not in it."""

    key: str
    value: Any
    origin: Literal["file", "default"]


def explain(model: type[BaseModel], prefix: str = "") -> tuple[FieldDoc, ...]:
    """Every setting below a model, in the order of its fields; ``[]`` is an element of a list, NAME a name of yours."""
    docs: list[FieldDoc] = []
    for name, field in model.model_fields.items():
        inner = list(models_in(field.annotation))
        if not inner:
            docs.append(_doc(f"{prefix}{name}", field))
        for way, child in inner:
            docs.extend(explain(child, f"{prefix}{name}{way}."))
    return tuple(docs)


def effective(settings: BaseModel, raw: Mapping[str, Any], prefix: str = "") -> Iterator[Setting]:
    """Every value in force, each with its origin; ``raw`` is the parsed file."""
    for name in type(settings).model_fields:
        yield from _values(f"{prefix}{name}", getattr(settings, name), raw.get(name), given=name in raw)


def toml_value(value: Any) -> str:
    """A value as it would be written in a TOML file; an absent one is empty text."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, dict):
        inner = ", ".join(f"{toml_value(str(key))} = {toml_value(item)}" for key, item in value.items())
        return f"{{ {inner} }}" if inner else "{}"
    if isinstance(value, tuple | list):
        return f"[{', '.join(toml_value(item) for item in value)}]"
    return "" if value is None else _quoted(str(value))


def _quoted(text: str) -> str:
    """A TOML basic string."""
    named = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}
    plain = (named.get(c) or (c if c.isprintable() else f"\\U{ord(c):08X}") for c in text)
    return f'"{"".join(plain)}"'


def _values(key: str, value: Any, raw: Any, *, given: bool) -> Iterator[Setting]:
    if isinstance(value, BaseModel):
        yield from effective(value, raw if isinstance(raw, dict) else {}, f"{key}.")
    elif isinstance(value, tuple) and value and isinstance(value[0], BaseModel):
        for number, item in enumerate(value):
            yield from effective(item, raw[number] if isinstance(raw, list) else {}, f"{key}[{number}].")
    elif isinstance(value, dict) and value and isinstance(next(iter(value.values())), BaseModel):
        for name, item in value.items():
            yield from effective(item, raw.get(name, {}) if isinstance(raw, dict) else {}, f"{key}.{name}.")
    else:
        yield Setting(key=key, value=_plain(value), origin="file" if given else "default")


def _plain(value: Any) -> Any:
    """A value that JSON can carry."""
    if isinstance(value, SecretStr):
        return HIDDEN
    if isinstance(value, Path):
        return str(value)
    return value.value if isinstance(value, Enum) else value


def _doc(key: str, field: FieldInfo) -> FieldDoc:
    default = None if field.is_required() else field.get_default(call_default_factory=True, validated_data={})
    return FieldDoc(
        key=key,
        type=type_of(field),
        default=None if default is None else toml_value(_plain(default)),
        required=field.is_required(),
        description=field.description or "",
    )
