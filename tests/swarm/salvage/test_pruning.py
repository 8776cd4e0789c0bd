"""Nothing of an unfinished task goes, nothing that is not proven merged or expired goes, and each fate has its reason.

gastownhall/gastown PR#1182: cleanup deleted 21 work trees and 51 branches. AgentWrapper/agent-orchestrator#1926:
restoring force-removed what was not saved.
"""

from __future__ import annotations

import pytest

from swarm.config import SalvageConfig
from swarm.salvage.entries import Entry
from swarm.salvage.prune import delivered
from swarm.salvage.pruning import DAY, Known, fates
from swarm.types import Step, TaskState

NOW = 1000 * DAY
EVERYTHING = SalvageConfig(keep_days=0.001, keep_bytes=1)


def _entry(name: str, at: float = 0.0) -> Entry:
    return Entry(
        id=name, kind="attempt", attempt=name, task="t", repository="r", ref=f"refs/salvage/{name}", commit="c", at=at
    )


def _goes(known: Known | None, config: SalvageConfig = EVERYTHING) -> bool:
    entry = _entry("a")
    (fate,) = fates([entry], {entry.ref: known} if known else {}, config, NOW)
    assert fate.why
    return fate.goes


@pytest.mark.parametrize("state", [state for state in TaskState if not state.final])
def test_nothing_of_an_unfinished_task_ever_goes(state: TaskState) -> None:
    assert not _goes(Known(state, merged=True, size=10**12))


@pytest.mark.parametrize("state", [TaskState.REFUSED, TaskState.NEEDS_PERSON])
def test_what_a_person_may_still_deliver_stays(state: TaskState) -> None:
    assert not _goes(Known(state, size=10**12))


def test_what_nothing_is_known_of_stays() -> None:
    assert not _goes(None)
    assert not _goes(Known(None, size=10**12))


def test_an_open_attempt_and_one_that_another_task_goes_on_from_stay() -> None:
    assert not _goes(Known(TaskState.CANCELLED, open=True, size=10**12))
    assert not _goes(Known(TaskState.DELIVERED, merged=True, awaited=("t2",), size=10**12))


def test_what_is_merged_goes_and_what_is_only_delivered_stays() -> None:
    assert _goes(Known(TaskState.DELIVERED, merged=True, ended=NOW), SalvageConfig())
    assert not _goes(Known(TaskState.DELIVERED, merged=False), SalvageConfig())


def test_what_is_old_goes_only_where_the_settings_say_so() -> None:
    old = Known(TaskState.GAVE_UP, ended=NOW - 31 * DAY)
    assert _goes(old, SalvageConfig(keep_days=30))
    assert not _goes(old, SalvageConfig(keep_days=32))
    assert not _goes(old, SalvageConfig())


def test_over_the_bytes_the_oldest_of_finished_tasks_go_and_no_more_than_must() -> None:
    entries = [_entry("old", 1.0), _entry("running", 0.0), _entry("new", 3.0), _entry("middle", 2.0)]
    known = {entry.ref: Known(TaskState.GAVE_UP, ended=NOW, size=100) for entry in entries}
    known["refs/salvage/running"] = Known(TaskState.RUNNING, size=10**9)
    found = {fate.entry.id: fate for fate in fates(entries, known, SalvageConfig(keep_bytes=150), NOW)}
    assert {name for name, fate in found.items() if fate.goes} == {"old", "middle"}
    assert "keep_bytes" in found["old"].why


def _journal(*lines: tuple[str, dict[str, str]]) -> list[Step]:
    return [Step(task="t", attempt="a", seq=n, at=0.0, kind=kind, data=data) for n, (kind, data) in enumerate(lines, 1)]


def test_a_tree_is_delivered_only_as_the_commit_of_its_own_receipt() -> None:
    first = ("sealed", {"tree": "one"}), ("receipt", {"proposal": "p#1", "commit": "c1"})
    second = ("sealed", {"tree": "two"}), ("receipt", {"proposal": "p#2", "commit": "c2"})
    assert delivered(_journal(*first, *second), "one") == {"c1"}
    assert delivered(_journal(*first, *second), "two") == {"c2"}
    assert delivered(_journal(first[0], *second), "one") == frozenset()
    assert delivered(_journal(first[0]), "one") == frozenset()


def test_a_receipt_that_comes_late_is_for_the_tree_that_was_proposed() -> None:
    waits = ("sealed", {"tree": "one"}), ("waiting", {"proposal": "p#1"})
    late = _journal(*waits, ("sealed", {"tree": "two"}), ("receipt", {"proposal": "p#1", "commit": "c1"}))
    assert (delivered(late, "one"), delivered(late, "two")) == ({"c1"}, frozenset())
