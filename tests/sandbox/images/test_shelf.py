"""A shelf makes a thing once, never lets go of one in use, keeps within its bounds, and trusts no folder of others."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from sandbox.errors import SandboxError, SandboxUnavailableError
from sandbox.images.shelf import Bounds, Shelf

MIB = 1024 * 1024


def thing(size: int = MIB, pause: float = 0, made: list[str] | None = None):
    async def make(folder: Path) -> None:
        if made is not None:
            made.append(folder.name)
        await asyncio.sleep(pause)
        (folder / "data").write_bytes(b"x" * size)

    return make


def sound(folder: Path) -> bool:
    return (folder / "data").is_file()


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path / "shelf", Bounds(most=10 * MIB, floor=0))


async def put(shelf: Shelf, name: str, *, used: float) -> None:
    async with shelf.hold(name, thing(), sound):
        pass
    os.utime(shelf.folder / name, (used, used))


async def test_the_least_recently_used_goes_first_and_nothing_in_use_goes(shelf: Shelf) -> None:
    for at, name in enumerate(("old", "middle", "new")):
        await put(shelf, name, used=1000.0 + at)
    async with shelf.hold("old", thing(), sound) as place:
        os.utime(place, (1, 1))
        assert [kept.name for kept in shelf.prune(keep=0, dry=True)] == ["middle", "new"]
        assert len(shelf.kept()) == 3, "a dry run removes nothing"
        assert [kept.busy for kept in shelf.kept()] == [True, False, False]
        assert [kept.name for kept in shelf.prune(keep=2 * MIB + MIB // 2)] == ["middle"]
        assert {kept.name for kept in shelf.prune()} == {"new"}
        assert (place / "data").is_file()
    assert [kept.name for kept in shelf.prune()] == ["old"]
    assert sorted(each.name for each in shelf.folder.iterdir()) == []


async def test_what_was_used_lately_can_be_spared(shelf: Shelf) -> None:
    await put(shelf, "old", used=1000)
    await put(shelf, "new", used=2000)
    assert [kept.name for kept in shelf.prune(unused_since=1500)] == ["old"]


async def test_room_is_made_for_something_new(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path / "shelf", Bounds(most=2 * MIB + MIB // 2, floor=0))
    for at in range(5):
        await put(shelf, f"t{at}", used=1000.0 + at)
    assert [kept.name for kept in shelf.kept()] == ["t2", "t3", "t4"]  # two fitted before the last was made


async def test_below_the_floor_old_things_go_and_nothing_new_is_made(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path / "shelf", Bounds(most=1 << 40, floor=0))
    await put(shelf, "old", used=1000)
    full = Shelf(tmp_path / "shelf", Bounds(most=1 << 40, floor=1 << 60))
    async with full.hold("old", thing(), sound):
        pass  # what is there may be used
    with pytest.raises(SandboxUnavailableError, match="mend: free some space"):
        async with full.hold("new", thing(), sound):
            pass
    assert full.kept() == ()


async def test_what_cannot_be_made_leaves_nothing_and_can_be_tried_again(shelf: Shelf) -> None:
    async def fail(folder: Path) -> None:
        (folder / "half").write_bytes(b"x")
        raise SandboxError("no")

    for _ in range(2):
        with pytest.raises(SandboxError, match="no"):
            async with shelf.hold("x", fail, sound):
                pass
    assert [each for each in shelf.folder.iterdir() if each.is_dir()] == []
    async with shelf.hold("x", thing(), sound) as place:
        assert sound(place)


async def test_a_maker_that_is_cancelled_hands_on_to_the_next(shelf: Shelf) -> None:
    made: list[str] = []

    async def hold() -> None:
        async with shelf.hold("x", thing(pause=0.5, made=made), sound):
            pass

    first = asyncio.create_task(hold())
    second = asyncio.create_task(hold())
    while not made:  # noqa: ASYNC110 - both may be the maker
        await asyncio.sleep(0.01)
    (first if len(made) == 1 else second).cancel()
    results = await asyncio.gather(first, second, return_exceptions=True)
    assert sum(isinstance(result, asyncio.CancelledError) for result in results) == 1
    assert sound(shelf.folder / "x")
    assert [kept.name for kept in shelf.kept()] == ["x"]


MAKER = """
import asyncio, sys
from pathlib import Path
from sandbox.images.shelf import Bounds, Shelf
async def make(folder):
    with open(sys.argv[2], "a") as log: log.write("made\\n")
    await asyncio.sleep(0.3)
    (folder / "data").write_bytes(b"x")
