"""How large a model is, as far as its name tells. Pure."""

from __future__ import annotations

import re

SMALL = 8e9  # parameters below which a model is shown less, in shorter sentences
_PARAMETERS = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)\s*([mb])(?![a-z])", re.IGNORECASE)


def parameters(model: str) -> float | None:
    """The parameters that a name tells of, the most where it tells of several; None where it tells of none."""
    sizes = [float(number) * (1e9 if unit in "bB" else 1e6) for number, unit in _PARAMETERS.findall(model)]
    return max(sizes, default=None)


def is_small(model: str, below: float = SMALL) -> bool:
    """Whether a name tells of fewer parameters; a name that tells of none is not small."""
    size = parameters(model)
    return size is not None and size < below
