"""A run makes each try once, within its bounds, and goes on where an earlier life of it stood."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from sandbox.errors import SandboxError, SandboxLostError
from sandbox.testing import ScriptedBackend
from sandbox.types import Command
from swarm.errors import EvaluationError
from swarm.evaluation.case import Allowance, File, FolderSource, GitSource, Solution
from swarm.evaluation.making import make
from swarm.evaluation.report import report_of
from swarm.evaluation.results import CASES, RESULTS, Folder
from swarm.evaluation.runner import Bounds, Runner, budget_of
from swarm.evaluation.trying import Means
from swarm.types import Budget, Conclusion, Spent
from swarm.work import Work
from tests.swarm.conftest import git
from tests.swarm.evaluation.conftest import BUG, GOOD, UNITTEST, Evaluate, Writes, case, plan_of, tried

MEND = "sed -i 's/min(x, low)/min(x, high)/' clamp.py"
pytestmark = pytest.mark.slow


class Spends:
    """Charges tokens, and changes nothing."""

    def __init__(self, tokens: int) -> None:
        self._tokens = tokens
        self.attempts: list[str] = []

    async def work(self, work: Work) -> Conclusion:
        self.attempts.append(work.attempt)
        work.ledger.charge(Spent(tokens=self._tokens, prompt_tokens=self._tokens - 1, steps=1))
        data = {"prompt_tokens": self._tokens - 1, "completion_tokens": 1, "cached_tokens": 2, "seconds": 0.0}
        await work.record("model_call", data)
        return Conclusion(ending="finished")


class Breaks:
    """Fails as machinery does, so many times."""

    def __init__(self, times: int) -> None:
        self._left = times

    async def work(self, work: Work) -> Conclusion:
        if self._left:
            self._left -= 1
            raise SandboxLostError("it is gone")
        return await Writes(MEND).work(work)


class Waits:
    """Does not come to an end."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()

    async def work(self, work: Work) -> Conclusion:
        await work.record("model_call", {"prompt_tokens": 40, "completion_tokens": 2, "seconds": 0.0})
        self.begun.set()
        await asyncio.Event().wait()
        return Conclusion(ending="finished")


async def test_the_reference_solves_all_and_nothing_solves_none(evaluate: Evaluate) -> None:
    cases = [case("a"), case("b/../../c <b>", statement="the same again")]
    why, folder, told = await evaluate(cases, "reference", "nothing", bounds=Bounds(jobs=3))
    assert why == ""
    assert {(row.strategy, row.outcome) for row in tried(told)} == {("reference", "solved"), ("nothing", "unsolved")}
    assert len(tried(told)) == 4
    report = report_of(folder)
    assert report.whole
    assert [score.solved for score in report.scores] == [2, 0]
    assert not [path for path in folder.path.rglob("*") if not path.resolve().is_relative_to(folder.path.resolve())]


async def test_a_finished_try_is_not_made_again(evaluate: Evaluate) -> None:
    counted = Spends(10)
    for _ in range(2):
        await evaluate([case("a"), case("b")], "counts", named={"counts": counted}, repeat=2)
    assert len(counted.attempts) == len(set(counted.attempts)) == 4


async def test_no_more_is_begun_once_the_runs_tokens_are_spent_and_it_goes_on_with_more(evaluate: Evaluate) -> None:
    counted, cases = Spends(10), [case(str(number)) for number in range(5)]
    why, folder, _ = await evaluate(cases, "counts", named={"counts": counted}, bounds=Bounds(tokens=25))
    assert why == "30 of the run's 25 tokens are spent"
    assert len(counted.attempts) == 3
    assert not report_of(folder).whole
    why, folder, _ = await evaluate(cases, "counts", named={"counts": counted}, bounds=Bounds(tokens=30))
    assert (why[:2], len(counted.attempts)) == ("30", 3)
    why, folder, _ = await evaluate(cases, "counts", named={"counts": counted})
    assert (why, len(counted.attempts)) == ("", 5)
    assert report_of(folder).scores[0].tokens == 50
    assert report_of(folder).scores[0].cached == 10


