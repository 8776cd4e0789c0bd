"""Each call of git's has limits, tells which one it met, and leaves no process, however it ends."""

from __future__ import annotations

import asyncio
import gc
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from sandbox.trees.gitdir import GitDir, GitLimitError, Limits, in_checkout, tracked_files, untracked
from sandbox.types import MIB


@pytest.fixture
async def held(tmp_path: Path) -> GitDir:
    made = GitDir(tmp_path / "git")
    await made.create()
    return made


def git(folder: Path, *words: str) -> None:
    subprocess.run(["git", "-C", str(folder), *words], check=True)


def all_children() -> set[str]:
    return set(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())


@pytest.fixture
def children() -> Callable[[], set[str]]:
    """Processes of ours that are there, or that nobody has waited for; those of earlier tests' fixtures aside."""
    already = all_children()
    return lambda: all_children() - already


def never_answers(checkout: Path) -> None:
    """A pipe as its configuration, which nobody writes to."""
    (checkout / ".git" / "objects").mkdir(parents=True)
    (checkout / ".git" / "refs").mkdir()
    (checkout / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    os.mkfifo(checkout / ".git" / "config")


async def for_ever() -> AsyncIterator[bytes]:
    while True:
        await asyncio.sleep(0.01)
        yield b"x\n"


async def test_a_call_that_takes_too_long_is_ended(held: GitDir, children: Callable[[], set[str]]) -> None:
    with pytest.raises(GitLimitError, match=r"^git hash-object took more than 0.2 s$"):
        await held.run("hash-object", "--stdin", stdin=for_ever(), limits=Limits(seconds=0.2))
    assert children() == set()


async def test_a_call_that_says_too_much_is_ended_though_it_waits_for_more(
    held: GitDir, children: Callable[[], set[str]]
) -> None:
    oid = (await held.run("hash-object", "-w", "--stdin", stdin=b"x" * MIB)).decode().strip()

    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield f"{oid}\n".encode()

    with pytest.raises(GitLimitError, match="git cat-file had more than 3145728 bytes to say"):
        await held.run("cat-file", "--batch", stdin=endless(), limits=Limits(output=3 * MIB))
    assert children() == set()


async def test_a_call_that_needs_too_much_memory_or_time_of_a_processor_is_ended(
    held: GitDir, children: Callable[[], set[str]]
) -> None:
    async def endless(data: bytes) -> AsyncIterator[bytes]:
        while True:
            yield data

    with pytest.raises(GitLimitError, match="git hash-object needed more than 67108864 bytes of memory"):
        await held.run("hash-object", "--stdin", stdin=endless(bytes(MIB)), limits=Limits(memory=64 * MIB))
    asked = endless(b"HEAD\n" * 10_000)
    with pytest.raises(GitLimitError, match="git cat-file was ended by signal 9, at 1 s of a processor's time"):
        await held.run("cat-file", "--batch-check", stdin=asked, limits=Limits(processor=1, output=4096 * MIB))
    assert children() == set()


async def test_a_cancelled_call_and_a_stream_that_breaks_leave_no_process(
    held: GitDir, children: Callable[[], set[str]]
) -> None:
    running = asyncio.create_task(held.run("hash-object", "--stdin", stdin=for_ever()))
    await asyncio.sleep(0.2)
    for _ in range(3):
        running.cancel()
        await asyncio.sleep(0)
    await asyncio.gather(running, return_exceptions=True)
    assert running.cancelled()

    async def breaks() -> AsyncIterator[bytes]:
        yield b"x"
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        await held.run("hash-object", "--stdin", stdin=breaks())
    await asyncio.sleep(0.1)
    assert children() == set()


async def test_a_reader_of_objects_that_stops_early_leaves_no_process(
    held: GitDir, children: Callable[[], set[str]]
) -> None:
    oid = (await held.run("hash-object", "-w", "--stdin", stdin=b"x" * MIB)).decode().strip()
    async for size, content in held.blobs([oid] * 100):
        assert size == MIB
        async for _ in content:
            break
        break
    await asyncio.sleep(0.3)
    assert children() == set()


async def test_a_checkout_that_never_answers_holds_nobody_up(tmp_path: Path, children: Callable[[], set[str]]) -> None:
    never_answers(tmp_path)
    with pytest.raises(GitLimitError, match=r"git ls-files took more than 0.2 s"):
        await tracked_files(tmp_path, seconds=0.2)
    asking = asyncio.create_task(tracked_files(tmp_path))
    await asyncio.sleep(0.3)
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    assert children() == set()


async def test_a_call_that_is_cancelled_while_it_closes_its_input_has_asyncio_complain_of_nothing(
    tmp_path: Path, children: Callable[[], set[str]]
) -> None:
    """It is written, fits the buffers and is never read: what is cancelled is the wait for its end."""
    complaints: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    never_answers(tmp_path)
    asking = asyncio.create_task(in_checkout(tmp_path, "hash-object", "--stdin", stdin=bytes(100_000)))
    await asyncio.sleep(0.3)
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    gc.collect()
    await asyncio.sleep(0)
    assert (asking.cancelled(), children(), complaints) == (True, set(), [])


async def test_what_a_checkout_neither_tracks_nor_ignores_is_counted_and_starts_nothing(tmp_path: Path) -> None:
    assert await untracked(tmp_path) == 0
    git(tmp_path, "init", "-q", ".")
    git(tmp_path, "config", "core.fsmonitor", f"touch {tmp_path}/ran; false")
    (tmp_path / ".gitignore").write_text("*.o\n.gitignore\nran\n")
    for name in ("a", "b.o", "d/e", "d/f", "tracked"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    git(tmp_path, "-c", "core.fsmonitor=", "add", "tracked")
    assert await untracked(tmp_path) == 2
    assert not (tmp_path / "ran").exists()


async def test_a_checkout_named_from_where_one_stands_is_that_checkout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tracked").touch()
    git(tmp_path, "init", "-q", ".")
    git(tmp_path, "add", "tracked")
    (tmp_path / "secret").touch()
    monkeypatch.chdir(tmp_path)
    assert await tracked_files(Path()) == (b"tracked",)
    assert await untracked(Path()) == 1


async def test_a_directory_that_many_make_at_once_is_whole_for_each(tmp_path: Path) -> None:
    async def made() -> str:
        mine = GitDir(tmp_path / "deep" / "git")
        await mine.create()
        return await mine.line("rev-parse", "--is-bare-repository")

    assert await asyncio.gather(*(made() for _ in range(12))) == ["true"] * 12
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["git"]


@pytest.mark.parametrize("left", [(), ("HEAD",), ("HEAD", "refs"), ("HEAD", "config")])
async def test_a_directory_that_a_killed_daemon_left_half_made_is_completed(
    tmp_path: Path, left: tuple[str, ...]
) -> None:
    whole = GitDir(tmp_path / "git")
    await whole.create()
    for path in list(whole.path.iterdir()):
        if path.name not in left:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    await whole.create()
    assert await whole.line("hash-object", "-w", "--stdin") != ""
