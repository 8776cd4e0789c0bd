"""What is wrong in a TOML document, in plain words: pydantic's errors with line numbers and the nearest right names."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from pool.config import NAME
from sandbox.config import GROUP, INDEX, LOOPBACK
from swarm.config_lines import Path, line_of, lines_of
from swarm.config_types import type_name, ways_of
from swarm.errors import TaskError
from swarm.types import STRATEGY, Frozen

Said = TypeVar("Said", bound=BaseModel)

_USERINFO = re.compile(r"^(\w+://)?.*@")  # to the last @: a password may hold a slash
_KINDS = "kinds"  # our own type of an error: a value is of none of several kinds
_SECRET = re.compile(r"key$|secret|token$|password", re.IGNORECASE)


class Problem(Frozen):
    """One thing wrong in a document: the dotted key, the line where known, and what to do about it."""

    key: str
    line: int | None
    message: str

    def __str__(self) -> str:
        where = f"line {self.line}: " if self.line else ""
        return f"{where}{self.key + ': ' if self.key else ''}{self.message}"


def dotted(path: Sequence[str | int]) -> str:
    """``("pool", "endpoints", 0, "url")`` as ``pool.endpoints[0].url``."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def problems(error: ValidationError, model: type[BaseModel], text: str) -> tuple[Problem, ...]:
    """Every error of a document with ``text``, in the order of its lines."""
    lines = lines_of(text)
    details = error.errors(include_url=False, include_context=True)
    found = {_problem(_merged(detail, model), model, lines): None for detail in details}
    return tuple(sorted(found, key=lambda problem: (problem.line or 0, problem.key)))


def meant(model: type[Said], words: Mapping[str, object], mend: str) -> Said:
    """What a person said in single words, as one value. Raises TaskError that names each word that cannot be meant."""
    try:
        return model.model_validate(words)
    except ValidationError as error:
        told = "; ".join(f"{one.key}: {one.message}" for one in problems(error, model, "")[:5])
        raise TaskError(told, mend) from None


def nearest(name: str, names: Sequence[str]) -> str | None:
    """The most similar of ``names``, or None when none is similar."""
    found = difflib.get_close_matches(name.lower(), [known.lower() for known in names], n=1, cutoff=0.6)
    return next((known for known in names if known.lower() == found[0]), None) if found else None


def models_in(annotation: Any) -> Iterator[tuple[str, type[BaseModel]]]:
    """The models inside an annotation and how each is reached: ``""``, ``"[]"`` in a list, ``".NAME"`` in a table."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield "", annotation
        return
    origin = get_origin(annotation)
    if origin in {Union, UnionType}:
        for part in get_args(annotation):
            yield from models_in(part)
    elif origin in {tuple, list}:
        yield from ((f"[]{way}", model) for way, model in models_in(get_args(annotation)[0]))
    elif origin is dict:
        yield from ((f".NAME{way}", model) for way, model in models_in(get_args(annotation)[1]))


def _merged(detail: ErrorDetails, model: type[BaseModel]) -> ErrorDetails:
    """One of the errors of a value that may be of several kinds, as the one that it is: pydantic tells one of each."""
    path = detail["loc"]
    for place, name in enumerate(path[:-1]):
        parent = _model_at(path[:place], model)
        field = parent.model_fields.get(str(name)) if parent else None
        ways = ways_of(field.annotation) if field else ()
        if len(ways) > 1 and not any(True for way in ways for _ in models_in(way)):
            words = f"must be {', or '.join(map(type_name, ways))}"
            return {"loc": path[: place + 1], "type": _KINDS, "msg": words, "input": None}
    return detail


def _problem(detail: ErrorDetails, model: type[BaseModel], lines: dict[Path, int]) -> Problem:
    path, of_name = detail["loc"], ""
    if path and path[-1] == "[key]":  # pydantic's word for a name of a table
        path, of_name = path[:-1], "its name "
    if detail["type"] == "extra_forbidden":
        message = _unknown(path, model)
    elif detail["type"] == "missing":
        message = "is missing; it has no default" + _described(path, model)
    elif detail["type"] == "value_error":  # our own words, whose subject is the value
        value = _value(path, detail["input"])
        message = f"{value} {detail['ctx']['error']}" if value else str(detail["ctx"]["error"])
    elif detail["type"] in {_KINDS, "too_short", "too_long"}:  # the value says no more
        message = _words(detail)
    else:
        message = of_name + _words(detail) + _shown(path, detail["input"])
    return Problem(key=dotted(path), line=line_of(path, lines), message=message)


def _unknown(path: Path, model: type[BaseModel]) -> str:
    parent = _model_at(path[:-1], model)
    names = tuple(parent.model_fields) if parent else ()
    if name := nearest(str(path[-1]), names):
        return f"is no setting; did you mean {name}?"
    elsewhere = [key for key in keys_of(model) if key.rpartition(".")[2] == path[-1]]
    if elsewhere:
        return f"is no setting here; did you mean {elsewhere[0]}?"
    return f"is no setting; known here are {', '.join(names)}" if names else "is no setting"


def keys_of(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """The dotted keys of every setting of a model, ``[]`` and ``NAME`` standing for an element and a table's name."""
    for name, field in model.model_fields.items():
        key = f"{prefix}{name}"
        inner = list(models_in(field.annotation))
        if not inner:
            yield key
        for way, child in inner:
            yield from keys_of(child, f"{key}{way}.")