async def test_what_is_under_way_when_the_runs_time_is_over_is_made_again(evaluate: Evaluate) -> None:
    waits = Waits()
    why, folder, told = await evaluate([case()], "waits", named={"waits": waits}, bounds=Bounds(seconds=8.0))
    assert why == "the run's 8 seconds are over"
    assert waits.begun.is_set()
    assert not tried(told)
    assert report_of(folder).wasted == 42
    why, folder, told = await evaluate([case()], "waits", named={"waits": Writes(MEND)})
    assert (why, tried(told)[0].outcome) == ("", "solved")
    assert report_of(folder).wasted == 42


async def test_broken_machinery_ends_one_try_which_counts_nowhere_and_is_made_again(evaluate: Evaluate) -> None:
    breaks = Breaks(1)
    cases = [case("a"), case("b")]
    _, folder, told = await evaluate(cases, "breaks", named={"breaks": breaks})
    assert [row.outcome for row in tried(told)] == ["broken", "solved"]
    assert "it is gone" in tried(told)[0].reason
    report = report_of(folder)
    assert (report.scores[0].tries, report.scores[0].broken, report.whole) == (1, 1, False)
    _, folder, told = await evaluate(cases, "breaks", named={"breaks": breaks})
    assert [row.outcome for row in tried(told)] == ["solved"]
    assert report_of(folder).whole


async def test_machinery_that_fails_again_and_again_ends_the_run_with_the_reason(evaluate: Evaluate) -> None:
    cases = [case(str(number)) for number in range(8)]
    why, folder, told = await evaluate(cases, "breaks", named={"breaks": Breaks(100)})
    assert why.startswith("the machinery failed 5 times in a row, the last time since the sandbox broke: it is gone")
    assert len(tried(told)) == 5
    why, _, told = await evaluate(cases, "breaks", named={"breaks": Breaks(4)})
    assert why == ""
    assert [row.outcome for row in tried(told)] == ["broken"] * 4 + ["solved"] * 4
    assert not report_of(folder).whole


def _fails_at(command: Command, _: Path) -> None:
    if any("no such machine" in word for word in command.argv):
        raise SandboxError("the line broke")


async def test_a_case_at_whose_proof_the_machinery_fails_ends_nothing_and_is_proved_again(
    evaluate: Evaluate, means: Means
) -> None:
    cases = [case("a", hidden={"command": f"{UNITTEST} || no such machine"}), case("b")]
    assert isinstance(means.rooms.backend, ScriptedBackend)
    means.rooms.backend.script = _fails_at
    why, folder, told = await evaluate(cases, "nothing")
    assert (why, [row.case for row in tried(told)]) == ("", ["b"])
    report = report_of(folder)
    assert [(row.case, row.fault) for row in report.broken] == [("a", True)]
    assert "the line broke" in report.broken[0].broken
    assert not report.whole
    assert ["the machinery failed in the proof" in note for note in report.notes] == [True]
    means.rooms.backend.script = None
    why, folder, told = await evaluate(cases, "nothing")
    assert (why, [row.case for row in tried(told)]) == ("", ["a"])
    assert report_of(folder).whole


async def test_machinery_that_fails_at_every_proof_ends_the_run_with_the_reason(
    evaluate: Evaluate, means: Means
) -> None:
    cases = [case(str(number), hidden={"command": "no such machine"}) for number in range(8)]
    assert isinstance(means.rooms.backend, ScriptedBackend)
    means.rooms.backend.script = _fails_at
    why, folder, _ = await evaluate(cases, "nothing", "reference")
    assert why.startswith(
        "the machinery failed 5 times in a row, the last time since the sandbox broke: the line broke"
    )
    assert len(report_of(folder).broken) == 5


@pytest.mark.parametrize("change", [{"seed": 1}, {"repeat": 2}, {"budget": Budget(tokens=1, attempts=1)}])
async def test_a_changed_setting_is_refused_in_words(evaluate: Evaluate, change: dict[str, Any]) -> None:
    await evaluate([case()], "nothing")
    with pytest.raises(EvaluationError, match="was begun otherwise"):
        await evaluate([case()], "nothing", **change)


async def test_a_folder_with_something_else_in_it_is_left_alone(evaluate: Evaluate, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "thesis.txt").touch()
    with pytest.raises(EvaluationError, match=r"holds no run of an evaluation, but thesis\.txt"):
        await evaluate([case()], "nothing")
    assert not (tmp_path / "run" / "run.json").exists()


