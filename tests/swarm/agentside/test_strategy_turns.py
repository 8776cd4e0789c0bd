"""Ways in turn: none begins in the rubble of the one before it, and none says of a changed workspace that it is not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sandbox.types import Command
from swarm.strategies.turns import in_turn
from swarm.types import Conclusion, Spent
from swarm.work import Work
from tests.swarm.agentside.conftest import Desk

CHECK = """\
code=0
t() { if grep -q "$2" m.py; then echo "$1 (t.T) ... ok"; else echo "$1 (t.T) ... FAIL"; code=1; fi; }
for n in 1 2; do t "test_$n" "return $n"; done
exit $code
"""
FILES = {"m.py": "return 7\n", "check.sh": CHECK}
TESTS = "sh check.sh"


class Way:
    """Writes this and ends so; "share" spends all that it may, "dies" goes with the daemon."""

    def __init__(self, text: str, ending: str) -> None:
        self.text = text
        self.ending = ending
        self.seen: list[tuple[str, str]] = []

    async def work(self, work: Work) -> Conclusion:
        self.seen.append(((await work.sandbox.read("m.py", limit=1000)).decode(), work.task.request.instructions))
        if self.text:
            await work.sandbox.write("m.py", self.text.encode())
            await work.sandbox.write("new.py", b"x")
            await work.record("edit", {"path": "m.py", "changed": True})
            await work.save()
        if self.ending == "dies":
            raise RuntimeError
        while self.ending == "share":
            work.ledger.admit()
            work.ledger.charge(Spent(tokens=max(1, work.ledger.budget.tokens // 40)))
        return Conclusion(ending=self.ending, summary=f"says {self.ending}")


async def turned(at: Desk, *ways: Way) -> Conclusion:
    names = tuple(f"way{number}" for number in range(len(ways)))
    return await in_turn(at.work, names, lambda name: ways[names.index(name)])


async def test_what_a_way_that_gave_up_broke_is_taken_back(desk) -> None:
    at = await desk(FILES, test_command=TESTS)
    second = Way("", "no_change")
    done = await turned(at, Way("rubble", "gave_up"), second)
    assert second.seen == [("return 7\n", "mend it")]
    assert (done.ending, at.text("m.py"), (at.sandbox.work / "new.py").exists()) == ("no_change", "return 7\n", False)
    assert at.saves == 2


@pytest.mark.slow
async def test_what_moved_tests_is_left_and_told(desk) -> None:
    at = await desk(FILES, test_command=TESTS)
    second = Way("", "no_change")
    done = await turned(at, Way("return 1\n", "gave_up"), second)
    ((seen, told),) = second.seen
    assert seen == "return 1\n"
    assert "+return 1" in told
    assert (done.ending, done.strategy) == ("finished", "way1")


async def test_without_tests_what_was_changed_is_told(desk) -> None:
    at = await desk(FILES)
    second = Way("", "gave_up")
    assert (await turned(at, Way("return 3\n", "gave_up"), second)).ending == "gave_up"
    assert "+return 3" in second.seen[0][1]


@pytest.mark.slow
async def test_a_share_that_passes_the_tests_when_it_is_spent_is_done(desk) -> None:
    at = await desk(FILES, test_command=TESTS)
    second = Way("", "gave_up")
    done = await turned(at, Way("return 1\nreturn 2\n", "share"), second)
    assert (done.ending, done.limit, done.strategy, second.seen) == ("finished", "", "way0", [])


@pytest.mark.slow
@pytest.mark.parametrize(("text", "follows"), [("return 7\n", 1), ("return 1\nreturn 2\n", 0)])
async def test_nothing_to_do_is_believed_where_the_tests_pass(desk, text: str, follows: int) -> None:
    at = await desk({**FILES, "m.py": text}, test_command=TESTS)
    second = Way("return 1\nreturn 2\n", "finished")
    done = await turned(at, Way("", "no_change"), second)
    assert (len(second.seen), done.ending) == (follows, "finished" if follows else "no_change")


@pytest.mark.slow
async def test_after_a_crash_a_way_is_neither_made_nor_taken_back_again(desk) -> None:
    at = await desk(FILES, test_command=TESTS)
    with pytest.raises(RuntimeError):
        await turned(at, Way("rubble", "gave_up"), Way("return 1\n", "dies"))
    again = Way("", "finished")
    first = Way("never", "gave_up")
    await in_turn(replace(at.work, past=tuple(at.steps)), ("way0", "way1"), {"way0": first, "way1": again}.__getitem__)
    assert (first.seen, again.seen) == ([], [("return 1\n", "mend it")])


@pytest.mark.slow
async def test_what_a_way_left_that_a_crash_cut_off_is_told_where_its_beginning_is_gone(desk) -> None:
    at = await desk(FILES, test_command=TESTS)
    for words in ("init -q", "add -A", "-c user.name=a -c user.email=a@b commit -qm base"):
        await at.sandbox.run(Command(argv=("git", *words.split())))
    with pytest.raises(RuntimeError):
        await turned(at, Way("rubble", "dies"), Way("", "gave_up"))
    second = Way("", "gave_up")
    ways = {"way0": Way("more rubble", "gave_up"), "way1": second}
    await in_turn(replace(at.work, past=tuple(at.steps)), ("way0", "way1"), ways.__getitem__)
    assert "+more rubble" in second.seen[0][1]
