"""Every command through the real entry point, against a real broker and the daemon's real api."""

from __future__ import annotations

import json
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from swarm.cli import app
from swarm.config_file import VARIABLE
from swarm.types import TaskState

pytestmark = pytest.mark.slow

OUTCOMES = {
    "deliver": 0,
    "no_change": 10,
    "limit_hit": 11,
    "gave_up": 12,
    "checks_failed": 13,
    "infra_failed": 14,
    "refuse": 15,
    "fault": 16,
}
Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _here(installation, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands in this process find the installation as a person's shell would let them."""
    for name, value in installation.env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv(VARIABLE, str(installation.config))


def submitted(capsys: Capture, *words: str) -> dict[str, object]:
    assert app.main(["submit", *words, "--json"]) == 0, capsys.readouterr().err
    made = json.loads(capsys.readouterr().out)
    assert isinstance(made, dict)
    return made


@pytest.mark.parametrize(("word", "code"), OUTCOMES.items())
def test_waiting_ends_with_the_code_of_the_outcome(capsys: Capture, word: str, code: int) -> None:
    assert app.main(["submit", f"{word} it", "--wait"]) == code
    shown = capsys.readouterr()
    assert "\x1b" not in shown.out + shown.err
    state = next(state for state in TaskState if state.final and app_code(state) == code)
    assert f" {state.value}: " in shown.out
    assert "▸ work" in shown.out


def app_code(state: TaskState) -> int:
    return {"delivered": 0, "cancelled": 17, "refused": 15, "needs_person": 16}.get(
        state.value, OUTCOMES.get(state.value, -1)
    )


def test_the_capability_is_the_brokers_and_the_base_its_commit(capsys: Capture) -> None:
    request = submitted(capsys, "deliver", "--repo", "sample")["task"]["request"]  # type: ignore[index]
    assert len(request["base_commit"]) == 40
    assert request["base"] == "main"
    assert not request["capability"]  # held by the daemon, shown to nobody


def test_options_and_a_file_make_one_request(capsys: Capture, tmp_path: Path) -> None:
    file = tmp_path / "task.md"
    file.write_text('+++\ntitle = "From file"\n[budget]\nsteps = 7\ntokens = 70\n+++\ndeliver from file\n')
    task = submitted(capsys, "--file", str(file), "--max-steps", "3", "--path", "a.py", "--path", "b/c.py")["task"]
    assert task["request"]["instructions"] == "deliver from file"  # type: ignore[index]
    assert task["request"]["paths"] == ["a.py", "b/c.py"]  # type: ignore[index]
    given = {name: limit for name, limit in task["budget"].items() if limit is not None}  # type: ignore[index]
    assert given == {"steps": 3, "tokens": 70, "wall": 1800.0, "attempts": 2}


def test_an_agent_of_others_is_a_strategy(capsys: Capture) -> None:
    task = submitted(capsys, "deliver by another", "--agent", "aider")["task"]
    assert task["request"]["strategy"] == "cli:aider"  # type: ignore[index]


def test_two_ways_to_work_are_refused(capsys: Capture) -> None:
    assert app.main(["submit", "deliver", "--agent", "aider", "--strategy", "agent"]) == 7
    assert "two ways to work" in capsys.readouterr().err


def test_the_same_key_gives_the_same_task(capsys: Capture) -> None:
    one, two = (submitted(capsys, "deliver", "--idempotency-key", "nightly")["task"] for _ in range(2))
    assert one["id"] == two["id"]  # type: ignore[index]


def test_a_capability_of_ones_own_is_taken(installation, capsys: Capture, tmp_path: Path) -> None:
    held = tmp_path / "capability"
    held.write_text("from elsewhere\n")
    words = ["--capability", f"@{held}", "--base-commit", "2" * 40, "--task-id", "mine-1"]
    task = submitted(capsys, "deliver", *words)["task"]
    assert task["id"] == "mine-1"  # type: ignore[index]
    assert "from elsewhere" not in str(task)
    with closing(sqlite3.connect(installation.folder / "state" / "swarm.db")) as store:
        (request,) = store.execute("select request from tasks where id = 'mine-1'").fetchone()
    assert json.loads(request)["capability"] == "from elsewhere"


@pytest.mark.parametrize(
    "words",
    [["--capability", "x"], ["--base-commit", "2" * 40], ["--capability", "x", "--base-commit", "y", "--task-id", "z"]],
)
def test_half_a_capability_is_refused(capsys: Capture, words: list[str]) -> None:
    assert app.main(["submit", "deliver", *words]) == 7
    assert "mend: " in capsys.readouterr().err


def test_words_come_from_standard_input(installation) -> None:
    ran = installation.run("submit", "-", "--json", stdin="deliver from a pipe")
    assert ran.code == 0, ran.err
    assert json.loads(ran.out)["task"]["request"]["instructions"] == "deliver from a pipe"


def test_list_show_and_a_short_id(capsys: Capture) -> None:
    task = str(submitted(capsys, "deliver listed")["task"]["id"])  # type: ignore[index]
    assert app.main(["list", "--limit", "5"]) == 0
    assert task in capsys.readouterr().out
    assert app.main(["list", "--json"]) == 0
    assert task in [one["task"]["id"] for one in json.loads(capsys.readouterr().out)]
    assert app.main(["follow", task]) == 0
    capsys.readouterr()
    assert app.main(["show", task[:-1]]) == 0
    assert "pull request sample#1" in capsys.readouterr().out
    assert app.main(["show", task, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["state"] == "delivered"
    assert app.main(["list", "--state", "cancelled", "--json"]) == 0
    assert task not in capsys.readouterr().out


def test_follow_in_json_is_one_object_a_line(capsys: Capture) -> None:
    task = str(submitted(capsys, "gave_up")["task"]["id"])  # type: ignore[index]
    assert app.main(["follow", task, "--json"]) == 12
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["type"] for line in lines] == ["step"] * (len(lines) - 1) + ["task"]
    assert [line["seq"] for line in lines[:-1]] == list(range(1, len(lines)))
    assert lines[-1]["state"] == "gave_up"


def test_waiting_in_json_is_one_object_a_line(capsys: Capture) -> None:
    assert app.main(["submit", "no_change", "--wait", "--json"]) == 10
    assert {json.loads(line)["type"] for line in capsys.readouterr().out.splitlines()} == {"step", "task"}


def test_logs_are_numbered_and_cleaned(capsys: Capture) -> None:
    task = str(submitted(capsys, "deliver logged")["task"]["id"])  # type: ignore[index]
    assert app.main(["follow", task]) == 0
    capsys.readouterr()
    assert app.main(["logs", task]) == 0
    out = capsys.readouterr().out
    assert out.startswith("    1  ")
    assert "working" in out
    assert "evil" not in out
    assert app.main(["logs", task, "--after", "3", "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[0])["seq"] == 4


def test_cancel_and_retry(capsys: Capture) -> None:
    task = str(submitted(capsys, "hold on")["task"]["id"])  # type: ignore[index]
    assert app.main(["cancel", task]) == 0
    assert f"task {task} cancelled" in capsys.readouterr().out
    assert app.main(["follow", task]) == 17
    capsys.readouterr()
    assert app.main(["retry", task, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["state"] in {"queued", "running"}
    assert app.main(["cancel", task]) == 0


def test_a_delivered_task_is_not_retried(capsys: Capture) -> None:
    task = str(submitted(capsys, "deliver once")["task"]["id"])  # type: ignore[index]
    assert app.main(["follow", task]) == 0
    capsys.readouterr()
    assert app.main(["retry", task]) == 7
    err = capsys.readouterr().err
    assert "delivered" in err
    assert "mend: " in err


def test_a_diff_is_cleaned_unless_asked_raw(capsys: Capture) -> None:
    task = str(submitted(capsys, "deliver diff")["task"]["id"])  # type: ignore[index]
    assert app.main(["diff", task]) == 0
    assert capsys.readouterr().out == "--- a/x\n+++ b/x\n+red\n"
    assert app.main(["diff", task, "--raw"]) == 0
    assert "\x1b[31m" in capsys.readouterr().out
    assert app.main(["diff", task, "--json"]) == 0
    assert "\\u001b[31m" in capsys.readouterr().out


def test_salvage_is_listed_for_what_was_not_delivered(capsys: Capture) -> None:
    assert app.main(["submit", "checks_failed", "--wait"]) == 13
    capsys.readouterr()
    assert app.main(["salvage", "list"]) == 0
    assert "checks_failed" in capsys.readouterr().out
    assert app.main(["salvage", "list", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found
    assert all(one["ref"].startswith("refs/salvage/") and one["state"] != "delivered" for one in found)


def test_status_and_pool_status(capsys: Capture) -> None:
    assert app.main(["status"]) == 0
    out = capsys.readouterr().out
    assert "bwrap (0.8), 1 claims proved" in out
    assert "\x1b" not in out
    assert app.main(["status", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["workers"] == 4


def test_the_view_on_time(capsys: Capture) -> None:
    started = time.thread_time()
    assert app.main(["list"]) == 0
    assert time.thread_time() - started < 2
    capsys.readouterr()


def waited(capsys: Capture) -> str:
    """The id of a task that was delivered."""
    assert app.main(["submit", "deliver it", "--wait", "--json"]) == 0
    return str(json.loads(capsys.readouterr().out.splitlines()[0])["task"])


def test_where_the_time_of_a_task_went_sums_up_to_its_wall_clock(capsys: Capture) -> None:
    task = waited(capsys)
    assert app.main(["time", task, "--json"]) == 0
    times = json.loads(capsys.readouterr().out)["times"]
    assert times["seconds"] == pytest.approx(sum(part["seconds"] for part in times["parts"]))
    assert app.main(["time", task]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"task {task} delivered, ")
    assert "queued" in shown


def test_where_the_time_of_all_tasks_went_is_told_by_day(capsys: Capture) -> None:
    waited(capsys)
    assert app.main(["time", "--days", "2", "--repository", "sample", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["by_day"]) >= 1
    assert app.main(["time"]) == 0
    assert "all tasks, 7 days" in capsys.readouterr().out
    assert app.main(["time", "--repository", "nobody"]) == 0
    assert "no task of nobody did anything" in capsys.readouterr().err


def test_a_task_that_is_not_there_took_no_time(capsys: Capture) -> None:
    assert app.main(["time", "nothing"]) == 6
    assert "there is no task nothing" in capsys.readouterr().err


def test_what_was_spent_today_is_shown_even_where_nothing_is_limited(capsys: Capture) -> None:
    assert app.main(["budget"]) == 0
    shown = capsys.readouterr()
    assert "fleet" in shown.out
    assert "no budget is set for a day" in shown.err
    assert app.main(["budget", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["scopes"][0]["scope"] == "fleet"
