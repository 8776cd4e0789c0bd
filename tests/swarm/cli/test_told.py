"""Journal lines and tasks in words: every kind has a sentence, odd data breaks none of them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarm.cli import view
from swarm.cli.told import _SENTENCES, told
from swarm.types import Attempt, Budget, CheckReport, Spent, Step, Task, TaskRequest, TaskState, TaskView, TestRun

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
KEYS = sorted(
    {"from", "to", "reason", "seconds", "argv", "text", "files", "left_out", "findings", "fixed", "exit_code", "tier"}
    | {"number", "ok", "phase", "cached_tokens", "prompt_tokens", "model", "what", "why", "mend", "ref"}
)


def step(kind: str, **data: Any) -> Step:
    return Step(task="t1", attempt=None, seq=1, at=0.0, kind=kind, data=data)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (step("state", **{"from": "queued", "to": "running", "reason": "claimed"}), "queued → running: claimed"),
        (step("attempt", number=2, tier="fast", strategy="agent"), "attempt 2: agent on tier fast"),
        (step("phase_started", phase="work"), "▸ work"),
        (step("phase_ended", phase="work", seconds=1.25, ok=False), "work failed, 1.2 s"),
        (
            step("model_call", model="m", endpoint="e", prompt_tokens=9, completion_tokens=4, cached_tokens=8),
            "9 (8 cached) → 4",
        ),
        (step("command", argv=["pytest", "-k", "a b"], exit_code=1), "$ pytest -k 'a b' → exit 1"),
        (step("candidate", file="a.py", line=3, old="x", new="y", passed=True), "tried a.py:3: x → y: tests pass"),
        (step("candidate", score=1), "tried a repair: score=1"),
        (step("edit", path="a.py"), "edited a.py"),
        (step("sealed", files=["a", "b"], left_out=["x"]), "sealed 2 changed files: a, b; left out 1"),
        (step("report", verdict="passed", fixed=["t"], broken=[]), "checks passed: 1 mended, 0 broken"),
        (
            step("report", verdict="passed", fixed=[], broken=[], weakened=[{"path": "t"}], flaky=["u", "v"]),
            "checks passed: 0 mended, 0 broken, 1 weakened, 2 flaky",
        ),
        (
            step("command", tool="run_tests", text="make test", exit_code=0),
            "the agent's own run of the tests: make test → exit 0",
        ),
        (
            step("known", known={"guides": [{"path": "AGENTS.md", "text": "x"}]}, test_command="make"),
            "told of the repository: AGENTS.md; tests: make",
        ),
        (step("known", known={}), "told of the repository: no guides"),
        (step("receipt", number=7, branch="swarm/x", pull_request="local#7"), "pull request 7 on swarm/x: local#7"),
        (step("refusal", findings=[{"message": "too big"}]), "the broker refused: too big"),
        (step("fault", what="engine", why="gone", mend="start it"), "engine: gone; mend: start it"),
        (step("new_kind", x=1, y=[1, 2]), "new_kind x=1 y=2 items"),
        (step("note", text="set-up done and kept", seconds=61.234), "set-up done and kept, 61.2 s"),
        (step("note", text="\x1b[31mred\x1b[0m\nnext"), "red next"),
    ],
)
def test_each_kind_has_its_sentence(line: Step, words: str) -> None:
    assert words in told(line)


def test_what_an_agent_printed_stays_in_lines_and_steers_no_terminal() -> None:
    first, second = told(step("output", text="\x1b[2Jone\ntwo " + "x" * 500)).splitlines()
    assert first.endswith("  │ one")
    assert second.endswith("…")
    assert len(second) < 200


@settings(deadline=None)  # a busy machine is no failure
@given(st.sampled_from(sorted(_SENTENCES)), st.dictionaries(st.sampled_from(KEYS), JSON, max_size=6))
def test_odd_data_breaks_no_sentence(kind: str, data: dict[str, Any]) -> None:
    line = told(step(kind, **data))
    assert "\n" not in line
    assert "\x1b" not in line


def task(state: TaskState = TaskState.CHECKS_FAILED, **more: Any) -> TaskView:
    request = TaskRequest(repository="web", instructions="Do\x1b[31m it.\nNow.", paths=("a.py",), test_command="pytest")
    return TaskView(task=Task(id="t1", request=request, budget=Budget(), created=0.0), state=state, **more)


def test_a_summary_names_what_was_kept_and_why() -> None:
    attempt = Attempt(id="a", task="t1", number=1, tier="fast", strategy="agent", started=0.0, salvage="refs/salvage/a")
    report = CheckReport(
        base=TestRun(command="pytest", exit_code=1, passed=("a",), failed=("b",)),
        proposal=TestRun(command="pytest", exit_code=1, timed_out=True),
        broken=("a",),
        verdict="failed",
    )
    text = "\n".join(view.summary(task(reason="tests fail", attempts=(attempt,), report=report, spent=Spent(steps=3))))
    assert text.startswith("task t1 checks_failed: tests fail")
    assert "refs/salvage/a" in text
    assert "failed; before 1 passed, 1 failed, after timed out (1 broken)" in text
    assert "3 steps" in text


@pytest.mark.parametrize(
    ("state", "stand"),
    [(TaskState.RUNNING, "running"), (TaskState.QUEUED, "queued"), (TaskState.PAUSED, "paused")],
)
def test_an_attempt_without_an_end_stands_as_its_task_does(state: TaskState, stand: str) -> None:
    ended = Attempt(id="a", task="t1", number=1, tier="f", strategy="agent", started=0.0, ended=1.0, ending="gave_up")
    last = ended.model_copy(update={"id": "b", "number": 2, "ended": None, "ending": None})
    lines = [line.split() for line in view.whole(task(state, attempts=(ended, last))) if "attempt " in line]
    assert [line[2].rstrip(",") for line in lines if line[0] == "attempt"] == ["gave_up", stand]


def test_a_bad_end_says_whose_doing_it_was_and_what_it_cost() -> None:
    spent = Spent(steps=3, gpu_seconds=12.5, money=0.25)
    text = "\n".join(view.summary(task(reason="full", failure="model", spent=spent)))
    assert "model" in text
    assert "12.5 GPU-seconds, 0.25 of money" in text


def test_what_the_agent_was_told_of_its_budget_is_one_line() -> None:
    line = told(step("budget", text="[50% of your turns is spent; left: 5 turns. Plan what is left accordingly.]"))
    assert line.endswith("budget: 50% of your turns is spent; left: 5 turns. Plan what is left accordingly.")


def test_a_delivered_task_names_its_pull_request() -> None:
    text = "\n".join(view.summary(task(TaskState.DELIVERED, pull_request="local#1", branch="swarm/t1")))
    assert "local#1" in text
    assert "swarm/t1" in text


def test_the_whole_task_is_cleaned() -> None:
    text = "\n".join(view.whole(task()))
    assert "\x1b" not in text
    assert "    Now." in text
    assert view.title(task()) == "Do it."


def test_numbers_are_short() -> None:
    assert [view.amount(n) for n in (999, 1500, 400_000)] == ["999", "1.5k", "400k"]
    assert [view.seconds(n) for n in (1.0, 90.0, 7200.0)] == ["1.0 s", "1.5 min", "2.0 h"]
    assert [view.age(n) for n in (-1, 59, 3600, 200_000)] == ["0s", "59s", "1h", "2d"]
