"""`swarm eval` on the command line: what is wrong is told before anything runs; a run is whole or says why not."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from swarm.cli.app import main
from swarm.cli.evaluate import LIBRARIES, require
from swarm.cli.evaluation import Teller
from swarm.errors import ConfigError
from swarm.evaluation.results import Try
from swarm.transcripts import foreign

ROOT = Path(__file__).parents[3]
SWARM = [sys.executable, "-m", "swarm"]


REFERENCE = ("humanevalfix", "--limit", "1", "--strategy", "reference")
DEAD = '[[pool.endpoints]]\nname = "dead"\nurl = "http://127.0.0.1:9"\ntier = "quick"\nmodel = "x"\n'


@pytest.fixture
def away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A person without a swarm.toml, in a folder of their own."""
    monkeypatch.chdir(tmp_path)
    for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.delenv("SWARM_CONFIG", raising=False)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    return tmp_path


def test_the_sets_are_listed_with_where_they_come_from(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", "sets", "--json"]) == 0
    sets = {entry["name"]: entry for entry in json.loads(capsys.readouterr().out)}
    assert sets["humanevalfix"]["licence"] == "MIT"
    assert {"mutants", "quixbugs", "exercism", "harbor", "terminal-bench", "swe"} <= set(sets)


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["nowhere", "--strategy", "nothing"], 24, "nowhere"),
        (["--strategy", "nothing"], 3, "no set is named"),
        (["humanevalfix"], 3, "swarm.toml"),
        (["humanevalfix", "--embedded", "--strategy", "agnet"], 3, "agnet"),
        (["humanevalfix", "--strategy", "nothing", "--tier", "large"], 3, "no endpoint serves the tier 'large'"),
        (["humanevalfix", "--strategy", "nothing", "--only", "Python/none"], 24, "has no case 'Python/none'"),
        (["humanevalfix", "--strategy", "nothing", "--images", "none.json"], 3, "none.json"),
        (["humanevalfix", "--strategy", "nothing", "--baseline", "none"], 24, "holds no run"),
        (["--resume", "none"], 24, "none holds no run"),
        (["show", "none"], 24, "none holds no run"),
        (["humanevalfx"], 24, "there is no set 'humanevalfx' mend: did you mean humanevalfix?"),
        (["humanevalfix", "--strategy", "agnet"], 3, 'there is no strategy "agnet" mend: did you mean "agent"?'),
        (["humanevalfix", "--strategy", "refrence"], 3, 'did you mean "reference"?'),
        (["humanevalfix", "--strategy", "xyz"], 3, "reference, nothing"),
        (["humanevalfix", "--strategy", "best-of-17"], 3, "N of best-of-N is 1 to 16"),
        ([*REFERENCE, "--out", "/proc/x"], 24, "/proc/x cannot be written"),
        (["report", "none"], 24, "holds no run"),
        (["compare", "none", "other"], 24, "holds no run"),
        (["humanevalfix", "--jobs", "0"], 2, "jobs"),
    ],
)
def test_what_is_wrong_is_told_with_a_mend_before_anything_runs(
    away: Path, capsys: pytest.CaptureFixture[str], words: list[str], code: int, told: str
) -> None:
    assert main(["eval", *words]) == code
    said = capsys.readouterr().err
    assert told in " ".join(said.split())
    assert "Traceback" not in said
    assert code == 2 or "mend:" in said
    assert "is kept in" not in said
    assert not list(away.glob("swarm-eval/*/results.jsonl"))


