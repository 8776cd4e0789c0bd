"""What a person does to a task under way, through the real entry point, a real broker and the daemon's real api."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytestmark = pytest.mark.slow


def submitted(swarm: Any, words: str, *options: str) -> str:
    made = swarm("submit", words, *options, "--json")
    assert made.code == 0, made.err
    return str(json.loads(made.out)["task"]["id"])


def state(swarm: Any, task: str) -> str:
    return str(json.loads(swarm("show", task, "--json").out)["state"])


def test_a_task_is_paused_told_something_resumed_and_cancelled(swarm: Any) -> None:
    task = submitted(swarm, "hold on")
    paused = swarm("pause", task)
    assert paused.code == 0, paused.err
    assert f"task {task} paused" in paused.out
    assert swarm("pause", task).code == 0
    told = swarm("message", task, "mind the \x1b[31mtests", "--json")
    assert json.loads(told.out)["text"].startswith("mind the")
    assert "\x1b" not in swarm("message", task, "once more").out
    assert swarm("resume", task).code == 0
    assert state(swarm, task) in {"queued", "running"}
    assert swarm("cancel", task).code == 0
    assert swarm("pause", task).code == 7


def test_only_what_waits_takes_another_priority(swarm: Any) -> None:
    task = submitted(swarm, "hold on")
    assert swarm("pause", task).code == 0
    refused = swarm("priority", task, "80")
    assert refused.code == 7
    assert "only one that waits in the queue" in refused.err
    assert swarm("priority", task, "101").code == 2
    waits = submitted(swarm, "deliver later", "--needs", task)
    assert [swarm("priority", waits, "80").code for _ in range(2)] == [0, 0]
    assert {each["task"]: each["priority"] for each in json.loads(swarm("queue", "--json").out)["entries"]}[waits] == 80
    assert swarm("cancel", task).code == 0


def test_what_is_said_to_a_task_may_come_by_standard_input(installation: Any, swarm: Any) -> None:
    task = submitted(swarm, "hold on")
    piped = installation.run("message", task, "-", "--json", stdin="mind the file\n")
    assert piped.code == 0, piped.err
    assert json.loads(piped.out)["text"].startswith("mind the file")
    assert installation.run("message", task, "-", stdin="").code == 7
    assert swarm("cancel", task).code == 0


def test_a_retry_brings_a_new_right_along_where_it_is_asked_for(swarm: Any) -> None:
    task = submitted(swarm, "gave_up at once", "--idempotency-key", "verbs-retry")
    assert swarm("follow", task).code == 12
    renewed = swarm("retry", task, "--renew", "--json")
    assert renewed.code == 0, renewed.err
    assert json.loads(renewed.out)["task"]["request"]["capability"] == ""
    both = swarm("retry", task, "--renew", "--capability", "x")
    assert both.code == 7
    assert "name one of them" in both.err


def test_a_fork_is_a_task_of_its_own_that_goes_on_from_another(swarm: Any) -> None:
    task = submitted(swarm, "gave_up soon", "--idempotency-key", "verbs-fork")
    assert swarm("follow", task).code == 12
    made = swarm("fork", task, "mind the \x1b[31mtests", "--title", "Another way", "--json")
    assert made.code == 0, made.err
    fork = json.loads(made.out)["task"]
    assert fork["id"] != task
    assert fork["request"]["title"] == "Another way"
    assert fork["request"]["instructions"] == "gave_up soon"
    assert swarm("follow", fork["id"]).code == 12
    shown = json.loads(swarm("show", fork["id"], "--json").out)
    assert shown["reason"]
    (first,) = [line for line in swarm("follow", fork["id"], "--json").out.splitlines() if '"continues"' in line]
    assert json.loads(swarm("show", task, "--json").out)["attempts"][-1]["id"] in first


def test_a_fork_with_a_right_that_was_granted_before_may_be_said_twice(swarm: Any) -> None:
    task = submitted(swarm, "gave_up soon", "--idempotency-key", "verbs-fork-twice")
    assert swarm("follow", task).code == 12
    words = ("fork", task, "--task-id", "tfork2", "--capability", "granted-before", "--json")
    first, second = swarm(*words), swarm(*words)
    assert (first.code, second.code) == (0, 0), second.err
    assert json.loads(first.out)["task"]["id"] == json.loads(second.out)["task"]["id"] == "tfork2"
    other = swarm(*words, "--step", "1")
    assert other.code == 7
    assert "goes on from elsewhere" in other.err


def test_who_may_call_is_told_and_a_token_is_shown_once(swarm: Any) -> None:
    made = swarm("token", "add", "robot", "--role", "viewer", "--per-minute", "7", "--json")
    secret = json.loads(made.out)["token"]
    assert secret.startswith("swarm_")
    listed = swarm("token", "list")
    assert "robot" in listed.out
    assert secret not in listed.out + swarm("token", "list", "--json").out
    assert swarm("token", "add", "robot").code == 3
    assert swarm("token", "add", "no name").code == 3
    assert swarm("token", "revoke", "robot").code == 0
    gone = swarm("token", "revoke", "robot")
    assert gone.code == 6
    assert "swarm token list" in gone.err


def test_a_key_that_made_another_task_is_refused_on_the_command_line_too(swarm: Any) -> None:
    first = submitted(swarm, "gave_up here", "--idempotency-key", "verbs-key")
    assert submitted(swarm, "gave_up here", "--idempotency-key", "verbs-key") == first
    other = swarm("submit", "something else", "--idempotency-key", "verbs-key")
    assert other.code == 7
    assert "asks for something else" in other.err


def test_a_word_to_no_task_is_told_with_the_mend(swarm: Any) -> None:
    for words in (("pause", "nobody"), ("resume", "nobody"), ("message", "nobody", "x"), ("fork", "nobody")):
        ran = swarm(*words)
        assert ran.code == 6, (words, ran.err)
        assert "mend" in ran.err


def test_mcp_of_another_machine_needs_a_token_and_tells_so(swarm: Any, tmp_path: Any) -> None:
    for words, told in (
        (("--url", "https://swarm.example:1"), "--token-file"),
        (("--token-file", str(tmp_path / "none")), "belong to --url"),
        (("--url", "https://swarm.example:1", "--token-file", str(tmp_path / "none")), "token alone"),
    ):
        ran = swarm("mcp", *words)
        assert ran.code == 3, ran.err
        assert told in ran.err
