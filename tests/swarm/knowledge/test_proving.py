"""Which commands count as proved, and how long a proof is good for."""

from __future__ import annotations

from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from sandbox.testing import ScriptedBackend
from sandbox.types import Outcome, SandboxSpec
from swarm.checks import Rules
from swarm.config import RepositoryConfig
from swarm.errors import DiscoveryError
from swarm.knowledge.briefing import Briefer, Ground, known_of
from swarm.knowledge.ecosystems import Suggestion
from swarm.knowledge.proving import MOST, Proved, counts, prove
from swarm.knowledge.shelf import Shelf, digest
from swarm.types import TestRun

UNITTEST = b"test_a (test_m.T.test_a) ... ok\ntest_b (test_m.T.test_b) ... FAIL\n"


def sandboxes(results: dict[str, Outcome], ran: list[str]):
    """Fresh sandboxes in which a test command gives the outcome said for it."""

    def script(command, _folder):
        if command.argv[0] != "/bin/sh":
            return None
        ran.append(command.argv[4])
        return results.get(command.argv[4], Outcome(exit_code=127, output=b"not found", seconds=0.1))

    backend = ScriptedBackend(script)

    @asynccontextmanager
    async def fresh():
        async with backend.open(SandboxSpec()) as sandbox:
            yield sandbox

    return fresh


def suggested(*commands: str) -> list[Suggestion]:
    return [Suggestion(command=command, why="a file") for command in commands]


async def test_first_command_that_runs_tests_is_proved_though_some_fail() -> None:
    ran: list[str] = []
    results = {
        "two": Outcome(exit_code=1, output=UNITTEST, seconds=2.0),
        "three": Outcome(exit_code=0, output=b"", seconds=1),
    }
    found, tried = await prove(sandboxes(results, ran), suggested("one", "two", "three"))
    assert found == Proved(command="two", why="a file", passed=1, failed=1, seconds=2.0)
    assert ran == ["one", "two"]
    assert [each.went for each in tried] == ["there is no one in the sandbox", "1 passed, 1 failed, exit code 1"]


async def test_nothing_is_proved_by_commands_that_fail_and_only_some_are_tried() -> None:
    ran: list[str] = []
    found, tried = await prove(sandboxes({}, ran), suggested(*map(str, range(20))))
    assert found is None
    assert len(tried) == len(ran) == MOST


@pytest.mark.parametrize(
    ("run", "good"),
    [
        ({"exit_code": 0, "passed": ("command",)}, True),
        ({"exit_code": 0, "passed": ("command",), "tail": "Ran 0 tests in 0.0s\nOK"}, False),
        ({"exit_code": 0, "passed": ("command",), "tail": "?  m [no test files]"}, False),
        ({"exit_code": 0, "passed": ("command",), "tail": "ok   m/a 0.1s\n?  m/b [no test files]"}, True),
        ({"exit_code": 0, "passed": ("command",), "tail": "running 10 tests\n...\nrunning 0 tests"}, True),
        ({"exit_code": 1, "failed": ("command",)}, False),
        ({"exit_code": 1, "passed": ("a",), "failed": ("b",)}, True),
        ({"exit_code": 1, "failed": ("b",)}, False),
        ({"exit_code": 137, "passed": ("a",), "timed_out": True}, False),
        ({"exit_code": 137, "passed": ("a",), "out_of_memory": True}, False),
    ],
)
def test_only_a_run_that_ran_tests_counts(run: dict, good: bool) -> None:
    assert counts(TestRun.model_validate({"command": "c", **run})) is good


PROVED = Proved(command="make test", passed=3, seconds=1.5)


def test_what_was_proved_is_kept_until_what_decides_it_changes(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path / "discovered")
    shelf.keep("demo", "d1", PROVED)
    assert shelf.load("demo", "d1") == PROVED
    assert shelf.load("other", "d1") is None
    assert shelf.load("demo", "d2") is None
    assert shelf.load("demo", "d1") is None, "a stale entry is dropped"


