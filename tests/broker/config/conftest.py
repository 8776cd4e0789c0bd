"""A small broker.toml to change."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

GOOD = """
socket = "/run/b/b.sock"
state = "/var/b"
[roles]
person = ["root"]
coordinator = [4242]
[repositories.demo]
forge = "local"
path = "/srv/demo.git"
"""


@pytest.fixture
def good() -> str:
    """The text of settings that load."""
    return GOOD


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Writes a broker.toml with a mode."""

    def _write(text: str, mode: int = 0o600) -> Path:
        path = tmp_path / "broker.toml"
        path.write_text(text)
        path.chmod(mode)
        return path

    return _write