async def test_hidden_tests_may_take_longer_than_a_command_of_an_agent(
    evaluate: Evaluate, means: Means, tmp_path: Path
) -> None:
    slow = case(hidden={"command": f"sleep 2; {UNITTEST}", "seconds": 30.0})
    spec = means.spec.model_copy(update={"limits": means.spec.limits.model_copy(update={"wall": 1.0})})
    told: list[Any] = []
    own = Means(means.rooms, means.repositories, spec, means.strategy)
    await Runner(plan_of([slow], "reference"), {slow.id: slow}, own, Folder(tmp_path / "run"), told=told.append).run()
    assert [row.outcome for row in tried(told)] == ["solved"]


async def test_a_changed_case_is_refused(evaluate: Evaluate) -> None:
    await evaluate([case()], "nothing")
    with pytest.raises(EvaluationError, match=r"1 changed \(clamp\)"):
        await evaluate([case(statement="another")], "nothing")


async def test_a_budget_is_kept_and_told_and_the_work_is_judged_all_the_same(evaluate: Evaluate) -> None:
    class Overspends:
        async def work(self, work: Work) -> Conclusion:
            await Writes(MEND).work(work)
            work.ledger.charge(Spent(tokens=11, steps=1))
            return Conclusion(ending="finished")

    one = case(allowance=Allowance(tokens=10))
    _, folder, told = await evaluate([one], "over", named={"over": Overspends()})
    (row,) = tried(told)
    assert (row.ending, row.limit, row.outcome) == ("limit_hit", "task.tokens", "solved")
    assert report_of(folder).scores[0].delivered == 0


async def test_the_wall_clock_of_a_try_ends_it(evaluate: Evaluate) -> None:
    _, _, told = await evaluate([case()], "waits", named={"waits": Waits()}, budget=Budget(wall=2.0, attempts=1))
    (row,) = tried(told)
    assert (row.ending, row.limit, row.outcome) == ("limit_hit", "task.wall", "unsolved")


async def test_a_case_whose_image_needs_an_engine_that_is_not_there_is_blocked_and_the_others_go_on(
    evaluate: Evaluate, tmp_path: Path
) -> None:
    (tmp_path / "Dockerfile").write_text("FROM x\n")
    needing = [case("a", image="python:3.12"), case("b", image=str(tmp_path / "Dockerfile"))]
    _, folder, told = await evaluate([*needing, case("c")], "nothing")
    report = report_of(folder)
    assert [row.case for row in report.blocked] == ["a", "b"]
    assert all("engine" in row.broken for row in report.blocked)
    assert [row.case for row in tried(told)] == ["c"]


async def test_a_case_that_is_blocked_is_told_and_never_failed(evaluate: Evaluate) -> None:
    _, folder, told = await evaluate([case("a", blocked="no image was given"), case("b")], "nothing")
    assert [row.case for row in tried(told)] == ["b"]
    report = report_of(folder)
    assert [(row.case, row.broken) for row in report.blocked] == [("a", "no image was given")]
    assert (report.scores[0].tries, report.whole, report.broken) == (1, True, ())


async def test_a_case_without_a_known_solution_is_left_out_by_the_reference_alone(evaluate: Evaluate) -> None:
    _, folder, told = await evaluate([case(solution=None)], "reference", "nothing")
    assert [row.strategy for row in tried(told)] == ["nothing"]
    assert report_of(folder).whole
    assert report_of(folder).unproved == 1


async def test_a_repository_may_be_a_commit_or_a_folder_whose_history_stays_outside(
    evaluate: Evaluate, tmp_path: Path
) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    git("init", "-q", "-b", "main", ".", cwd=tree)
    commits = []
    for content in (BUG, GOOD):
        (tree / "clamp.py").write_bytes(content)
        git("add", ".", cwd=tree)
        git("commit", "-q", "-m", f"commit {len(commits)}", cwd=tree)
        commits.append(git("rev-parse", "HEAD", cwd=tree))
    (tree / "clamp.py").write_bytes(BUG)
    looks = Writes("git log --all --format=%H%s; git remote -v; git count-objects -v; cat clamp.py")
    one = case("git").model_copy(update={"files": (), "source": GitSource(git=tree / ".git", commit=commits[0])})
    other = case("folder").model_copy(update={"files": (), "source": FolderSource(folder=tree)})
    for each in (one, other):
        _, _, told = await evaluate([each], "reference", "looks", named={"looks": looks}, out=each.id)
        assert {row.strategy: row.outcome for row in tried(told)} == {"reference": "solved", "looks": "unsolved"}
        said = looks.output.decode()
        assert BUG.decode() in said
        assert not [commit for commit in commits if commit in said]
        assert "commit 1" not in said


