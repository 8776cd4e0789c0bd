"""The tools over a real folder, call after call: what they remember, what they refuse, what they bring back."""

from __future__ import annotations

import json

import pytest

from sandbox.testing import ScriptedBackend
from sandbox.types import Command, Outcome, SandboxSpec
from swarm.tools.kit import Toolkit

pytestmark = pytest.mark.slow
LONG = "".join(f"line {n}\n" for n in range(1, 1001))


@pytest.fixture
def kit(desk):
    async def make(files=None, test_command=None):
        opened = await desk(files or {})
        return Toolkit(opened.sandbox, test_command), opened.sandbox.work

    return make


async def test_folder_and_exports_stay_from_call_to_call_until_a_restart(kit) -> None:
    tools, work = await kit({"src/a.py": "x\n"})
    moved = await tools.run("shell", {"command": "cd src; export WHO=me; plain=1"})
    assert ", now in src]" in moved.text
    assert (await tools.run("shell", {"command": "pwd; echo $WHO${plain-none}"})).text.endswith("/src\nmenone")
    assert "at the repository's root again" in (await tools.run("shell", {"restart": True})).text
    told = (await tools.run("shell", {"command": "echo ${WHO-none} $PAGER; pwd -P"})).text
    assert told.endswith(f"none cat\n{work.resolve()}")


async def test_a_session_that_was_broken_can_be_restarted(kit) -> None:
    tools, work = await kit()
    await tools.run("shell", {"command": "mkdir d; cd d; rmdir ../d; export PATH=/nowhere LD_PRELOAD=/nowhere.so"})
    told = (await tools.run("shell", {"command": "ls -d . && pwd -P", "restart": True})).text
    assert told.endswith(f".\n{work.resolve()}")


async def test_a_command_that_is_killed_leaves_the_session_where_it_was(kit) -> None:
    tools, _ = await kit({"src/a.py": "x\n"})
    await tools.run("shell", {"command": "cd src"})
    killed = await tools.run("shell", {"command": "cd /; sleep 60 & sleep 60", "timeout": 0.4})
    assert "did not end within" in killed.text
    assert (await tools.run("shell", {"command": "pwd"})).text.endswith("/src")


async def test_bash_is_spoken_where_it_is(kit) -> None:
    tools, _ = await kit()
    assert (await tools.run("shell", {"command": "a=(1 2 3); [[ ${#a[@]} == 3 ]] && echo ${a[2]}"})).text.endswith("3")


async def test_a_long_output_is_kept_and_shown_by_the_page(kit) -> None:
    tools, _ = await kit()
    result = await tools.run("shell", {"command": "seq 1 9000"})
    assert 'view path "output:1" first' in result.text
    assert "4000\t4000" in (await tools.run("view", {"path": "output:1", "first": 4000, "last": 4001})).text
    assert "not kept any more" in (await tools.run("view", {"path": "output:7"})).text
    assert "has only 9000 lines" in (await tools.run("view", {"path": "output:1", "first": 9001})).text


async def test_a_file_seen_in_part_is_not_written_over_until_it_is_seen_whole(kit) -> None:
    tools, work = await kit({"long.txt": LONG})
    await tools.run("view", {"path": "long.txt"})
    refused = await tools.run("write", {"path": "long.txt", "content": "short\n"})
    assert "only a part" in refused.text
    assert (work / "long.txt").read_text() == LONG
    for first in (401, 801):
        await tools.run("view", {"path": "long.txt", "first": first})
    assert (await tools.run("write", {"path": "long.txt", "content": "short\n"})).changed


async def test_a_file_changed_behind_the_views_back_counts_as_unseen(kit) -> None:
    tools, _ = await kit({"long.txt": LONG})
    for first in (1, 401, 801):
        await tools.run("view", {"path": "long.txt", "first": first})
    await tools.run("shell", {"command": "echo more >>long.txt"})
    assert "you have seen nothing" in (await tools.run("write", {"path": "long.txt", "content": "x\n"})).text
    await tools.run("shell", {"command": "rm long.txt"})
    assert (await tools.run("write", {"path": "long.txt", "content": "x\n"})).changed


async def test_marks_of_what_was_left_out_are_never_written(kit) -> None:
    tools, work = await kit({"a.py": "a = 1\nb = 2\n"})
    lazy = "a = 2\n# ... rest of the file unchanged\n"
    for name, arguments in (
        ("write", {"content": lazy}),
        ("edit", {"search": "b = 2", "replace": lazy}),
        ("edit_lines", {"first": 1, "last": 2, "replace": lazy, "expect": "a = 1\nb = 2"}),
    ):
        result = await tools.run(name, {"path": "a.py", **arguments})
        assert "stands for text that is left out" in result.text
        assert not result.changed
    assert (work / "a.py").read_text() == "a = 1\nb = 2\n"


