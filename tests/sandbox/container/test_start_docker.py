"""The script that starts an engine of the project's own."""

from __future__ import annotations

import subprocess
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[3] / "scripts/start-docker"


def test_a_folder_whose_sockets_would_have_too_long_names_is_refused_in_words(tmp_path: Path) -> None:
    folder = tmp_path / ("x" * 80)
    ended = subprocess.run([SCRIPT, "start", folder], capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert "too long a name" in ended.stderr
    assert "choose a shorter one" in ended.stderr
    assert not folder.exists()
