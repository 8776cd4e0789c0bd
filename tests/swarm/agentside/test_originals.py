"""The base's own files come back whatever a proposal put in their way, and nothing else is touched."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox.testing import ScriptedBackend
from sandbox.types import SandboxSpec
from swarm.originals import TooLargeError, originals_of, put_back


def a_file(work: Path) -> None:
    (work / "tests").write_text("no folder any more\n")


def a_link_to_itself(work: Path) -> None:
    (work / "tests").symlink_to("tests")


def a_link_out(work: Path) -> None:
    (work.parent / "outside" / "unit").mkdir(parents=True)
    (work.parent / "outside/unit/test_a.py").write_text("outside\n")
    (work / "tests").symlink_to("../outside")


def a_link_to_other_files(work: Path) -> None:
    (work / "alt/unit").mkdir(parents=True)
    (work / "alt/unit/test_a.py").write_text("the proposal's\n")
    (work / "tests").symlink_to("alt")


def a_link_deeper_down(work: Path) -> None:
    (work / "alt").mkdir()
    (work / "alt/test_a.py").write_text("the proposal's\n")
    (work / "tests").mkdir()
    (work / "tests/unit").symlink_to("../alt")


def a_link_in_its_own_place(work: Path) -> None:
    (work / "tests/unit").mkdir(parents=True)
    (work / "alt").write_text("the proposal's\n")
    (work / "tests/unit/test_a.py").symlink_to("../../alt")


def a_folder_in_its_own_place(work: Path) -> None:
    (work / "tests/unit/test_a.py").mkdir(parents=True)


WAYS = [
    a_file,
    a_link_to_itself,
    a_link_out,
    a_link_to_other_files,
    a_link_deeper_down,
    a_link_in_its_own_place,
    a_folder_in_its_own_place,
]


@pytest.mark.parametrize("way", WAYS, ids=[way.__name__ for way in WAYS])
async def test_whatever_is_in_the_way_of_the_bases_tests_makes_way(way) -> None:
    async with ScriptedBackend().open(SandboxSpec()) as sandbox:
        way(sandbox.work)
        before = _others(sandbox.folder)
        await put_back(sandbox, {"tests/unit/test_a.py": (b"the base's\n", True), "tests/unit/test_new.py": None})
        place = sandbox.work / "tests/unit/test_a.py"
        assert place.read_text() == "the base's\n"
        assert not any((sandbox.work / each).is_symlink() for each in ("tests", "tests/unit", "tests/unit/test_a.py"))
        assert place.stat().st_mode & 0o100
        assert not (sandbox.work / "tests/unit/test_new.py").exists()
        assert _others(sandbox.folder) == before


async def test_file_that_the_base_lacks_goes_without_its_folder_being_followed() -> None:
    async with ScriptedBackend().open(SandboxSpec()) as sandbox:
        (sandbox.work / "lib").mkdir()
        (sandbox.work / "lib/test_new.py").write_text("kept\n")
        (sandbox.work / "spec").symlink_to("lib")
        await put_back(sandbox, {"spec/test_new.py": None})
        assert (sandbox.work / "lib/test_new.py").read_text() == "kept\n"
        assert not (sandbox.work / "spec").is_symlink()


async def test_names_are_never_taken_for_options_or_patterns() -> None:
    names = ["-rf/test_a.py", "a b/*/test_a.py", "tests/line\nbreak.py", "$(touch x)/test_a.py"]
    async with ScriptedBackend().open(SandboxSpec()) as sandbox:
        (sandbox.work / "-rf").write_text("a file")
        (sandbox.work / "other").write_text("kept")
        await put_back(sandbox, dict.fromkeys(names, (b"x", False)))
        assert all((sandbox.work / name).read_bytes() == b"x" for name in names)
        assert sorted(each.name for each in sandbox.work.iterdir()) == sorted(
            ["-rf", "a b", "tests", "$(touch x)", "other"]
        )


async def test_what_the_base_has_is_read_with_its_executable_bit() -> None:
    async with ScriptedBackend().open(SandboxSpec()) as sandbox:
        (sandbox.work / "check.sh").write_text("true\n")
        (sandbox.work / "check.sh").chmod(0o755)
        (sandbox.work / "plain").write_text("p")
        (sandbox.work / "folder").mkdir()
        found = await originals_of(sandbox, ["check.sh", "plain", "folder", "nothing"])
        assert found == {"check.sh": (b"true\n", True), "plain": (b"p", False), "folder": None, "nothing": None}


async def test_more_than_can_be_held_is_told_as_the_doing_of_the_change() -> None:
    async with ScriptedBackend().open(SandboxSpec()) as sandbox:
        (sandbox.work / "a").write_text("1" * 70)
        (sandbox.work / "b").write_text("2" * 31)
        assert len(await originals_of(sandbox, ["a", "b"], most=101)) == 2
        with pytest.raises(TooLargeError, match=r"touches more than 100 bytes of the base's tests.*: b and others"):
            await originals_of(sandbox, ["a", "b"], most=100)


def _others(folder: Path) -> dict[str, str]:
    """All plain files outside the place of the tests."""
    found = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    texts = {str(path.relative_to(folder)): path.read_text() for path in found}
    return {path: text for path, text in texts.items() if not path.startswith("work/tests")}
