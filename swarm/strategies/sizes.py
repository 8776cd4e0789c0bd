"""How large a model is, as far as its name tells. Pure."""

from __future__ import annotations

import re

SMALL = 1e9
"""Parameters below which a model cannot steer itself."""
WEAK = 8e9
"""Parameters below which a model steers itself badly, and does better with less to decide."""
_PARAMETERS = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)\s*([mb])(?![a-z])", re.IGNORECASE)


def parameters(model: str) -> float | None:
    """How many parameters a model's name tells of: the largest figure in it; None where it tells nothing."""
    sizes = [float(number) * (1e9 if unit in "bB" else 1e6) for number, unit in _PARAMETERS.findall(model)]
    return max(sizes, default=None)


def is_small(model: str) -> bool:
    """Whether a name tells of under a thousand million parameters; a name that tells nothing is not small."""
    size = parameters(model)
    return size is not None and size < SMALL


def is_weak(model: str) -> bool:
    """Whether a name tells of so few parameters that the model steers itself badly."""
    size = parameters(model)
    return size is not None and size < WEAK
