"""An agent of the Agent Client Protocol works as any of others: told its task, granted what it asks inside, stopped
when its budget or time is over, and never believed. The client that is sent in meets good agents and hostile ones."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from swarm.errors import ConfigError
from swarm.strategies.acp_client import _SPENT, LINE, Teller, choice
from swarm.types import Conclusion
from tests.swarm.agentside.test_command import Bench, Open, bench

__all__ = ["bench"]  # a fixture
AGENT = Path(__file__).with_name("acp_agent.py")


async def run(here: Bench, behaviour: str, **more: Any) -> Conclusion:
    return await here.run((sys.executable, str(AGENT), behaviour), protocol="acp", **more)


@pytest.mark.slow
async def test_it_is_told_its_task_and_what_it_does_is_told(bench: Open) -> None:
    async with bench(["the sign"]) as here:
        ended = await run(here, "works")
        assert ended.ending == "finished", here.printed
        assert here.text("calc.py") == "one\ntwo\nthree\n"
        assert "mend it" in here.text("prompt")
        assert here.text("answer") == "the sign"
        assert here.ledger.spent().steps == 1
        for line in (
            "[thought] a sign?",
            "[plan] look (pending)",
            "[tool] Edit calc.py",
            "[permission] granted: Edit calc.py",
            "[wrote] calc.py",
            "[tool] completed: Edit calc.py",
            "I mended the sign.",
        ):
            assert line in here.printed.splitlines()
        assert ended.summary.endswith("It is done.")


@pytest.mark.slow
async def test_what_is_not_in_the_checkout_is_neither_read_nor_written_for_it(bench: Open) -> None:
    async with bench() as here:
        assert (await run(here, "outside")).ending == "finished"
        *refused, permission = json.loads(here.text("tried.json"))
        assert [one["error"]["code"] for one in refused] == [-32602] * 7 + [-32601]
        assert permission["result"]["outcome"] == {"outcome": "cancelled"}
        assert not (here.sandbox.work.parent / "out.txt").exists()


@pytest.mark.slow
async def test_flood_of_words_is_bounded_and_its_end_is_kept(bench: Open) -> None:
    async with bench() as here:
        ended = await run(here, "flood")
        assert ended.ending == "finished"
        assert ended.summary.endswith("line 19999")
        assert sum(len(data["text"]) for data in here.kinds("output")) < 300_000


@pytest.mark.slow
async def test_odd_messages_are_passed_over_and_told(bench: Open) -> None:
    async with bench() as here:
        ended = await run(here, "nonsense")
        assert ended.ending == "finished"
        assert "still here" in here.printed
        assert "[protocol] an answer to nothing that was asked: 77" in here.printed
        assert "\x1b" not in here.printed


@pytest.mark.slow
@pytest.mark.parametrize(
    ("behaviour", "words"),
    [
        ("logs", "lines that are no messages"),
        ("huge", "a message of more than"),
        ("dies", "ended in the middle of the conversation"),
        ("newer", "speaks version 9 of the protocol, not 1"),
        ("locked", "Authentication required; name one of its methods with `authenticate`"),
        ("refuses", "the agent stopped: refusal"),
    ],
)
async def test_agent_that_breaks_off_gave_up_and_the_reason_is_told(bench: Open, behaviour: str, words: str) -> None:
    async with bench() as here:
        ended = await run(here, behaviour)
        assert ended.ending == "gave_up"
        assert words in here.printed


@pytest.mark.slow
async def test_method_that_it_wants_to_be_authenticated_by_is_a_setting(bench: Open) -> None:
    async with bench() as here:
        assert (await run(here, "locked", authenticate="key")).ending == "finished"
        assert here.text("authenticated") == "key"


@pytest.mark.slow
async def test_spent_budget_cancels_it_and_counts_as_a_limit(bench: Open) -> None:
    async with bench(["hi"], steps=1) as here:
        ended = await run(here, "spends")
        assert ended.ending == "limit_hit"
        assert "1 of 1 steps are spent" in ended.summary
        assert (here.sandbox.work / "cancelled").exists()
        assert "cancelled: the budget is spent (left: 0 turns" in here.printed


@pytest.mark.slow
async def test_time_that_is_nearly_over_cancels_it_and_counts_as_a_limit(bench: Open) -> None:
    async with bench(wall=2.0) as here:
        ended = await run(here, "waits")
        assert (ended.ending, ended.limit) == ("limit_hit", "task.wall")
        assert (here.sandbox.work / "cancelled").exists()


@pytest.mark.slow
async def test_agent_that_hears_nothing_is_stopped_as_any_other(bench: Open) -> None:
    async with bench() as here:
        ended = await run(here, "deaf", idle=1.0)
        assert ended.ending == "gave_up"
        assert "printed nothing and asked no model" in ended.summary


@pytest.mark.slow
async def test_what_it_left_running_is_ended(bench: Open) -> None:
    async with bench() as here:
        assert (await run(here, "children")).ending == "finished"


@pytest.mark.slow
async def test_agent_that_is_missing_cannot_be_started(bench: Open) -> None:
    async with bench() as here:
        with pytest.raises(ConfigError, match="cannot be started inside: /no/such: No such file"):
            await here.run(("/no/such",), protocol="acp")


@pytest.mark.parametrize(
    ("options", "chosen"),
    [
        ([{"optionId": "a", "kind": "allow_once"}, {"optionId": "b", "kind": "allow_always"}], "b"),
        ([{"optionId": "a", "kind": "allow_once"}], "a"),
        ([{"optionId": "n", "kind": "reject_once"}, {"optionId": "m", "kind": "reject_always"}], None),
        ([{"optionId": 3, "kind": "allow_once"}, "x", None], None),
        (None, None),
        ({"optionId": "a"}, None),
    ],
)
def test_permission_is_granted_for_good_where_that_is_offered(options: Any, chosen: str | None) -> None:
    assert choice(options) == chosen


def test_words_are_told_in_whole_lines_and_long_ones_are_cut() -> None:
    said: list[str] = []
    teller = Teller(said.append)
    for piece in ("one ", "line\ntw", "o"):
        teller.words("", piece)
    assert said == ["one line\n"]
    teller.words("thought", "hm\n")
    teller.note("tool", "a\nb  c")
    teller.words("", "x" * (2 * LINE + 1))
    teller.flush()
    assert said[1:4] == ["two\n", "[thought] hm\n", "[tool] a b c\n"]
    assert [len(line) for line in said[4:]] == [LINE + 1, LINE + 1, 2]


@pytest.mark.parametrize(
    ("told", "spent"),
    [
        ("left: 0 turns, 5 tokens", True),
        ("left: 10 turns, 0 tokens, 3 seconds", True),
        ("left: 10 turns, 100 tokens, 2.0 money", False),
        ("left: 1 turn, 20 seconds, 0.0 money", True),
        ("nothing is counted", False),
    ],
)
def test_spent_budget_is_read_off_what_is_left(told: str, spent: bool) -> None:
    assert bool(_SPENT.search(told)) is spent