async def test_lines_are_edited_by_number_only_where_the_numbers_are_known(kit) -> None:
    tools, work = await kit({"a.txt": "a\nb\nc\nd\n" + "x\n" * 20})
    blind = await tools.run("edit_lines", {"path": "a.txt", "first": 2, "replace": "B"})
    assert "have not seen lines 2-2" in blind.text
    assert "2\tb" in blind.text
    assert (await tools.run("edit_lines", {"path": "a.txt", "first": 2, "replace": "B\nB2"})).changed
    moved = await tools.run("edit_lines", {"path": "a.txt", "first": 20, "replace": "y"})
    assert "have not seen" in moved.text
    assert (await tools.run("edit_lines", {"path": "a.txt", "first": 20, "replace": "y", "expect": "x"})).changed
    assert (work / "a.txt").read_text().startswith("a\nB\nB2\nc\nd\n")


async def test_after_a_second_miss_another_way_is_shown(kit) -> None:
    tools, _ = await kit({"a.py": "value = 1\n"})
    miss = {"path": "a.py", "search": "value = 22222", "replace": "x"}
    assert "edit_lines" not in (await tools.run("edit", miss)).text
    assert "miss number 2" in (await tools.run("edit", miss)).text


async def test_an_edit_that_breaks_the_syntax_is_told_with_its_place(kit) -> None:
    tools, _ = await kit({"a.py": "def f():\n    return 1\n", "b.json": '{\n// with a comment\n"a": 1}\n'})
    result = await tools.run("edit", {"path": "a.py", "search": "return 1", "replace": "return (1"})
    assert result.changed
    assert "[a.py does not parse now: line 2:" in result.text
    again = await tools.run("edit", {"path": "a.py", "search": "def f", "replace": "def g"})
    assert "it did not before this either" in again.text
    assert "parse" not in (await tools.run("edit", {"path": "b.json", "search": '"a": 1', "replace": '"a": 2'})).text
    assert "line 1" in (await tools.run("write", {"path": "c.toml", "content": "a = \n"})).text


async def test_a_file_that_is_not_there_is_looked_for_elsewhere(kit) -> None:
    tools, _ = await kit({"src/deep/basket.py": "x\n"})
    assert "src/deep/basket.py" in (await tools.run("view", {"path": "basket.py"})).text
    missed = await tools.run("edit", {"path": "lib/basket.py", "search": "x", "replace": "y"})
    assert "src/deep/basket.py" in missed.text
    assert "Files of that name" not in (await tools.run("view", {"path": "absent.py"})).text


async def test_absolute_paths_into_the_repository_are_understood(kit) -> None:
    tools, work = await kit({"src/a.py": "x = 1\n"})
    for root in (work.resolve(), "/workspace", "/testbed", ".", "./src/..//"):
        told = (await tools.run("view", {"path": f"{root}/./src//a.py"})).text
        assert ("1\tx = 1" in told) == (".." not in str(root))
    assert (await tools.run("view", {"path": "src/"})).text == "src/a.py"
    assert (await tools.run("view", {"path": "/etc/passwd"})).text.startswith("error:")


async def test_a_folder_that_is_none_is_told_and_a_file_is_looked_in(kit) -> None:
    tools, _ = await kit({"src/a.py": "def f():\n    return '\u2028'  # odd\n"})
    for name, words in (("glob", {"pattern": "*.py"}), ("repo_map", {})):
        assert "there is no folder gone" in (await tools.run(name, {**words, "path": "gone"})).text
        assert "src/a.py" in (await tools.run(name, {**words, "path": "src/a.py"})).text
    assert "more than 64" in (await tools.run("glob", {"pattern": "{a,b}" * 9})).text
    assert "more than 64" in (await tools.run("grep", {"pattern": "x", "glob": "{a,b}" * 9})).text
    assert (await tools.run("grep", {"pattern": "odd", "glob": "**/*.{ts,py}"})).text.count("\n") == 0
    assert "one line at a time" in (await tools.run("grep", {"pattern": "f\nreturn"})).text


async def test_a_patch_changes_all_its_files_or_none(kit) -> None:
    tools, work = await kit({"a.py": "a = 1\n", "run.sh": "ls\n", "gone": "x\n"})
    (work / "run.sh").chmod(0o755)
    bad = "*** Begin Patch\n*** Update File: a.py\n-a = 1\n+a = 2\n*** Update File: none.py\n-x\n+y\n*** End Patch"
    result = await tools.run("apply_patch", {"patch": bad})
    assert "there is no file none.py" in result.text
    assert (work / "a.py").read_text() == "a = 1\n"
    good = (
        "*** Begin Patch\n*** Update File: a.py\n-a = 1\n+a = 2\n*** Update File: run.sh\n"
        "*** Move to: bin/run.sh\n-ls\n+pwd\n*** Delete File: gone\n*** Add File: new/b.py\n+b = (\n*** End Patch"
    )
    result = await tools.run("apply_patch", {"patch": good})
    assert result.changed, result.text
    assert "[new/b.py does not parse now" in result.text
    assert sorted(path.relative_to(work).as_posix() for path in work.rglob("*") if path.is_file()) == [
        "a.py",
        "bin/run.sh",
        "new/b.py",
    ]
    assert (work / "bin/run.sh").stat().st_mode & 0o100


