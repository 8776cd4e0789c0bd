"""Batches, the queue, schedules and breakers from the command line, against a real broker and the daemon's real api."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from swarm.cli import app
from swarm.config_file import VARIABLE

pytestmark = pytest.mark.slow

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _here(installation, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in installation.env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv(VARIABLE, str(installation.config))


def ran(capsys: Capture, *words: str, code: int = 0) -> tuple[str, str]:
    assert app.main(list(words)) == code, capsys.readouterr()
    told = capsys.readouterr()
    return told.out, told.err


def batch(folder: Path, *lines: object) -> str:
    path = folder / f"b{os.urandom(4).hex()}.jsonl"
    path.write_text("\n".join(json.dumps(one) if isinstance(one, dict) else str(one) for one in lines))
    return str(path)


def task(word: str = "deliver", **more: object) -> dict[str, object]:
    return {"repository": "sample", "instructions": word, **more}


def test_a_batch_twice_makes_nothing_twice_and_is_waited_for_to_its_end(capsys: Capture, tmp_path: Path) -> None:
    """gabrielkoerich/orch#1662: eleven identical issues came of one run that was repeated."""
    path = batch(tmp_path, task(id="a"), task("no_change", needs=["a"]), task())
    first = json.loads(ran(capsys, "submit", "--file", path, "--wait", "--json")[0])
    assert (len(first["new"]), first["known"], first["bad"]) == (3, [], [])
    assert first["counts"] == {"delivered": 2, "no_change": 1}
    again = json.loads(ran(capsys, "submit", "--file", path, "--json")[0])
    assert (again["new"], sorted(again["known"])) == ([], sorted(first["new"]))
    shown = json.loads(ran(capsys, "status", "--batch", Path(path).name, "--json")[0])
    assert len(shown["tasks"]) == 3


@pytest.mark.parametrize("piped", [False, True])
def test_a_line_of_a_known_name_that_says_something_else_is_told_and_not_dropped(installation, piped: bool) -> None:
    def handed_in(name: str, *lines: object, keep: str = "--json") -> tuple[int, str]:
        said = batch(installation.folder, *lines)
        source, text = ("-", Path(said).read_text()) if piped else (said, "")
        ran_ = installation.run("submit", "--file", source, "--batch", name, keep, stdin=text)
        return ran_.code, ran_.out + ran_.err

    name = f"n{os.urandom(4).hex()}"
    assert handed_in(name, task(id="a"))[0] == 0
    assert handed_in(name, task(id="a"))[0] == 0
    code, told = handed_in(name, task("no_change", id="a"), task(id="b"))
    assert code == 7
    assert "line 1: is task" in told
    assert "something else" in told
    code, told = handed_in(name, task("no_change", id="a"), task(id="b"), keep="--keep-going")
    assert (code, "1 of them new; 1 line could not" in told) == (7, True), told
    assert handed_in(f"{name}2", task("no_change", id="a"))[0] == 0


def test_a_batch_without_a_task_is_refused(capsys: Capture, tmp_path: Path) -> None:
    assert app.main(["submit", "--file", batch(tmp_path, "", "# nothing yet")]) == 3
    assert "there is no task in it" in capsys.readouterr().err


def test_the_exit_code_tells_how_a_batch_ended(capsys: Capture, tmp_path: Path) -> None:
    path = batch(tmp_path, task(), task("gave_up"))
    out, _ = ran(capsys, "submit", "--file", path, "--wait", code=12)
    assert "1 delivered" in out
    assert "1 gave_up" in out
    ran(capsys, "status", "--batch", Path(path).name, code=12)


@pytest.mark.parametrize("bad", ["{", {"instructions": "x", "repository": "nowhere"}, task(needs=["nothing"], x=1)])
def test_one_wrong_line_and_nothing_is_handed_in(capsys: Capture, tmp_path: Path, bad: object) -> None:
    path = batch(tmp_path, task(), bad)
    assert app.main(["submit", "--file", path]) in {3, 7}
    told = capsys.readouterr().err
    assert "line 2" in told
    assert "so none was" in told
    ran(capsys, "status", "--batch", Path(path).name, code=6)
    out = json.loads(ran(capsys, "submit", "--file", path, "--keep-going", "--json", code=7)[0])
    assert (len(out["new"]), [one["line"] for one in out["bad"]]) == (1, [2])


