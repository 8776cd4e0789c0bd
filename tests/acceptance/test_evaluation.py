"""`swarm eval` on the shipped sets: the scripted reference solver solves all, which proves loop, sandbox, sealing and
judging; a real model goes the same way; and the report opens in a browser."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.swarm.evaluation.test_browser import asked_for, browsed
from tests.swarm.evaluation.test_page import Page

ROOT = Path(__file__).parents[2]


def evaluated(folder: Path, *words: str) -> dict[str, Any]:
    """The report of a run that was whole, as its folder has it."""
    environ = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(folder), "PYTHONPATH": str(ROOT)}
    home = Path.home() / ".cache"
    environ["XDG_CACHE_HOME"] = str(home)
    argv = [sys.executable, "-m", "swarm", "eval", *words, "--out", "run"]
    done = subprocess.run(argv, capture_output=True, text=True, cwd=folder, env=environ, timeout=400, check=False)
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads((folder / "run" / "report.json").read_bytes())
    return report


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("wanted", "limit"), [("humanevalfix", 5), ("mutants", 5)])
def test_the_reference_solves_all_of_a_shipped_set_and_nothing_solves_none(
    tmp_path: Path, wanted: str, limit: int
) -> None:
    words = (wanted, "--limit", str(limit), "--jobs", "2", "--strategy", "reference", "--strategy", "nothing")
    report = evaluated(tmp_path, *words)
    assert report["broken"] == report["blocked"] == []
    scores = {score["strategy"]: (score["solved"], score["tries"]) for score in report["scores"]}
    assert scores == {"reference": (limit, limit), "nothing": (0, limit)}


@pytest.mark.model
@pytest.mark.timeout(420)
def test_the_embedded_model_goes_the_same_way(tmp_path: Path) -> None:
    words = ("humanevalfix", "--embedded", "--limit", "3", "--strategy", "sampled_repair", "--wall", "90")
    report = evaluated(tmp_path, *words)
    (score,) = report["scores"]
    assert (score["tries"], score["broken"]) == (3, 0)
    assert set(score["endings"]) <= {"finished", "no_change", "limit_hit", "gave_up"}
    assert all(row["judged"] is not None for row in report["tries"])


@pytest.mark.browser
@pytest.mark.timeout(200)
def test_the_report_of_a_shipped_set_opens_in_a_browser(tmp_path: Path) -> None:
    report = evaluated(tmp_path, "humanevalfix", "--limit", "3", "--strategy", "reference", "--strategy", "nothing")
    log = tmp_path / "net.json"
    page = Page(browsed(tmp_path / "run" / "report.html", log))
    assert not asked_for(log)
    assert "3 of 3" in page.text
    assert {row["case"] for row in report["tries"]} == {"Python/0", "Python/2", "Python/4"}
    assert all(case in page.text for case in ("Python/0", "Python/2", "Python/4"))
    assert page.tags.count("svg") == 3, "no model, so no plot of tokens"
