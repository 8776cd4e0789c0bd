"""Foreign JSON, read within bounds: size, depth, count of values, and text that can be written out again. Pure."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

LARGEST = 256 * 1024 * 1024  # bytes of a file
VALUES = 4_000_000  # in one file: each takes some hundred bytes of memory
DEEPEST = 48  # levels


def parsed(raw: bytes | str, *, deepest: int = DEEPEST, most: int = VALUES) -> Any:
    """The value that JSON text tells, with each lone surrogate replaced. Raises ValueError, whose words say why not."""
    try:
        told = raw.decode("utf-8-sig") if isinstance(raw, bytes) else raw
    except UnicodeDecodeError as error:
        raise ValueError(f"byte {error.start} is not UTF-8") from None
    counted = sum(map(told.count, ",[{"))
    if counted > most:
        raise ValueError(f"it may hold {counted} values, more than {most}")
    try:
        value = json.loads(told, parse_constant=_no_number)
    except RecursionError:
        raise ValueError(f"it is nested deeper than {deepest} levels") from None
    return mended(value, deepest)


def mended(value: Any, deepest: int = DEEPEST, *, lenient: bool = False) -> Any:
    """The value with text that UTF-8 can write. Raises ValueError where it is nested too deep, and for a number that no
    JSON can write; to be ``lenient`` is to have None in its place."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, float) and not math.isfinite(value):
        if not lenient:
            raise ValueError("it holds a number that is larger than any")
        return None
    if not isinstance(value, dict | list):
        return value
    if deepest <= 0:
        raise ValueError(f"it is nested deeper than {DEEPEST} levels")
    if isinstance(value, dict):
        return {mended(key): mended(each, deepest - 1, lenient=lenient) for key, each in value.items()}
    return [mended(each, deepest - 1, lenient=lenient) for each in value]


def text(value: Any) -> str:
    """Text, whatever was there in its place: of a list of parts their texts, of other data its JSON."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "\n".join(_part(each) for each in value)
    return json.dumps(value, ensure_ascii=False)


def mapping(value: Any) -> dict[str, Any]:
    """The object, or an empty one where there is something else."""
    return dict(value) if isinstance(value, Mapping) else {}


def items(value: Any) -> list[dict[str, Any]]:
    """The objects of a list, in order; whatever else is in it is left out."""
    return [dict(each) for each in value if isinstance(each, Mapping)] if isinstance(value, list | tuple) else []


def count(value: Any) -> int | None:
    """A whole number that counts something, else None."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def amount(value: Any) -> float | None:
    """A finite number, else None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) < 1e15 else None


def _part(part: Any) -> str:
    if isinstance(part, Mapping):
        if isinstance(part.get("text"), str):
            return str(part["text"])
        return f"[{part.get('type', 'part')}]"
    return text(part)


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")