def test_every_fault_of_a_batch_is_told_in_the_order_of_its_lines(capsys: Capture, tmp_path: Path) -> None:
    ring = task(id="r", needs=["r"])
    after = task(needs=["u"])
    path = batch(tmp_path, task(repository="nowhere"), task(needs=["nothing"], id="u"), "{", ring, task(), after)
    assert app.main(["submit", "--file", path]) in {3, 7}
    told = capsys.readouterr().err
    places = [told.index(f"line {number}: ") for number in (1, 2, 3, 4)]
    assert places == sorted(places)
    assert "it needs nothing, and there is no such task" in told
    assert "4 lines cannot be handed in, so none was" in told
    out = json.loads(ran(capsys, "submit", "--file", path, "--keep-going", "--json", code=7)[0])
    assert (len(out["new"]), [one["line"] for one in out["bad"]]) == (1, [1, 2, 3, 4, 6])


@pytest.mark.slow
def test_lines_of_standard_input_are_taken_as_they_come(installation) -> None:
    lines = "\n".join(json.dumps(task(number=1) if number == 1 else task()) for number in range(2))
    ran_ = installation.run("submit", "--file", "-", "--batch", "piped", stdin=lines)
    assert ran_.code == 7
    assert "line 2" in ran_.err


def test_a_schedule_from_its_beginning_to_its_end(capsys: Capture) -> None:
    add = ["schedule", "add", "tidy", "deliver", "--cron", "0 3 * * *", "--repo", "sample", "--tasks", "3", "--json"]
    made = json.loads(ran(capsys, *add)[0])
    assert (made["enabled"], made["uses"], made["request"]["capability"]) == (True, 3, "")
    assert made["next"] is not None
    assert json.loads(ran(capsys, *add)[0])["created"] == made["created"]
    run = json.loads(ran(capsys, "schedule", "run", "tidy", "--json")[0])
    assert run["task"]["id"].startswith("stidy-")
    assert json.loads(ran(capsys, "schedule", "show", "tidy", "--json")[0])["fired"] == 1
    assert "off" in ran(capsys, "schedule", "pause", "tidy")[0]
    assert json.loads(ran(capsys, "schedule", "resume", "tidy", "--tasks", "5", "--json")[0])["uses"] == 6
    assert "tidy" in ran(capsys, "schedule", "list")[0]
    ran(capsys, "schedule", "remove", "tidy")
    ran(capsys, "schedule", "show", "tidy", code=6)


@pytest.mark.parametrize("cron", ["hourly", "99 * * * *", "0 0 30 2 *"])
def test_a_schedule_that_could_never_run_is_refused_before_the_broker_is_asked(capsys: Capture, cron: str) -> None:
    words = ["schedule", "add", "odd", "deliver", "--cron", cron, "--repo", "sample"]
    assert "no cron expression" in ran(capsys, *words, code=7)[1]


def test_the_queue_and_its_breakers_are_shown(capsys: Capture) -> None:
    out, _ = ran(capsys, "queue")
    assert "in the queue" in out
    assert json.loads(ran(capsys, "queue", "--json")[0])["queued"] >= 0
    ran(capsys, "breaker", "reset", "repository:none", code=6)


def test_a_task_that_needs_another_gets_its_right_when_it_starts(capsys: Capture) -> None:
    first = json.loads(ran(capsys, "submit", "deliver", "--repo", "sample", "--json")[0])["task"]["id"]
    words = ["submit", "deliver", "--repo", "sample", "--needs", first, "--priority", "70", "--mutex", "m", "--json"]
    made = json.loads(ran(capsys, *words)[0])["task"]["request"]
    assert (made["needs"], made["standing"], made["priority"], made["mutex"]) == ([first], True, 70, "m")
    assert ran(capsys, "submit", "x", "--repo", "sample", "--needs", "nowhere", code=7)[1].count("nowhere") == 1
