"""Tests stay the measure of the work, however a call names or changes them."""

from __future__ import annotations

import pytest

from pool.testing import call
from swarm.agent import Agent
from tests.swarm.agentside.conftest import OpenDesk

TEST = "def test_b():\n    assert f() == 2\n"
FILES = {"b.py": "def f():\n    return 1\n", "test_b.py": TEST}
TESTS = "grep -q 'return 2' b.py || { echo 'AssertionError: 1 != 2'; false; }"
FINISH = call("finish", title="t")


def patch(*lines: str):
    return call("apply_patch", patch="\n".join(("*** Begin Patch", *lines, "*** End Patch")))


BENT = patch("*** Update File: test_b.py", "@@", "-    assert f() == 2", "+    assert True")
BENDING = {
    "updated": BENT,
    "deleted": patch("*** Delete File: test_b.py"),
    "moved away": patch("*** Update File: test_b.py", "*** Move to: b_old.py", "@@", "-def test_b():", "+def b():"),
    "beside a mend": patch(
        "*** Update File: b.py", "@@", "-    return 1", "+    return 3", "*** Delete File: ./test_b.py"
    ),
    "a unified diff": call(
        "apply_patch",
        patch="--- a/test_b.py\n+++ b/test_b.py\n@@ -2 +2 @@\n-    assert f() == 2\n+    assert True\n",
    ),
    "by the root": call("write", path="/workspace/test_b.py", content="def test_b():\n    pass\n"),
    "by a dot": call("edit", path="./test_b.py", search="f() == 2", replace="True"),
}


@pytest.mark.parametrize("bend", BENDING.values(), ids=BENDING.keys())
async def test_a_test_is_asked_about_before_it_is_changed(desk: OpenDesk, bend) -> None:
    at = await desk(FILES, [bend, FINISH, FINISH], test_command=TESTS)
    await Agent().work(at.work)
    assert {path: at.text(path) for path in FILES} == FILES
    told = at.pool.requests[1].messages[-1].content
    assert "test_b.py is a test" in told
    assert "unchanged" in told


async def test_whoever_insists_on_a_patch_is_let_through(desk: OpenDesk) -> None:
    at = await desk(FILES, [BENT, BENT, FINISH, FINISH], test_command=TESTS)
    await Agent().work(at.work)
    assert "assert True" in at.text("test_b.py")


async def test_a_patch_of_code_and_new_tests_is_asked_nothing(desk: OpenDesk) -> None:
    mend = patch(
        "*** Update File: b.py", "@@", "-    return 1", "+    return 2", "*** Add File: test_more.py", "+x = 1"
    )
    at = await desk(FILES, [mend, FINISH], test_command=TESTS)
    assert (await Agent().work(at.work)).ending == "finished"
    assert at.text("test_more.py") == "x = 1\n"


async def test_a_patch_that_cannot_be_read_is_left_to_its_tool(desk: OpenDesk) -> None:
    at = await desk(FILES, [call("apply_patch", patch="test_b.py"), FINISH, FINISH], test_command=TESTS)
    await Agent().work(at.work)
    assert "not applied" in at.pool.requests[1].messages[-1].content
