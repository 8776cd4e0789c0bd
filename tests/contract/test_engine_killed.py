"""Processes that are really killed, stopped and continued over one engine's database."""

import asyncio
import os
import signal

import pytest

from tests.contract.engine_child import PHASES
from tests.contract.engine_stage import Stage, kill

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]


def begun(lines: list[str], run: str = "r") -> list[str]:
    return [line.split()[2] for line in lines if line.startswith(f"begin {run} ")]


@pytest.mark.parametrize("phase", ["prepare", "check"])
async def test_kill_inside_a_phase_runs_that_one_again_and_no_earlier_one(stage: Stage, phase: str) -> None:
    child = await stage.start("a", "r", hang=phase)
    await stage.said("a", f"hanging {phase}")
    await kill(child)
    await stage.end(await stage.start("b", "r", adopt=True))
    assert begun(stage.lines("b")) == list(PHASES[PHASES.index(phase) :])
    assert stage.lines("b")[-1].startswith("r done: prepare by ")


async def test_kill_after_a_phase_does_not_run_it_again(stage: Stage) -> None:
    child = await stage.start("a", "r", hang="after work")
    await stage.said("a", "hanging after work")
    await kill(child)
    await stage.end(await stage.start("b", "r", adopt=True))
    assert begun(stage.lines("b")) == ["check", "deliver"]
    assert stage.lines("b")[-1] == "r done: prepare by a, work by a, check by b, deliver by b"


async def test_the_same_host_goes_on_after_its_own_restart_only_with_what_it_adopts(stage: Stage) -> None:
    """An executor that restarts under its old id stranded or doubled runs: dbos-transact-py 742 and 804."""
    child = await stage.start("a", "r", "s", hang="work", host="one")
    await stage.said("a", "hanging work")
    await kill(child)
    await stage.end(await stage.start("b", "r", adopt=True, host="one"))
    assert stage.lines("b")[-1].startswith("r done: ")
    assert not begun(stage.lines("b"), "s")
    await stage.end(await stage.start("c", "s", host="one"))
    assert stage.lines("c")[-1] == "s lost: "


async def test_death_between_adoption_and_the_first_phase_loses_nothing(stage: Stage) -> None:
    """A run that recovery had put on a queue was stranded when its process went down then: dbos-transact-py 716."""
    child = await stage.start("a", "r", hang="check")
    await stage.said("a", "hanging check")
    await kill(child)
    child = await stage.start("b", "r", adopt=True)
    await stage.said("b", "adopted")
    await kill(child)
    await stage.end(await stage.start("c", "r", adopt=True))
    assert begun(stage.lines("c")) == ["check", "deliver"]
    assert stage.lines("c")[-1].startswith("r done: ")


async def test_one_that_was_stopped_and_replaced_keeps_nothing_when_it_wakes(stage: Stage) -> None:
    """Without a lease to ask: what it is in the middle of ends, and is refused."""
    stale = await stage.start("a", "r", hang="work")
    await stage.said("a", "hanging work")
    os.kill(stale.pid, signal.SIGSTOP)
    await stage.end(await stage.start("b", "r", adopt=True))
    stage.let("go-a")
    os.kill(stale.pid, signal.SIGCONT)
    await stage.end(stale)
    assert stage.lines("a")[-2:] == ["end r work", "r lost: "]
    assert stage.lines("b")[-1] == "r done: prepare by a, work by b, check by b, deliver by b"


async def test_one_that_was_replaced_while_the_other_still_works_keeps_nothing(stage: Stage) -> None:
    stale = await stage.start("a", "r", hang="work")
    await stage.said("a", "hanging work")
    successor = await stage.start("b", "r", adopt=True, hang="work")
    await stage.said("b", "hanging work")
    stage.let("go-a")
    await stage.end(stale)
    assert stage.lines("a")[-1] == "r lost: "
    stage.let("go-b")
    await stage.end(successor)
    assert stage.lines("b")[-1] == "r done: prepare by a, work by b, check by b, deliver by b"


async def test_a_lease_that_went_stops_the_flow_before_anyone_adopted(stage: Stage) -> None:
    """Between the store's fence and the adoption the engine itself would keep what the stale process does."""
    (stage.folder / "owner").write_text("a")
    stale = await stage.start("a", "r", hang="work", owner="owner")
    await stage.said("a", "hanging work")
    (stage.folder / "owner").write_text("b")
    stage.let("go-a")
    await stage.end(stale)
    assert stage.lines("a")[-2:] == ["end r work", "r lost: "]
    await stage.end(await stage.start("b", "r", adopt=True, owner="owner"))
    assert begun(stage.lines("b")) == ["work", "check", "deliver"]


async def test_of_two_that_adopt_at_once_one_runs_to_the_end(stage: Stage) -> None:
    """A queued job ran in two workers over one SQLite file: dbos-transact-py 541."""
    child = await stage.start("a", "r", hang="work")
    await stage.said("a", "hanging work")
    await kill(child)
    both = [await stage.start(who, "r", adopt=True, begin="begin", slow=0.7) for who in ("b", "c")]
    await asyncio.gather(stage.said("b", "open"), stage.said("c", "open"))
    stage.let("begin")
    await asyncio.gather(*(stage.end(each) for each in both))
    ends = sorted(stage.lines(who)[-1].split(":")[0] for who in ("b", "c"))
    assert ends == ["r done", "r lost"]
    winner = "b" if stage.lines("b")[-1].startswith("r done") else "c"
    assert stage.lines(winner)[-1] == f"r done: prepare by a, work by {winner}, check by {winner}, deliver by {winner}"


async def test_a_run_that_kills_its_process_each_time_is_given_up(stage: Stage) -> None:
    for who in ("a", "b", "c"):
        child = await stage.start(who, "r", adopt=True, die="work", lives=3)
        assert await asyncio.wait_for(child.wait(), 40) == 9
    await stage.end(await stage.start("d", "r", adopt=True, lives=3))
    assert stage.lines("d")[-1] == "r failed: it ended the process that ran it 3 times in a row"
    assert not begun(stage.lines("d"))


@pytest.mark.parametrize("engine_at", ["sqlite"], indirect=True)
async def test_what_kills_its_process_each_time_is_found_and_takes_nothing_innocent_along(stage: Stage) -> None:
    """Where nothing got done between two deaths, all that ran beside it were given up in the same moment."""
    plan = {"die": "work", "guilty": "guilty", "slow": 0.5, "lives": 3, "together": 1}
    for who in ("a", "b", "c", "d"):
        child = await stage.start(who, "guilty", "innocent", adopt=True, **plan)
        if await asyncio.wait_for(child.wait(), 40) == 0:
            break
    told = [line.partition(" ")[2] for line in stage.lines()]
    assert "guilty failed: it ended the process that ran it 3 times in a row" in told
    assert any(line.startswith("innocent done: ") for line in told)


async def test_many_runs_of_a_dead_process_all_go_on_and_what_was_done_is_not_repeated(stage: Stage) -> None:
    names = [f"r{number}" for number in range(40)]
    child = await stage.start("a", *names, hang="check")
    await asyncio.gather(*(stage.said("a", f"begin {name} check") for name in names))
    await kill(child)
    await stage.end(await stage.start("b", *names, adopt=True))
    for name in names:
        assert begun(stage.lines("b"), name) == ["check", "deliver"]
        assert f"{name} done: prepare by a, work by a, check by b, deliver by b" in stage.lines("b")
