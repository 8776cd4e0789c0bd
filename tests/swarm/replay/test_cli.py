"""`swarm replay` tells apart what is another tree and what cannot be replayed, with its own exit codes."""

from __future__ import annotations

from pathlib import Path

import pytest

from swarm.cli import app
from swarm.replay import bundle
from tests.swarm.replay.test_bundle import recorded


def test_a_file_that_is_none_ends_with_its_own_code_and_in_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "x.tar.gz"
    path.write_bytes(b"no archive")
    assert app.main(["replay", str(path)]) == 21
    err = capsys.readouterr().err
    assert str(path) in err
    assert "mend: " in err
    assert "Traceback" not in err


@pytest.mark.root
def test_an_attempt_that_cannot_be_replayed_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.tar.gz"
    one = recorded()
    bundle.write(path, bundle.packed(one, b""))
    assert app.main(["replay", str(path)]) == 21
    assert "never came to work" in capsys.readouterr().err
    path.unlink()
    strange = one.attempt.model_copy(update={"strategy": "cli:codex"})
    bundle.write(path, bundle.packed(one.model_copy(update={"attempt": strange}), b""))
    assert app.main(["replay", str(path)]) == 21
    assert "from inside its sandbox" in capsys.readouterr().err
