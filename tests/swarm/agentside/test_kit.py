"""The tools on a real folder: what they do and what they refuse."""

from __future__ import annotations

import pytest

from swarm.tools.kit import Toolkit
from swarm.tools.specs import specs


@pytest.fixture
def kit(desk):
    async def make(files=None, test_command=None):
        opened = await desk(files or {})
        return Toolkit(opened.sandbox, test_command), opened.sandbox.work

    return make


async def test_shell_tells_exit_code_and_output(kit) -> None:
    tools, _ = await kit()
    result = await tools.run("shell", {"command": "echo hi; exit 3"})
    assert result.text.startswith("[exit code 3,")
    assert result.text.endswith("hi")
    assert not result.ok


async def test_endless_command_is_ended_and_said_so(kit) -> None:
    tools, _ = await kit()
    result = await tools.run("shell", {"command": "while :; do :; done", "timeout": 0.5})
    assert "did not end within" in result.text


async def test_the_callers_bound_holds_over_the_models(kit) -> None:
    tools, _ = await kit()
    result = await tools.run("shell", {"command": "sleep 60", "timeout": 3600}, seconds=0.3)
    assert "did not end within" in result.text


async def test_huge_output_is_shortened(kit) -> None:
    tools, _ = await kit()
    result = await tools.run("shell", {"command": "yes aaaaaaaaaaaaaaaaaaaaaaaaaaaaa | head -c 3000000"})
    assert len(result.text) < 13_000
    assert "left out" in result.text


async def test_control_characters_do_not_get_through(kit) -> None:
    tools, _ = await kit()
    result = await tools.run("shell", {"command": r"printf '\033[2Jgone\000\007'"})
    assert result.text.endswith("gone")


async def test_nothing_waits_for_input(kit) -> None:
    tools, _ = await kit()
    result = await tools.run("shell", {"command": "cat; read x; echo over"}, seconds=10)
    assert "over" in result.text


async def test_view_numbers_lines_and_takes_ranges(kit) -> None:
    tools, _ = await kit({"a.txt": "".join(f"line {n}\n" for n in range(1, 1001))})
    assert (await tools.run("view", {"path": "a.txt", "first": 10, "last": 11})).text.startswith(
        "10\tline 10\n11\tline 11"
    )
    whole = await tools.run("view", {"path": "a.txt"})
    assert "lines 1-400 of 1000 are shown; go on with first 401" in whole.text
    assert "only 1000 lines" in (await tools.run("view", {"path": "a.txt", "first": 2000})).text


async def test_view_of_a_folder_lists_it(kit) -> None:
    tools, _ = await kit({"src/a.py": "x", "src/b/c.py": "y"})
    assert "src/b/c.py" in (await tools.run("view", {"path": "src"})).text
    assert "src/a.py" in (await tools.run("view", {"path": "."})).text


async def test_view_of_a_binary_or_empty_file_says_so(kit) -> None:
    tools, _ = await kit({"b": b"\0\1\2", "e": b""})
    assert "binary" in (await tools.run("view", {"path": "b"})).text
    assert "empty" in (await tools.run("view", {"path": "e"})).text


@pytest.mark.parametrize("path", ["../secret", "/etc/passwd", "a/../../secret", "link/secret"])
@pytest.mark.parametrize("tool", ["view", "edit", "write"])
async def test_path_outside_is_refused(kit, path: str, tool: str) -> None:
    tools, work = await kit()
    secret = work.parent / "secret"
    secret.write_text("hidden")
    (work / "link").symlink_to(work.parent)
    arguments = {"view": {}, "edit": {"search": "hidden", "replace": "x"}, "write": {"content": "x"}}[tool]
    result = await tools.run(tool, {"path": path, **arguments})
    assert result.text.startswith("error:")
    assert "hidden" not in result.text
    assert not result.changed
    assert secret.read_text() == "hidden"


async def test_edit_shows_the_place_and_keeps_the_executable_bit(kit) -> None:
    tools, work = await kit({"run.sh": "#!/bin/sh\necho one\n"})
    (work / "run.sh").chmod(0o755)
    result = await tools.run("edit", {"path": "run.sh", "search": "echo one", "replace": "echo two"})
    assert "2\techo two" in result.text
    assert (work / "run.sh").read_text() == "#!/bin/sh\necho two\n"
    assert (work / "run.sh").stat().st_mode & 0o111


async def test_ambiguous_edit_changes_nothing(kit) -> None:
    tools, work = await kit({"a": "x\nx\n"})
    result = await tools.run("edit", {"path": "a", "search": "x", "replace": "y"})
    assert "2 times" in result.text
    assert not result.changed
    assert (work / "a").read_text() == "x\nx\n"


async def test_file_too_large_to_read_whole_is_never_written_back(kit) -> None:
    tools, work = await kit({"big": b"needle\n" + b"x" * 4_000_100})
    result = await tools.run("edit", {"path": "big", "search": "needle", "replace": "pin"})
    assert "too large" in result.text
    assert (work / "big").stat().st_size == 4_000_107


async def test_write_makes_folders(kit) -> None:
    tools, work = await kit()
    result = await tools.run("write", {"path": "./new/deep/file.py", "content": "x = 1\n"})
    assert result.changed
    assert (work / "new/deep/file.py").read_text() == "x = 1\n"


@pytest.mark.parametrize(
    ("tool", "arguments", "told"),
    [
        ("view", {}, "path"),
        ("view", {"path": "a", "first": 0}, "first"),
        ("view", {"path": "a", "first": 9, "last": 2}, "last comes before first"),
        ("shell", {"command": "ls", "sudo": True}, "sudo"),
        ("shell", {"command": ""}, "command"),
        ("shell", {"command": "ls\0"}, "NUL"),
        ("write", {"path": "a"}, "content"),
        ("finish", {}, "title"),
    ],
)
async def test_wrong_arguments_are_told_by_name(kit, tool: str, arguments: dict, told: str) -> None:
    tools, _ = await kit()
    result = await tools.run(tool, arguments)
    assert result.text.startswith("error:")
    assert told in result.text
    assert not result.changed


async def test_tests_without_a_command_are_an_error_in_words(kit) -> None:
    tools, _ = await kit()
    assert "no test command" in (await tools.run("run_tests", {})).text


async def test_tests_leave_no_bytecode_and_no_cache_behind(kit) -> None:
    tools, work = await kit(
        {"m.py": "x = 1\n", "test_m.py": "from m import x\n\n\ndef test_x():\n    assert x == 1\n"},
        "/usr/bin/python3 -m pytest -q",
    )
    result = await tools.run("run_tests", {})
    assert result.ok, result.text
    assert sorted(path.name for path in work.iterdir()) == ["m.py", "test_m.py"]


def test_schemas_are_plain() -> None:
    for spec in specs(testable=True):
        assert spec.description
        assert "$ref" not in str(spec.parameters)
        assert "anyOf" not in str(spec.parameters)
        assert spec.parameters["additionalProperties"] is False
    assert "run_tests" not in {spec.name for spec in specs(testable=False)}
