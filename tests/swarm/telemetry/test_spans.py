"""A journal becomes one trace: the tree, the times, the conventions' names, and nothing of what was said."""

from __future__ import annotations

from typing import Any

from opentelemetry.semconv._incubating.attributes import gen_ai_attributes as conventions

from swarm.telemetry.spans import Span, Tracker, trace_id
from swarm.types import Step


def spans(lines: tuple[Step, ...], tracker: Tracker | None = None) -> list[Span]:
    tracker = tracker or Tracker("box")
    return [span for line in lines for span in tracker.heard(line)]


def test_the_journal_of_a_task_is_one_tree_of_spans(story: tuple[Step, ...]) -> None:
    found = {span.name: span for span in spans(story)}
    assert set(found) == {"chat qwen", "execute_tool run", "work", "invoke_agent", "task"}
    assert {span.trace for span in found.values()} == {trace_id("t1")}
    assert found["task"].parent == 0
    assert found["invoke_agent"].parent == found["task"].id
    assert found["work"].parent == found["invoke_agent"].id
    assert found["chat qwen"].parent == found["execute_tool run"].parent == found["work"].id
    assert len({span.id for span in found.values()}) == 5


def test_spans_take_as_long_as_what_they_tell_of(story: tuple[Step, ...]) -> None:
    times = {span.name: (span.start, span.end) for span in spans(story)}
    assert times == {
        "task": (100, 130),
        "invoke_agent": (104, 130),
        "work": (105, 120),
        "chat qwen": (106, 110),
        "execute_tool run": (111, 113),
    }


def test_attributes_are_those_of_the_conventions_and_words_stay_out(story: tuple[Step, ...]) -> None:
    known = {getattr(conventions, name) for name in dir(conventions) if name.startswith("GEN_AI_")}
    found = spans(story)
    named = {key for span in found for key in span.attributes if key.startswith("gen_ai.")}
    assert named <= known
    chat = next(span for span in found if span.name == "chat qwen")
    assert chat.attributes["gen_ai.usage.input_tokens"] == 900
    assert chat.attributes["gen_ai.usage.cache_read.input_tokens"] == 800
    assert "private" not in str(found)


def test_a_restarted_daemon_goes_on_with_the_same_trace(story: tuple[Step, ...]) -> None:
    first, then = Tracker("one"), Tracker("two")
    whole = {span.name: (span.trace, span.id, span.parent) for span in spans(story)}
    parts = spans(story[:5], first) + spans(story[5:], then)
    assert {span.name: (span.trace, span.id) for span in parts} == {name: ids[:2] for name, ids in whole.items()}


def test_a_bad_end_is_an_error_and_a_retry_is_a_second_attempt_in_the_same_trace(line: Any) -> None:
    lines = (
        line("state", 1, **{"from": None, "to": "queued"}),
        line("attempt", 2, "t1-1", number=1, tier="small", strategy="agent"),
        line("state", 3, "t1-1", **{"from": "running", "to": "queued"}, reason="down"),
        line("attempt", 4, "t1-2", number=2, tier="small", strategy="agent"),
        line("state", 5, "t1-2", **{"from": "running", "to": "gave_up"}, reason="too hard"),
    )
    found = spans(lines)
    assert [span.name for span in found] == ["invoke_agent", "invoke_agent", "task"]
    assert [span.attributes.get("swarm.number") for span in found] == [1, 2, None]
    assert found[-1].error == "gave_up: too hard"


def test_memory_stays_bounded_however_many_tasks_never_end(line: Any) -> None:
    tracker = Tracker(limit=10)
    for number in range(100):
        tracker.heard(line("state", number, task=f"t{number}", **{"from": None, "to": "queued"}))
    assert len(tracker._open) == 10
