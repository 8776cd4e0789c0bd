"""What decides how tests come out is put back to the base; what the program is made of counts."""

from __future__ import annotations

import pytest

from swarm.evaluation.case import File, Hidden
from swarm.evaluation.steering import judge_of, places, steers

PLAIN = Hidden(
    command="python -m pytest -q tests/test_hidden.py", files=(File(path="tests/test_hidden.py", content=b""),)
)
BASE = {b"src/app.py", b"calendar.py", b"setup.cfg"}


@pytest.mark.parametrize(
    "path",
    [
        "conftest.py", "src/conftest.py", "pytest.ini", "pyproject.toml", "setup.cfg", "tox.ini",
        "src/sitecustomize.py", "usercustomize.py", "tests/test_other.py", "test_more.py", "pytest.py",
        "pytest/__init__.py", "_pytest/main.py",
        "pluggy.py", "unittest/__init__.py", "json.py", "typing.py", "os/__init__.py", "argparse.py", "iniconfig.py",
        "evil.egg-info/entry_points.txt", "x/evil.dist-info/entry_points.txt", "src/__pycache__/app.cpython-311.pyc",
        "app.pyc", "evil.pth", "src/fast.so", "Makefile",
    ],
)  # fmt: skip
def test_what_steers_tests_does_not_count(path: str) -> None:
    assert not judge_of(PLAIN, BASE)(path.encode())


@pytest.mark.parametrize("path", ["src/app.py", "src/json.py", "calendar.py", "app/os.py", "README.md", "src/new.py"])
def test_what_the_program_is_made_of_counts(path: str) -> None:
    assert judge_of(PLAIN, BASE)(path.encode())


@pytest.mark.parametrize("path", ["tests", "tests/test_hidden.py", "tests/test_hidden.py/x"])
def test_nothing_may_take_the_place_of_a_hidden_test_or_lead_to_it(path: str) -> None:
    hidden = Hidden(command="true", files=PLAIN.files, paths=("tests", "tests/", "tests/test_hidden.py"))
    assert not judge_of(hidden, BASE)(path.encode())


def test_where_paths_are_named_nothing_else_counts() -> None:
    counts = judge_of(PLAIN.model_copy(update={"paths": ("src/app.py", "lib/")}), BASE)
    assert counts(b"src/app.py")
    assert counts(b"lib/deep/er.py")
    assert not counts(b"src/other.py")
    assert not counts(b"library.py")
    assert not counts(b"src/app.py/x")


def test_the_paths_of_a_hidden_patch_are_the_judges() -> None:
    patch = "--- a/tests/old.py\n+++ b/tests/old.py\n@@ -1 +1 @@\n-a\n+b\n"
    patch += "--- /dev/null\n+++ b/tests/new.py\n@@ -0,0 +1 @@\n+c\n"
    hidden = Hidden(command="true", patch=patch, removed=("gone/",), paths=("tests/", "gone/", "src/"))
    assert {"tests/old.py", "tests/new.py", "gone"} <= set(places(hidden))
    counts = judge_of(hidden, BASE)
    assert not counts(b"tests/new.py")
    assert not counts(b"gone/a.py")
    assert counts(b"src/a.py")


def test_a_script_that_the_command_names_is_the_judges() -> None:
    assert steers("run_checks.sh", "sh ./run_checks.sh", new=True)
    assert not steers("other.py", "sh ./run_checks.sh", new=True)


def test_undecodable_names_are_judged_as_well() -> None:
    assert judge_of(PLAIN, BASE)(b"src/\xff.py")
    assert not judge_of(PLAIN, BASE)(b"\xff/conftest.py")