@pytest.mark.parametrize("junk", [b"", b"{", b'{"repository": "demo"}', b"\xff" * 100, b"x" * 200_000])
def test_broken_entry_is_dropped_and_proved_anew(tmp_path: Path, junk: bytes) -> None:
    shelf = Shelf(tmp_path)
    shelf.keep("demo", "d1", PROVED)
    (place,) = tmp_path.iterdir()
    place.write_bytes(junk)
    assert shelf.load("demo", "d1") is None
    assert not place.exists()


def test_repository_name_never_leads_out_of_the_folder(tmp_path: Path) -> None:
    Shelf(tmp_path / "in").keep("../../x", "d", PROVED)
    assert [path.parent for path in tmp_path.rglob("*.json")] == [tmp_path / "in"]


def test_folder_that_cannot_be_written_costs_no_task(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    Shelf(tmp_path / "file").keep("demo", "d", PROVED)
    assert Shelf(tmp_path / "file").load("demo", "d") is None


def test_digest_names_all_that_decides() -> None:
    one = digest({"a": "100644 1"}, {"setup": []})
    assert one == digest({"a": "100644 1"}, {"setup": []})
    assert (
        len(
            {one, digest({"a": "100644 2"}, {"setup": []}), digest({"a": "100644 1"}, {"setup": ["x"]}), digest({}, {})}
        )
        == 4
    )


FILES = {"Makefile": "test:\n\t./t\n", "AGENTS.md": "Use tabs.", ".github/workflows/ci.yml": "- run: make test\n"}


@pytest.mark.slow
async def test_command_is_proved_once_until_a_deciding_file_changes(held, tmp_path: Path) -> None:
    ran: list[str] = []
    fresh = sandboxes({"make test": Outcome(exit_code=0, output=b"ok", seconds=1.0)}, ran)
    briefer = Briefer({}, Shelf(tmp_path / "shelf"))
    workspace, base = await held(FILES)
    first, known = await briefer.command(Ground(workspace, "demo", base), fresh)
    assert (first.command, known, ran) == ("make test", False, ["make test"])
    workspace, base = await held({"README.md": "other"})
    assert (await briefer.command(Ground(workspace, "demo", base), fresh))[1] is True
    workspace, base = await held({"Makefile": "test:\n\t./other\n"})
    assert (await briefer.command(Ground(workspace, "demo", base), fresh))[1] is False
    other = Briefer({"demo": RepositoryConfig(setup=("./install",))}, Shelf(tmp_path / "shelf"))
    assert (await other.command(Ground(workspace, "demo", base), fresh))[1] is False, "another set-up, another proof"
    assert ran == ["make test"] * 3


@pytest.mark.slow
async def test_repository_whose_tests_do_not_run_is_told_with_what_was_tried(held, tmp_path: Path) -> None:
    workspace, base = await held(FILES)
    with pytest.raises(DiscoveryError, match="make test: there is no make") as caught:
        await Briefer({}, Shelf(tmp_path / "shelf")).command(Ground(workspace, "demo", base), sandboxes({}, []))
    assert "repositories.demo.test_command" in caught.value.mend
    assert Shelf(tmp_path / "shelf").load("demo", "") is None, "a failure is not kept"


def test_setting_and_the_persons_word_decide_how_tests_are_judged(tmp_path: Path) -> None:
    briefer = Briefer({"demo": RepositoryConfig(weakened_tests="refuse")}, Shelf(tmp_path))
    assert briefer.rules("demo", released=False) == Rules(refuse_weakened=True)
    assert briefer.rules("other", released=True) == Rules(released=True)


async def test_agent_is_told_guides_and_facts(held) -> None:
    workspace, base = await held(FILES)
    ground = Ground(workspace, "demo", base)
    known = await known_of(ground, ())
    assert [guide.text for guide in known.guides] == ["Use tabs."]
    assert known.notes == (
        "Its files suggest these commands for its tests: make test (by Makefile)",
        "Its continuous integration runs: make test",
    )
    assert (await known_of(ground, (), RepositoryConfig(guides=False))).guides == ()
    assert (await known_of(ground, (), RepositoryConfig(guides=("CLAUDE.md",)))).guides == ()
    assert "pip install x" in (await known_of(ground, (), RepositoryConfig(setup=("pip install x",)))).notes[0]