async def main():
    async with Shelf(Path(sys.argv[1]), Bounds(1 << 30, 0)).hold("x", make, lambda folder: (folder / "data").is_file()):
        await asyncio.sleep(float(sys.argv[3]))
asyncio.run(main())
"""


def process(shelf: Shelf, log: Path, hold: float = 0) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", MAKER, str(shelf.folder), str(log), str(hold)])


@pytest.mark.slow
async def test_two_processes_that_race_make_it_once(shelf: Shelf, tmp_path: Path) -> None:
    racing = [process(shelf, tmp_path / "log") for _ in range(2)]
    assert [await asyncio.to_thread(each.wait, 60) for each in racing] == [0, 0]
    assert (tmp_path / "log").read_text() == "made\n"


@pytest.mark.slow
async def test_what_another_process_uses_stays_and_what_a_killed_one_left_goes(shelf: Shelf, tmp_path: Path) -> None:
    user = process(shelf, tmp_path / "log", hold=60)
    try:
        until = time.monotonic() + 30
        while not (shelf.folder / "x" / "data").exists() and time.monotonic() < until:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        await asyncio.sleep(0.1)
        assert shelf.prune() == ()
    finally:
        user.kill()
        user.wait()
    left = [shelf.folder / ".new-y-0a0b0c0d", shelf.folder / ".spare-0a0b0c0d"]
    for half in left:
        half.mkdir()
    with shelf.spare() as own:
        await put(shelf, "z", used=1000)
        assert own.is_dir()
    assert not any(half.exists() for half in [*left, own])
    assert {kept.name for kept in shelf.prune()} == {"x", "z"}


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777, 0o755])
async def test_a_folder_that_others_can_use_is_not_used(shelf: Shelf, mode: int) -> None:
    shelf.folder.mkdir()
    shelf.folder.chmod(mode)
    with pytest.raises(SandboxUnavailableError, match="mode 700"):
        async with shelf.hold("x", thing(), sound):
            pass


async def test_a_folder_that_is_a_link_is_not_used(shelf: Shelf, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    shelf.folder.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(SandboxUnavailableError, match="mode 700"):
        async with shelf.hold("x", thing(), sound):
            pass


@pytest.mark.root
async def test_a_folder_of_another_user_is_not_used(shelf: Shelf) -> None:
    shelf.folder.mkdir(mode=0o700)
    os.chown(shelf.folder, 12345, 12345)
    with pytest.raises(SandboxUnavailableError, match="of this user"):
        async with shelf.hold("x", thing(), sound):
            pass


def test_there_is_nothing_where_no_folder_was_made(shelf: Shelf) -> None:
    assert shelf.kept() == shelf.prune() == ()
    assert not shelf.folder.exists()


@pytest.mark.root
def test_another_users_folder_is_told_in_words(shelf: Shelf) -> None:
    shelf.folder.mkdir(mode=0o700)
    look = (
        "import os, sys; from pathlib import Path; from sandbox.images.shelf import Bounds, Shelf\n"
        "shelf = Shelf(Path(sys.argv[1]), Bounds(0, 0)); os.setuid(12345)\n"
        "try: shelf.prune()\n"
        "except Exception as error: print(type(error).__name__, error)"
    )
    said = subprocess.run([sys.executable, "-c", look, str(shelf.folder)], capture_output=True, text=True, check=True)
    assert said.stdout.startswith("SandboxUnavailableError")
    assert "another user" in said.stdout


async def test_many_hold_one_thing_at_a_time(shelf: Shelf) -> None:
    async with AsyncExitStack() as stack:
        places = {await stack.enter_async_context(shelf.hold("x", thing(), sound)) for _ in range(20)}
        assert len(places) == 1
    assert (shelf.folder.stat().st_mode & 0o777) == 0o700
