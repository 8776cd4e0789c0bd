"""What happens when a supervisor is lost, is stopped, or is the enemy's."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from sandbox.errors import SandboxError, SandboxLostError
from sandbox.inside import protocol as inside
from sandbox.line.launch import Start
from sandbox.line.resident import ResidentSandbox, Setting
from sandbox.line.wire import frame
from sandbox.rules.profile import profile_of
from sandbox.testing import ScriptedBackend
from sandbox.types import Command, Limits, SandboxSpec

SPEC = SandboxSpec(limits=Limits(output=4096, wall=20))
HELLO = frame(inside.HELLO, 0, b"landlock 0\nscoped 0\nports 0\nhidden 0\n")
DONE = frame(inside.DONE, 1, inside.DONE_FIELDS.pack(0, 0, 0, 0))


def sh(script: str, **fields: object) -> Command:
    return Command(argv=("sh", "-c", script), **fields)


class Enemy:
    """A line whose other end answers the first request with what a test chose, and then keeps silent or hangs up."""

    def __init__(self, answers: bytes, *, hang_up: bool = False) -> None:
        self._greeting = HELLO
        self._answers = answers
        self._hang_up = hang_up
        self._asked = asyncio.Event()
        self._closed = asyncio.Event()
        self.sent = 0

    async def receive(self) -> bytes:
        if said := self._greeting:
            self._greeting = b""
            return said
        await self._asked.wait()
        if said := self._answers:
            self._answers = b""
            return said
        if not self._hang_up:
            await self._closed.wait()
        return b""

    async def send(self, data: bytes) -> None:
        self.sent += 1
        if self.sent > 1:
            self._asked.set()

    async def close(self) -> None:
        self._closed.set()


class EnemyCell:
    """Starts enemies, and counts how often it was cleared."""

    name = "enemy"

    def __init__(self, make: Callable[[], Enemy]) -> None:
        self._make = make
        self.started = self.cleared = 0

    async def start(self) -> Enemy:
        self.started += 1
        return self._make()

    async def clear(self) -> None:
        self.cleared += 1

    def starved(self) -> int | None:
        return None


@asynccontextmanager
async def enemy(answers: bytes, *, hang_up: bool = False, wall: float = 20) -> AsyncIterator[tuple]:
    spec = SandboxSpec(limits=Limits(output=4096, wall=wall))
    cell = EnemyCell(lambda: Enemy(answers, hang_up=hang_up))

    def fork(*_: object) -> None:
        raise AssertionError("nobody forks here")

    box = ResidentSandbox(cell, spec, Setting(profile_of(spec), Start(sweep=False), fork, grace=0.3))  # type: ignore[arg-type]
    yield box, cell
    await box.close()


def too_many(kind: int, count: int) -> bytes:
    return b"".join(frame(kind, 1, bytes(inside.FRAME)) for _ in range(count))


@pytest.mark.parametrize(
    "answers",
    [
        b"rubbish that is longer than a header",
        too_many(inside.HEAD_OUTPUT, 40),
        too_many(inside.TAIL_OUTPUT, 40),
        too_many(inside.STATE_BYTES, 40),
        frame(inside.CREDIT, 1, inside.COUNT.pack(1 << 30)),
        frame(inside.DATA, 77, b"x"),
        frame(inside.OPEN, 5, inside.COUNT.pack(80)),
        frame(inside.HELLO, 1, b""),
        HELLO,
        frame(inside.OPEN, inside.TUNNEL + 1, inside.COUNT.pack(1)),
    ],
    ids=[
        "rubbish",
        "head",
        "tail",
        "state",
        "credit",
        "unasked",
        "open",
        "hello to one",
        "hello twice",
        "no port of ours",
    ],
)
async def test_an_answer_that_breaks_the_rules_ends_the_supervisor_and_costs_that_command_alone(answers: bytes) -> None:
    async with enemy(answers) as (box, cell):
        outcome = await box.run(sh("true"))
        assert outcome.exit_code == 137
        assert len(outcome.output) <= 4096 + inside.STATE
        assert cell.cleared == 1
        await box.run(sh("true"))
        assert cell.started == 2


@pytest.mark.parametrize("kind", [inside.DATA, inside.HEAD_OUTPUT, inside.STATE_BYTES])
async def test_a_whole_output_is_bounded_by_what_is_taken(kind: int) -> None:
    seen: list[bytes] = []
    async with enemy(too_many(kind, 80)) as (box, cell):
        outcome = await box.run(sh("true", whole=True), seen.append)
        assert (outcome.exit_code, outcome.output, cell.cleared) == (137, b"", 1)
        assert sum(map(len, seen)) <= inside.WINDOW + inside.LAST + inside.STATE


async def test_seconds_in_which_a_reader_takes_nothing_are_not_the_supervisors() -> None:
    async with enemy(frame(inside.DATA, 1, b"a page") + DONE, wall=0.2) as (box, cell):
        outcome = await box.run(sh("true", whole=True), lambda _: time.sleep(1))
        assert (outcome.exit_code, outcome.timed_out, cell.cleared) == (0, False, 0)


@pytest.mark.parametrize("kind", [inside.END, inside.CLOSE])
async def test_a_request_that_ends_like_a_connection_is_lost_at_once(kind: int) -> None:
    async def once() -> AsyncIterator[bytes]:
        yield b"x"

    async with enemy(frame(kind, 1)) as (box, _):
        async with asyncio.timeout(10):  # not the wall limit
            for asked in (box.read("file"), box.write("file", b"x"), box.unpack(once()), anext(box.export())):
                with pytest.raises(SandboxLostError, match="as if it were"):
                    await asked


async def test_more_of_a_file_than_was_asked_for_is_never_given_on() -> None:
    async with enemy(frame(inside.DATA, 1, bytes(5000)) + frame(inside.DONE, 1, bytes(inside.DONE_FIELDS.size))) as (
        box,
        _,
    ):
        with pytest.raises(SandboxLostError, match="more"):
            await box.read("file", 100)


async def test_an_export_without_end_is_cut_off() -> None:
    async with enemy(too_many(inside.DATA, 5)) as (box, _):
        with pytest.raises(SandboxLostError, match="more than it was asked for"):
            await _drained(box)


async def test_silence_is_a_time_out_and_the_cell_is_cleared() -> None:
    async with enemy(b"", wall=0.2) as (box, cell):
        began = time.monotonic()
        outcome = await box.run(sh("true"))
        assert (outcome.timed_out, outcome.exit_code) == (True, 137)
        assert time.monotonic() - began < 8
        assert cell.cleared == 1


async def test_a_forged_good_end_is_only_an_outcome() -> None:
    async with enemy(DONE) as (box, cell):
        assert (await box.run(sh("exit 3"))).exit_code == 0
        assert cell.cleared == 0


async def test_a_supervisor_that_never_greets_is_told_as_lost() -> None:
    async with enemy(b"", hang_up=True) as (box, cell):
        cell._make = _Mute  # type: ignore[assignment]
        with pytest.raises(SandboxLostError):
            await box.ping()


async def _drained(box: ResidentSandbox) -> None:
    async for _ in box.export():
        await asyncio.sleep(0)


class _Mute(Enemy):
    def __init__(self) -> None:
        super().__init__(b"", hang_up=True)
        self._greeting = b""
        self._asked.set()


async def test_a_command_that_kills_its_supervisor_hurts_itself_alone() -> None:
    async with ScriptedBackend().open(SPEC) as box:
        await box.write("kept", b"1")
        outcome = await box.run(sh("echo said; sleep 0.2; kill -9 $PPID; sleep 20"))
        assert (outcome.exit_code, outcome.timed_out, outcome.output) == (137, False, b"said\n")
        assert (await box.run(sh("cat kept"))).text == "1"


async def test_a_command_that_stops_its_supervisor_runs_into_the_hosts_own_limit() -> None:
    async with ScriptedBackend(grace=0.5).open(SPEC) as box:
        outcome = await box.run(sh("echo said; kill -STOP $PPID; sleep 60", timeout=0.3))
        assert (outcome.timed_out, outcome.exit_code) == (True, 137)
        assert outcome.seconds < 10
        assert (await box.run(sh("echo alive"))).text == "alive\n"


async def test_a_dead_supervisor_is_replaced_before_the_next_request() -> None:
    async with ScriptedBackend().open(SPEC) as box:
        await box.run(sh("(sleep 0.1; kill -9 $PPID) & exit 0"))
        box.cell._process.kill()
        await asyncio.sleep(0.1)
        await box.write("x", b"1")
        assert await box.read("x") == b"1"
        await box.ping()


async def test_cancelling_twice_still_stops_the_command(processes_with: Callable[[str], list[int]]) -> None:
    mark = f"5{time.time_ns() % 10**9}"
    async with ScriptedBackend().open(SPEC) as box:
        task = asyncio.create_task(box.run(sh(f"trap '' TERM; sleep {mark}; true")))
        await asyncio.sleep(0.3)
        task.cancel()
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert processes_with(mark) == []
        assert (await box.run(sh("echo alive"))).text == "alive\n"


@pytest.mark.slow
async def test_a_thousand_commands_leave_no_descriptor_and_no_memory_behind() -> None:
    script = "ls /proc/$PPID/fd | wc -l; grep VmRSS /proc/$PPID/status"

    def numbers(text: str) -> tuple[int, int]:
        words = text.split()
        return int(words[0]), int(words[2])

    async with ScriptedBackend().open(SPEC) as box:
        await box.run(sh("true"))
        fds, memory = numbers((await box.run(sh(script))).text)
        for number in range(1000):
            await box.run(Command(argv=("true",), stdin=b"x" * (number % 3)))
        after = numbers((await box.run(sh(script))).text)
        assert after[0] == fds
        assert after[1] < memory + 1024


async def test_adopting_gives_labels_and_a_workspace_and_a_fork_tells_its_origin() -> None:
    async with ScriptedBackend().open(SPEC) as first:
        await first.write("f", b"1")
        async with ScriptedBackend().open(SPEC) as box:
            await box.adopt({"task": "t"}, first.export())
            assert await box.read("f") == b"1"
            assert box.spec.labels == {"task": "t"}
            async with box.fork() as one, box.fork({"task": "u"}) as two:
                assert one.spec.labels == {"task": "t", "fork": box.name}
                assert two.spec.labels == {"task": "u"}


async def test_a_tar_over_what_is_there_replaces_links_and_writes_through_none() -> None:
    async with ScriptedBackend().open(SPEC) as source, ScriptedBackend().open(SPEC) as box:
        await source.run(sh("mkdir d; echo new >d/f; echo new >g"))
        await box.run(sh("mkdir out; echo old >out/f; ln -s out d; ln -s out/f g; echo other >kept"))
        await box.unpack(source.export())
        outcome = await box.run(sh("cat out/f kept d/f g; [ -L d ] || echo folder; [ -L g ] || echo file"))
        assert outcome.text == "old\nother\nnew\nnew\nfolder\nfile\n"


async def test_an_empty_name_and_a_path_without_end_are_refused_in_words() -> None:
    async with ScriptedBackend().open(SPEC) as box:
        with pytest.raises(SandboxError, match="no name"):
            await box.run(Command(argv=("",)))
        with pytest.raises(SandboxError, match="longer than a path"):
            await box.read("x" * 5000)