async def test_a_repository_that_is_not_there_breaks_its_case_alone(evaluate: Evaluate, tmp_path: Path) -> None:
    gone = case("gone").model_copy(update={"files": (), "source": FolderSource(folder=tmp_path / "nowhere")})
    _, folder, told = await evaluate([gone, case("here")], "nothing")
    assert [row.case for row in tried(told)] == ["here"]
    assert "nowhere" in folder.standings()["gone"].broken


SOLUTIONS: dict[str, Solution] = {
    "a patch": Solution(patch="--- a/clamp.py\n+++ b/clamp.py\n@@ -1,2 +1,2 @@\n def clamp(x, low, high):\n"
                        "-    return max(low, min(x, low))\n+    return max(low, min(x, high))\n"),
    "a script": Solution(script="cd / && cd - >/dev/null\n" + MEND),
    "a file with other line ends": Solution(files=(File(path="clamp.py", content=GOOD.replace(b"\n", b"\r\n")),)),
    "a new file beside it": Solution(
        files=(File(path="clamp.py", content=b"from inner.it import clamp\n"), File(path="inner/it.py", content=GOOD)),
    ),
    "a file without an end of its last line": Solution(files=(File(path="clamp.py", content=GOOD.rstrip()),)),
    "a file that is no text": Solution(
        files=(File(path="clamp.py", content=GOOD), File(path="a.bin", content=bytes(range(256)), executable=True)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SOLUTIONS)
async def test_the_reference_puts_in_any_kind_of_solution(evaluate: Evaluate, name: str) -> None:
    _, folder, told = await evaluate([case(solution=SOLUTIONS[name])], "reference")
    (row,) = tried(told)
    assert (row.outcome, row.ending) == ("solved", "finished")
    if name == "a file that is no text":
        assert "new file mode 100755" in (folder.path / "tries" / row.folder / "change.diff").read_text()


async def test_the_same_results_make_the_same_report_to_the_last_byte(evaluate: Evaluate) -> None:
    _, folder, _ = await evaluate([case("a"), case("b")], "reference", "nothing", repeat=2, seed=7)
    pages = []
    for _ in range(2):
        make(folder)
        pages.append([(folder.path / name).read_bytes() for name in ("report.json", "report.html")])
    assert pages[0] == pages[1]


_CHILD = """
import asyncio, sys
from pathlib import Path
sys.path.insert(0, {root!r})
from tests.swarm.evaluation import killed
asyncio.run(killed.main(Path(sys.argv[1])))
"""


def test_a_run_that_is_killed_at_any_moment_goes_on_and_makes_each_try_once(tmp_path: Path) -> None:
    root = str(Path(__file__).parents[3])
    argv = [sys.executable, "-c", _CHILD.format(root=root), str(tmp_path / "run")]
    results = tmp_path / "run" / RESULTS
    for wanted in (1, 3):
        child = subprocess.Popen(argv, start_new_session=True)
        until = time.monotonic() + 60
        while not (results.exists() and results.read_bytes().count(b"\n") >= wanted) and time.monotonic() < until:
            assert child.poll() is None
            time.sleep(0.01)
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    before = results.read_bytes()
    subprocess.run(argv, check=True, timeout=100)
    assert results.read_bytes().startswith(before)
    rows = [json.loads(line) for line in results.read_bytes().splitlines()]
    assert len(rows) == len({row["key"] for row in rows}) == 8
    proved = [json.loads(line)["case"] for line in (tmp_path / "run" / CASES).read_bytes().splitlines()]
    assert sorted(proved) == sorted(set(proved))
    assert report_of(Folder(tmp_path / "run")).whole
    assert not list((tmp_path / "run").glob("scratch-*")), "what a killed life left is cleared away"


def test_a_cases_own_allowance_goes_before_the_runs() -> None:
    run = Budget(tokens=100, steps=7, wall=9.0)
    assert budget_of(case(allowance=Allowance(tokens=5)), run) == Budget(tokens=5, steps=7, wall=9.0, attempts=1)
    assert plan_of([case()], "agent").budget.attempts == 1
