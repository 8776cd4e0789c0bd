"""The agent's tools in real sandboxes: the shell's session, search, the tests' report and the map, on every backend."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sandbox.base import SandboxBackend
from sandbox.types import MIB, Limits, SandboxSpec
from swarm.tools.kit import Toolkit

pytestmark = pytest.mark.slow
SPEC = SandboxSpec(limits=Limits(memory=256 * MIB, processes=64, disk=32 * MIB, wall=60))
FILES = {
    "src/core.py": "class Basket:\n    def total(self):\n        return 1\n",
    "src/app.py": "from src.core import Basket\n\n\ndef main():\n    return Basket().total()\n",
    "test_core.py": "import unittest\n\nfrom src.core import Basket\n\n\nclass T(unittest.TestCase):\n"
    "    def test_total(self):\n        self.assertEqual(Basket().total(), 2)\n",
    "ignored/x.py": "class Basket: pass\n",
    ".gitignore": "ignored\n",
}


@pytest.fixture
async def tools(backend: SandboxBackend) -> AsyncIterator[Toolkit]:
    """The tools on a sandbox that holds a small repository."""
    async with backend.open(SPEC) as box:
        for path, content in FILES.items():
            await box.write(path, content.encode())
        kit = Toolkit(box, "python3 -m unittest -v")
        await kit.run("shell", {"command": "git init -q . && git add -A"})
        yield kit


async def said(kit: Toolkit, name: str, **arguments: object) -> str:
    return (await kit.run(name, arguments)).text


async def test_the_shell_goes_on_where_it_was_until_it_is_restarted(tools: Toolkit) -> None:
    assert ", now in src]" in await said(tools, "shell", command="cd src; export A='x y'")
    assert (await said(tools, "shell", command='ls; echo "$A $PAGER"')).endswith("app.py\ncore.py\nx y cat")
    nap = f"sleep 5{time.time_ns() % 10**9}"
    assert "did not end within" in await said(tools, "shell", command=f"cd /; {nap} & {nap}", timeout=0.5)
    left = await said(tools, "shell", command=f"basename $(pwd); pgrep -x -f '{nap}' 2>/dev/null || echo gone")
    assert left.endswith("src\ngone")
    await said(tools, "shell", restart=True)
    assert (await said(tools, "shell", command="ls -d src; echo ${A-none}")).endswith("src\nnone")


async def test_lines_and_files_of_the_project_are_found_and_ignored_ones_are_not(tools: Toolkit) -> None:
    assert (
        await said(tools, "grep", pattern=r"class \w+")
        == "src/core.py:1:class Basket:\ntest_core.py:6:class T(unittest.TestCase):"
    )
    assert await said(tools, "glob", pattern="*.py") == "src/app.py\nsrc/core.py\ntest_core.py"
    assert (await said(tools, "grep", pattern="(a+)+$", path="..")).startswith("error:")


async def test_the_map_is_drawn_from_what_is_inside(tools: Toolkit) -> None:
    text = await said(tools, "repo_map")
    assert text.startswith("src/core.py:\n    1  class Basket:\n    2    def total(self):")
    assert "[3 of 4 files are shown" in text


async def test_tests_are_told_apart_and_leave_nothing_behind(tools: Toolkit) -> None:
    told = await said(tools, "run_tests")
    assert told.startswith("[tests: 1 failed, 0 passed; exit code 1")
    assert "AssertionError: 1 != 2" in told
    await said(tools, "edit", path="src/core.py", search="return 1", replace="return 2")
    assert "1 that failed now passes" in await said(tools, "run_tests")
    left = await said(tools, "shell", command="git diff --name-only; git ls-files --others --exclude-standard")
    assert left.partition("\n")[2] == "src/core.py"


async def test_what_is_changed_is_judged_by_the_python_inside(tools: Toolkit) -> None:
    assert "does not parse now: line 2:" in await said(tools, "write", path="new.py", content="x = 1\ny = (\n")


async def test_nothing_outside_is_shown_or_written(tools: Toolkit, tmp_path: Path) -> None:
    await said(tools, "shell", command="ln -s /etc out; ln -s /etc/passwd one")
    for name, more in (("view", {}), ("write", {"content": "x"}), ("edit", {"search": "root", "replace": "x"})):
        for path in ("out/passwd", "one", "../x", "/etc/passwd"):
            text = await said(tools, name, path=path, **more)
            assert text.startswith("error:")
            assert "root:" not in text
