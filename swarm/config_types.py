"""What kind of value a setting takes, in words, by its annotation: never Python's or pydantic's own names. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import SecretStr
from pydantic.fields import FieldInfo

_NAMES: dict[Any, str] = {
    str: "text",
    int: "whole number",
    float: "number",
    bool: "true or false",
    Path: "path",
    SecretStr: "secret text",
}
_BOUNDS = {
    "ge": "at least {}",
    "gt": "more than {}",
    "le": "at most {}",
    "lt": "less than {}",
    "min_length": "at least {} characters",
    "max_length": "at most {} characters",
    "pattern": "matching {}",
}
_COUNTED = ("whole number", "number", "path")


def type_of(field: FieldInfo) -> str:
    """The type of a setting and its bounds."""
    name, inner = _named(field.annotation)
    return ", ".join([name, *_in_words(inner, name), *_in_words(_bounds(field.metadata), name)])


def type_name(annotation: Any) -> str:
    """The type alone."""
    return _named(annotation)[0]


def ways_of(annotation: Any) -> tuple[Any, ...]:
    """The kinds of value that an annotation takes, None apart: one, but of a union several."""
    if get_origin(annotation) in {Union, UnionType}:
        return tuple(part for part in get_args(annotation) if part is not NoneType)
    return (annotation,)


def _named(annotation: Any) -> tuple[str, list[str]]:
    """The name of a type, and the bounds that the annotation itself brings."""
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        name, bounds = _named(args[0])
        return name, [*bounds, *_bounds(args[1:])]
    if origin is Literal:
        return "one of " + ", ".join(f'"{choice}"' for choice in args), []
    if origin in {Union, UnionType}:
        parts = [_named(part) for part in ways_of(annotation)]
        return " or ".join(name for name, _ in parts), [bound for _, bounds in parts for bound in bounds]
    if origin in {tuple, list, dict}:
        name, bounds = _named(args[1 if origin is dict else 0])
        many = f"{name}s" if name in _COUNTED else name
        each = [f"each {', '.join(_in_words(bounds, name))}"] if bounds else []
        return f"{'table' if origin is dict else 'list'} of {many}", each
    return _NAMES.get(annotation, getattr(annotation, "__name__", str(annotation))), []


def _bounds(metadata: Iterable[Any]) -> list[str]:
    return [bound for rule in metadata for bound in _of_rule(rule)]


def _of_rule(rule: Any) -> Iterator[str]:
    """The bounds in a rule of pydantic's; one that stands in an annotation bundles several."""
    if isinstance(rule, FieldInfo):
        yield from _bounds(rule.metadata)
        return
    for bound, words in _BOUNDS.items():
        if (value := getattr(rule, bound, None)) is not None:
            told = words.format(value)
            yield told.removesuffix("s") if value == 1 and told.endswith("characters") else told


def _in_words(bounds: Iterable[str], name: str) -> list[str]:
    """Of a list or a table they are of how many it holds."""
    if not name.startswith(("list", "table")):
        return list(bounds)
    return [bound.replace("characters", "entries").replace("character", "entry") for bound in bounds]
