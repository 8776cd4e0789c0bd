"""What is exported as ATIF is that by the word of its authors: Harbor's own models, out of its package, take it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from swarm.transcripts import atif, foreign
from swarm.transcripts.shape import Transcript
from tests.acceptance.test_clients import cache
from tests.swarm.transcripts.conftest import MINI_1, MINI_2, MINI_RESPONSES, SWE_AGENT, made

__all__ = ["made"]  # a fixture
pytestmark = [pytest.mark.clients, pytest.mark.timeout(300)]
HARBOR = "harbor==0.26.0"
# Its packages import all of a framework; the models alone need nothing but pydantic.
JUDGE = """
import json, sys, types
home = sys.argv[1]
for name in ("harbor", "harbor.models"):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [f"{home}/{name.replace('.', '/')}"]
from harbor.models.trajectories import Trajectory
for value in json.load(sys.stdin):
    Trajectory.model_validate(value)
"""


@pytest.fixture(scope="module")
def harbor() -> Path:
    """Harbor's package, unpacked. Skips where it cannot be had."""
    home = cache() / "clients" / HARBOR
    if not (home / "harbor").is_dir():
        pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-compile", "--ignore-requires-python"]
        done = subprocess.run([*pip, "--target", str(home), HARBOR], capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"blocked: {HARBOR} cannot be installed: {done.stderr.strip().splitlines()[-1]}")
    return home


def judged(home: Path, *documents: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", JUDGE, str(home)]
    return subprocess.run(command, input=json.dumps(documents), capture_output=True, text=True, check=False)


def test_exported_documents_are_valid_for_harbor(harbor: Path, made: Transcript) -> None:
    others = (foreign.read(json.dumps(each).encode()) for each in (MINI_1, MINI_2, MINI_RESPONSES, SWE_AGENT))
    done = judged(harbor, *map(atif.document, (made, *others)))
    assert done.returncode == 0, done.stderr[-2000:]


def test_the_judge_refuses_what_is_none(harbor: Path, made: Transcript) -> None:
    document = atif.document(made)
    document["steps"][0]["source"] = "ghost"
    assert "source" in judged(harbor, document).stderr