def _model_at(path: Path, model: type[BaseModel]) -> type[BaseModel] | None:
    """The model that a path of an error leads to."""
    here: type[BaseModel] = model
    rest = list(path)
    while rest:
        field = here.model_fields.get(str(rest.pop(0)))
        inner = next(models_in(field.annotation), None) if field else None
        if inner is None:
            return None
        way, here = inner
        rest = rest[way.count("[]") + way.count(".NAME") :]
    return here


def _described(path: Path, model: type[BaseModel]) -> str:
    parent = _model_at(path[:-1], model)
    field = parent.model_fields.get(str(path[-1])) if parent else None
    return f" ({field.description})" if field and field.description else ""


_WORDS = {
    "string_type": "must be text in quotes",
    "path_type": "must be a path in quotes",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "finite_number": "must be a finite number",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "tuple_type": "must be a list, in [brackets]",
    "dict_type": "must be a table",
    "model_type": "must be a table",
    "model_attributes_type": "must be a table",
    "greater_than": "must be more than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}",
    "literal_error": "must be one of {expected}",
    "too_short": "must hold at least {min_length}, and holds {actual_length}",
    "too_long": "must hold at most {max_length}, and holds {actual_length}",
    "string_too_short": "must have at least {min_length} characters",
    "string_too_long": "must have at most {max_length} characters",
    "string_pattern_mismatch": "must match {pattern}",
}


_NAMES = {
    NAME: "must be 1 to 64 of a-z, 0-9, dot, dash and underscore, the first a letter or digit",
    STRATEGY: "must be the name of a strategy, or cli:NAME for an agent",
    LOOPBACK: "must be unix:/path/of/its.sock, or http:// with 127.0.0.1, localhost or [::1] and a port",
    GROUP: "must be the name of a control group, such as agent-swarm or swarm/sandboxes",
    INDEX: "must begin with http:// or https://",
}


def _words(detail: ErrorDetails) -> str:
    if name := _NAMES.get(detail.get("ctx", {}).get("pattern", "")):
        return name
    words = _WORDS.get(detail["type"])
    return words.format(**detail.get("ctx", {})) if words else detail["msg"]


def _shown(path: Path, value: Any) -> str:
    """What stands there instead of what must, as the end of a sentence."""
    if isinstance(value, dict | list) and not _secret(path):
        return f", not {'a table' if isinstance(value, dict) else 'a list'}"
    shown = _value(path, value)
    return f", not {shown}" if shown else ""


def _value(path: Path, value: Any) -> str:
    """A wrong value, cut short; empty for a table, a list, and whatever may be a secret."""
    if isinstance(value, dict | list) or _secret(path):
        return ""
    value = _USERINFO.sub(r"\1...@", value) if isinstance(value, str) else value
    text = str(value).lower() if isinstance(value, bool) else f'"{value}"' if isinstance(value, str) else str(value)
    return f"{text[:57]}..." if len(text) > 60 else text


def _secret(path: Path) -> bool:
    return any(isinstance(part, str) and _SECRET.search(part) for part in path)
