"""What a scrape says after a task's journal, read by Prometheus's own parser."""

from __future__ import annotations

from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from swarm.telemetry.metrics import Fleet, Metrics
from swarm.types import Step, TaskState


def scraped(metrics: Metrics, fleet: Fleet | None = None) -> dict[tuple[str, str], float]:
    page = metrics.page(fleet or Fleet()).decode()
    return {
        (sample.name, ",".join(f"{key}={value}" for key, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }


def test_a_delivered_task_is_counted_once_with_its_tokens_and_times(story: tuple[Step, ...]) -> None:
    metrics = Metrics()
    for line in story:
        metrics.heard(line)
    found = scraped(metrics)
    assert found["swarm_tasks_ended_total", "state=delivered"] == 1
    assert found["swarm_tasks_submitted_total", ""] == 1
    assert found["swarm_attempts_total", "tier=small"] == 1
    assert found["swarm_tokens_total", "kind=prompt"] == 900
    assert found["swarm_tokens_total", "kind=cached"] == 800
    assert found["swarm_model_call_seconds_sum", ""] == 4
    assert found["swarm_tool_seconds_sum", ""] == 2
    assert found["swarm_phase_seconds_sum", "phase=work"] == 15
    assert found["swarm_queue_wait_seconds_sum", ""] == 4
    assert found["swarm_task_seconds_sum", ""] == 30


def test_every_state_has_a_series_so_that_an_alert_on_it_is_never_without_data() -> None:
    found = scraped(Metrics(), Fleet(tasks={TaskState.QUEUED: 3}))
    assert {key[1] for key in found if key[0] == "swarm_tasks"} == {f"state={state.value}" for state in TaskState}
    assert found["swarm_tasks", "state=queued"] == 3


def test_the_fleet_is_told_as_it_is_now_and_what_is_gone_is_gone() -> None:
    metrics = Metrics()
    up = scraped(metrics, Fleet(endpoints=(("gpu1", "small", True),), hosts={"up": 2, "gone": 1}, broker_up=True))
    assert up["swarm_endpoint_up", "endpoint=gpu1,tier=small"] == 1
    assert up["swarm_hosts", "state=gone"] == 1
    assert up["swarm_broker_up", ""] == 1
    after = scraped(metrics, Fleet())
    assert ("swarm_endpoint_up", "endpoint=gpu1,tier=small") not in after
    assert after["swarm_broker_up", ""] == 0


def test_no_task_and_no_user_is_ever_a_label(story: tuple[Step, ...]) -> None:
    metrics = Metrics()
    for line in story:
        metrics.heard(line)
    assert "t1" not in metrics.page(Fleet()).decode()


def test_tasks_that_never_end_do_not_fill_the_memory(line: Any) -> None:
    metrics = Metrics()
    for number in range(10_050):
        metrics.heard(line("state", number, task=f"t{number}", **{"from": None, "to": "queued"}))
    assert len(metrics._began) == 10_000
