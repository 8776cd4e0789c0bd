"""Log lines: one object each, told what they are about, without secrets and without a model's tricks on a terminal."""

from __future__ import annotations

import asyncio
import io
import json
import logging

import pytest

from swarm.telemetry.logs import LONGEST, JsonFormatter, TextFormatter, about
from swarm.telemetry.redaction import STRUCK, Redactor
from swarm.telemetry.spans import trace_id


def logger(formatter: logging.Formatter) -> tuple[logging.Logger, io.StringIO]:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(formatter)
    made = logging.Logger("swarm.test")  # noqa: LOG001  one that no other test hears of
    made.addHandler(handler)
    return made, stream


def test_a_line_is_one_object_that_names_task_and_trace() -> None:
    log, stream = logger(JsonFormatter(Redactor(), "box"))
    with about(task="t1", attempt="t1-1"):
        log.warning("it %s\nand went on", "stopped")
    told = json.loads(stream.getvalue())
    assert stream.getvalue().count("\n") == 1
    assert (told["task"], told["attempt"], told["host"], told["level"]) == ("t1", "t1-1", "box", "warning")
    assert told["trace_id"] == f"{trace_id('t1'):032x}"
    assert told["message"] == "it stopped\nand went on"
    assert told["time"].endswith("Z")


def test_secrets_are_struck_in_messages_and_in_tracebacks() -> None:
    for formatter in (JsonFormatter(Redactor(["hunter2hunter2"]), "box"), TextFormatter(Redactor(["hunter2hunter2"]))):
        log, stream = logger(formatter)
        try:
            int("hunter2hunter2")
        except ValueError:
            log.exception("failed: %s", "hunter2hunter2")
        assert "hunter2" not in stream.getvalue()
        assert STRUCK in stream.getvalue()


def test_a_model_cannot_turn_the_terminal_around_or_fake_a_line_of_its_own() -> None:
    log, stream = logger(TextFormatter(Redactor()))
    log.info("a\x1b[2Jb\u202ec\rd")
    assert not set("\x1b\u202e\r") & set(stream.getvalue())


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r", "\x0b", "\x0c", "\x85", "\u2028", "\u2029", "\x1c"])
def test_no_message_writes_a_line_that_looks_like_one_of_the_logs_own(end: str) -> None:
    log, stream = logger(TextFormatter(Redactor()))
    forged = "2026-11-30 10:00:00,000 CRITICAL swarm.daemon: the daemon was taken over"
    log.warning("schedule %s: %s", "a", f"x{end}{forged}")
    try:
        {}[f"x{end}{forged}"]
    except KeyError as error:
        error.add_note(f"x{end}{forged}")
        log.exception("failed")
    lines = stream.getvalue().splitlines()
    assert not [line for line in lines if line.startswith("2026-11-30 10:00:00,000")]
    assert [line for line in lines if not line.startswith(" ")] == [lines[0], next(x for x in lines if "failed" in x)]
    assert "    Traceback (most recent call last):" in lines


def test_an_endless_message_is_cut() -> None:
    log, stream = logger(TextFormatter(Redactor()))
    log.info("x y " * LONGEST)
    assert len(stream.getvalue()) < LONGEST + 200


async def test_what_a_line_is_about_is_kept_apart_between_tasks_of_the_loop() -> None:
    log, stream = logger(JsonFormatter(Redactor(), ""))

    async def say(name: str) -> None:
        with about(task=name):
            await asyncio.sleep(0)
            log.info("%s", name)

    await asyncio.gather(*(say(f"t{number}") for number in range(5)))
    told = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert all(each["task"] == each["message"] for each in told)
    assert len(told) == 5