async def test_a_patch_that_cannot_be_written_whole_is_taken_back(kit) -> None:
    tools, work = await kit({"a.py": "a = 1\n", "dir/file": "x\n"})
    patch = "*** Begin Patch\n*** Update File: a.py\n-a = 1\n+a = 2\n*** Add File: a.py/b\n+x\n*** End Patch"
    result = await tools.run("apply_patch", {"patch": patch})
    assert result.text.startswith("error:")
    assert (work / "a.py").read_text() == "a = 1\n"


@pytest.mark.parametrize("path", ["../out", "/etc/x", "a/../../x", "link/x", "x\0y", "a" * 5000])
async def test_a_patch_reaches_nothing_outside(kit, path: str) -> None:
    tools, work = await kit({"a": "x\n"})
    (work / "link").symlink_to(work.parent)
    patch = f"*** Begin Patch\n*** Add File: {path}\n+x\n*** End Patch"
    result = await tools.run("apply_patch", {"patch": patch})
    assert not result.changed
    assert sorted(each.name for each in work.parent.iterdir()) == ["home", "work"]


async def test_lines_and_files_are_found(kit) -> None:
    tools, work = await kit({"src/a.py": "import os\nx = os.path\n", "src/b.txt": "os\n", "web/c.tsx": "let os\n"})
    found = (await tools.run("grep", {"pattern": r"\bos\b", "glob": "*.py"})).text
    assert found == "src/a.py:1:import os\nsrc/a.py:2:x = os.path"
    assert "no line matches" in (await tools.run("grep", {"pattern": "absent"})).text
    assert (await tools.run("grep", {"pattern": "("})).text.startswith("error: grep:")
    assert (await tools.run("grep", {"pattern": "x", "path": "../.."})).text.startswith("error:")
    assert (await tools.run("glob", {"pattern": "**/*.{py,tsx}"})).text == "src/a.py\nweb/c.tsx"
    assert (await tools.run("glob", {"pattern": f"{work.resolve()}/src/*"})).text == "src/a.py\nsrc/b.txt"
    assert "no file matches" in (await tools.run("glob", {"pattern": "*.rs"})).text


async def test_a_pattern_that_never_ends_is_ended(kit) -> None:
    tools, _ = await kit({"a.txt": "a" * 5000 + "!\n"})
    result = await tools.run("grep", {"pattern": "(a+)+$"}, seconds=1.0)
    assert "did not end within" in result.text


async def test_many_matches_are_shown_in_part_and_kept(kit) -> None:
    tools, _ = await kit({"a.txt": "match\n" * 300})
    result = await tools.run("grep", {"pattern": "match"})
    assert "[150 of 300 lines are shown" in result.text
    assert "a.txt:300:match" in (await tools.run("view", {"path": "output:1", "first": 300})).text


async def test_tests_are_told_apart_and_compared_with_the_last_run(kit) -> None:
    tools, work = await kit(
        {
            "m.py": "x = 1\n",
            "test_m.py": "from m import x\n\n\ndef test_x():\n    assert x == 2\n\n\ndef test_y():\n    pass\n",
        },
        "/usr/bin/python3 -m pytest -q",
    )
    first = await tools.run("run_tests", {})
    assert first.text.startswith("[tests: 1 failed, 1 passed; exit code 1")
    assert "FAILED test_m.py::test_x\n" in first.text
    assert "E       assert 1 == 2" in first.text
    assert not first.ok
    assert "output:" not in first.text, "all is told"
    (work / "m.py").write_text("x = 2\n")
    assert "[tests: 1 passed;" in (await tools.run("run_tests", {"only": "test_m.py::test_x"})).text
    second = await tools.run("run_tests", {})
    assert second.ok
    assert "1 that failed now passes: test_m.py::test_x" in second.text
    assert sorted(path.name for path in work.iterdir()) == ["m.py", "test_m.py"]


async def test_a_command_that_tells_no_tests_apart_is_shown_as_it_is(kit) -> None:
    tools, _ = await kit({}, "echo checked; exit 4")
    assert (await tools.run("run_tests", {})).text.startswith("[exit code 4,")
    assert (await tools.run("run_tests", {"only": "test_a"})).text.startswith(
        "[this test command cannot be narrowed to some tests: all were run]\n[exit code 4,"
    )