def test_settings_of_the_current_folder_do_not_matter_where_no_model_is_asked(
    away: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (away / "swarm.toml").write_text("[")
    assert main(["eval", *REFERENCE, "--out", "/proc/x"]) == 24
    assert main(["eval", *REFERENCE[:3], "--out", "/proc/x"]) == 3
    assert "swarm.toml" in capsys.readouterr().err


def test_the_cases_of_a_set_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", "sets", "humanevalfix", "--limit", "2", "--json"]) == 0
    assert [case["id"] for case in json.loads(capsys.readouterr().out)] == ["Python/0", "Python/2"]
    assert main(["eval", "sets", "humanevalfix", "--limit", "2"]) == 0
    told = capsys.readouterr()
    assert "Repair has_close_elements" in told.out
    assert "these are the first 2" in told.err


def test_why_a_try_failed_is_told_whole_and_without_a_mend_cut_in_two(capsys: pytest.CaptureFixture[str]) -> None:
    why = f"no model answered: {'x' * 120}; mend: see what is wrong with each server: swarm pool doctor"
    teller = Teller(1)
    facts = {"case": "a", "strategy": "agent", "tier": "small", "number": 1, "key": "a", "ending": "infra_failed"}
    teller.hear(Try.model_validate(facts | {"outcome": "broken", "reason": why}))
    said = " ".join(capsys.readouterr().err.split())
    assert said.endswith("x" * 20)
    assert "mend" not in said


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_dead_servers_are_told_once_before_any_case_is_proved(away: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (away / "m.toml").write_text(DEAD)
    words = ["humanevalfix", "--limit", "3", "--strategy", "agent", "-c", "m.toml", "--out", "run"]
    assert main(["eval", *words]) == 8
    said = " ".join(capsys.readouterr().err.split())
    assert "3 cases, 3 tries; the run is kept in run" in said
    assert "nobody listens at http://127.0.0.1:9" in said
    assert "mend: see what is wrong with each server with: swarm pool doctor" in said
    assert not (away / "run" / "cases.jsonl").exists()
    assert json.loads((away / "run" / "run.json").read_bytes())["config"] == str(away / "m.toml")
    assert main(["eval", "--resume", "run"]) == 8, "it knows the settings that it was begun with"
    (away / "m.toml").unlink()
    assert main(["eval", "--resume", "run"]) == 3
    assert "the settings that the run was begun with, is not there" in " ".join(capsys.readouterr().err.split())


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_run_without_a_named_folder_is_left_out_of_git(away: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", *REFERENCE]) == 0
    assert (away / "swarm-eval" / ".gitignore").read_text() == "*\n"
    assert "1 case, 1 try;" in capsys.readouterr().err


def run(*words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*SWARM, "eval", *words], capture_output=True, text=True, check=False, cwd=folder, timeout=110
    )


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_run_its_report_and_two_runs_side_by_side(away: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def said(code: int, *words: str) -> tuple[str, str]:
        assert main(["eval", *words]) == code, capsys.readouterr().err
        told = capsys.readouterr()
        return told.out, " ".join(told.err.split())

    cases = ("humanevalfix", "--limit", "2", "--jobs", "2")
    report = json.loads(
        said(0, *cases, "--strategy", "reference", "--strategy", "nothing", "--out", "one", "--json")[0]
    )
    scores = [(score["strategy"], score["solved"], score["tries"]) for score in report["scores"]]
    assert scores == [("reference", 2, 2), ("nothing", 0, 2)]
    assert re.search(r"reference +2 of 2", said(0, "show", "one")[0])
    assert "[1/" not in said(0, "--resume", "one")[1], "nothing is tried again"
    other = said(0, *cases, "--strategy", "nothing", "--out", "two", "--baseline", "one")[0]
    assert "nothing: 0 of 2 against 0 of 2 of nothing in one" in other
    assert "0 of 2 against 0 of 2" in said(0, "compare", "one", "two")[0]
    assert "seed was 0 and is 5" in said(24, "--resume", "one", "--seed", "5")[1]
    assert json.loads(said(0, "report", "one", "--json")[0]) == report
    assert (away / "one" / "report.html").exists()
    for journal in away.glob("one/tries/*/journal.jsonl"):
        told = foreign.read(journal.read_bytes())
        assert told.end is not None
        assert told.header.strategy in {"reference", "nothing"}
        assert told.header.title


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_run_that_is_interrupted_leaves_a_report_and_goes_on(away: Path) -> None:
    words = ["humanevalfix", "--limit", "5", "--strategy", "reference", "--out", "run"]
    child = subprocess.Popen(
        [*SWARM, "eval", *words], cwd=away, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    results = away / "run" / "results.jsonl"
    until = time.monotonic() + 60
    while not (results.exists() and results.read_bytes()) and time.monotonic() < until:
        time.sleep(0.05)
    os.kill(child.pid, signal.SIGINT)
    _, said = child.communicate(timeout=60)
    assert child.returncode == 130, said
    assert "go on with: swarm eval --resume run" in " ".join(said.split())
    report = json.loads((away / "run" / "report.json").read_bytes())
    assert 1 <= report["made"] < report["planned"] == 5
    assert "were not made" in (away / "run" / "report.html").read_text()
    done = run("--resume", "run", folder=away)
    assert done.returncode == 0, done.stderr
    assert json.loads((away / "run" / "report.json").read_bytes())["made"] == 5


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_bounded_run_says_that_it_is_not_whole(away: Path) -> None:
    words = ("humanevalfix", "--limit", "200", "--strategy", "nothing", "--out", "run", "--total-wall", "4")
    done = run(*words, folder=away)
    assert done.returncode == 23, done.stderr
    assert "the run's 4 seconds are over" in " ".join(done.stderr.split())


def test_without_its_extra_it_says_what_to_install() -> None:
    require()
    with pytest.raises(ConfigError, match="needs no_such_library, which is not installed") as error:
        require((*LIBRARIES, "no_such_library"))
    assert error.value.mend == "pip install 'agent-swarm[eval]'"