async def test_a_map_shows_what_matters_and_where(kit) -> None:
    tools, _ = await kit(
        {
            "core.py": "class Basket:\n    def total(self):\n        return 1\n",
            "app.py": "from core import Basket\n\n\ndef main():\n    Basket().total()\n",
        }
    )
    text = (await tools.run("repo_map", {})).text
    assert text.startswith("core.py:\n    1  class Basket:\n    2    def total(self):")
    assert "[2 of 2 files are shown]" in text


async def test_what_is_remembered_outlives_a_restart(kit, desk) -> None:
    tools, _ = await kit(
        {"long.txt": LONG, "t.py": "def test_a():\n    assert 0\n"}, "/usr/bin/python3 -m pytest -q t.py"
    )
    past = [
        await tools.run("view", {"path": "long.txt"}),
        await tools.run("view", {"path": "long.txt", "first": 401}),
        await tools.run("view", {"path": "long.txt", "first": 801}),
        await tools.run("shell", {"command": "seq 1 9000"}),
        await tools.run("run_tests", {}),
        await tools.run("task_list", {"items": "[x] look\n[ ] mend"}),
    ]
    lines = json.loads(json.dumps([dict(result.data) for result in past]))
    again = Toolkit(tools._tester._sandbox, "/usr/bin/python3 -m pytest -q t.py")
    again.recall(lines)
    assert (await again.run("write", {"path": "long.txt", "content": "x\n"})).changed
    assert "no test changed" in (await again.run("run_tests", {})).text
    assert "not kept any more" in (await again.run("view", {"path": "output:1"})).text
    assert 'path "output:2"' in (await again.run("shell", {"command": "seq 1 9000"})).text


async def test_a_question_and_an_end_are_handed_on(kit) -> None:
    tools, _ = await kit()
    assert (await tools.run("ask", {"question": "which?"})).ask == "which?"
    done = await tools.run("finish", {"title": "t", "summary": "s"})
    assert done.finish is not None
    assert done.finish.title == "t"
    assert (await tools.run("task_list", {"items": ["a", {"content": "b", "status": "completed"}]})).text.startswith(
        "1 of 2"
    )


@pytest.mark.parametrize("name", ["view", "write", "edit", "edit_lines"])
async def test_devices_folders_and_pipes_are_no_files(kit, name: str) -> None:
    tools, _ = await kit({"d/a": "x\n"})
    await tools.run("shell", {"command": "mkfifo pipe; ln -s /dev/zero zero"})
    more = {
        "view": {},
        "write": {"content": "x"},
        "edit": {"search": "x", "replace": "y"},
        "edit_lines": {"first": 1, "replace": "y"},
    }
    for path in ("pipe", "zero", "d"):
        result = await tools.run(name, {"path": path, **more[name]})
        assert result.text.startswith("error:") or (name, path) == ("view", "d")


def only_with(*programs: str):
    """A sandbox in which of the programs that search these alone are there; each has what it was asked for."""
    asked: list[tuple[str, ...]] = []

    def script(command: Command, _: object) -> Outcome | None:
        if command.argv[0] not in ("rg", "python3", "grep"):
            return None
        asked.append(command.argv)
        return None if command.argv[0] in programs else Outcome(exit_code=127, output=b"", seconds=0.0)

    return script, asked


@pytest.mark.parametrize(("programs", "used"), [(("python3", "grep"), "python3"), (("grep",), "grep")])
async def test_whatever_can_search_inside_is_used(programs: tuple[str, ...], used: str) -> None:
    script, asked = only_with(*programs)
    async with ScriptedBackend(script).open(SandboxSpec()) as box:
        await box.write("src/a.py", b"import os\nx = 12\n")
        tools = Toolkit(box, None)
        assert (await tools.run("grep", {"pattern": r"x = \d+"})).text == "src/a.py:2:x = 12"
        assert asked[-1][0] == used
        assert (await tools.run("grep", {"pattern": "(?:"})).text.startswith("error: grep:")


async def test_without_anything_that_can_search_that_is_said() -> None:
    script, _ = only_with()
    async with ScriptedBackend(script).open(SandboxSpec()) as box:
        result = await Toolkit(box, None).run("grep", {"pattern": "x"})
    assert "neither rg, python3 nor grep is there" in result.text


async def test_what_ripgrep_refuses_the_next_one_is_asked() -> None:
    def script(command: Command, _: object) -> Outcome | None:
        return Outcome(exit_code=2, output=b"no look-around", seconds=0.0) if command.argv[0] == "rg" else None

    async with ScriptedBackend(script).open(SandboxSpec()) as box:
        await box.write("a.py", b"import os\n")
        assert (await Toolkit(box, None).run("grep", {"pattern": "(?<=im)port"})).text == "a.py:1:import os"
