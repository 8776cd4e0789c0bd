"""Sandboxes held ready: each for one use, dead ones never handed out, as many as demand and bounds say, none left."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from sandbox.config import WarmConfig
from sandbox.errors import SandboxError, SandboxLostError, SandboxPathError
from sandbox.owner import Owner, owner_of
from sandbox.register import Register
from sandbox.testing import ScriptedBackend, ScriptedSandbox
from sandbox.types import MIB, Command, LeftBehind, Limits, SandboxSpec
from sandbox.warm.backend import Host, WarmBackend

SPEC = SandboxSpec(labels={"task": "t", "attempt": "t-1", "kind": "work"})
OTHER = SandboxSpec(limits=Limits(memory=64 * MIB))


class Clock:
    """Stands still until a test moves it."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Stage:
    """A backend whose starts can be made to fail, wrapped, with a machine of the test's own."""

    folder: Path
    bare: Starting = field(init=False)
    clock: Clock = field(default_factory=Clock)
    memory: int = 64 * 1024 * MIB
    processors: int = 8
    warm: WarmBackend = field(init=False)

    @asynccontextmanager
    async def open(self, **config: float) -> AsyncIterator[WarmBackend]:
        self.bare = Starting(self.folder)
        host = Host(self.clock, lambda: self.memory, self.processors)
        self.warm = WarmBackend(self.bare, WarmConfig.model_validate(config), self.register, host)
        try:
            yield self.warm
        finally:
            await self.warm.close()

    @property
    def register(self) -> Register:
        return Register(self.folder / "sandboxes")

    async def until(self, true: Callable[[], bool], seconds: float = 10) -> None:
        async with asyncio.timeout(seconds):
            while not true():  # noqa: ASYNC110  anything may be waited for
                await asyncio.sleep(0.005)

    async def ready(self, count: int) -> None:
        await self.until(lambda: self.warm.ready == count)

    def alive(self) -> list[ScriptedSandbox]:
        return [sandbox for sandbox in self.bare.opened if sandbox.folder.exists()]


class Door:
    """A way out that tells whose sandbox came."""

    port = 18088

    def environment(self) -> Mapping[str, str]:
        return {"DOOR": "127.0.0.1"}

    def files(self) -> Mapping[str, bytes]:
        return {}

    async def serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, labels: Mapping[str, str]
    ) -> None:
        writer.write(labels.get("task", "nobody").encode())
        await writer.drain()
        writer.close()


class Starting(ScriptedBackend):
    """Counts what it is asked to open and the most that start at once; ``broken`` makes starts fail."""

    def __init__(self, folder: Path) -> None:
        super().__init__(exits={"model": Door()})
        self.broken: Exception | None = None
        self.tried: list[SandboxSpec] = []
        self.at_once = self.most_at_once = 0
        self.slow = 0.0
        self.left: list[LeftBehind] = []

    @asynccontextmanager
    async def open(
        self, spec: SandboxSpec, workspace: AsyncIterator[bytes] | None = None
    ) -> AsyncIterator[ScriptedSandbox]:
        self.tried.append(spec)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await asyncio.sleep(self.slow)
            if self.broken:
                raise self.broken
        finally:
            self.at_once -= 1
        async with super().open(spec, workspace) as sandbox:
            yield sandbox

    async def left_behind(self) -> tuple[LeftBehind, ...]:
        return tuple(self.left)

    async def sweep(self, rescue=None, only=None) -> int:
        kept = []
        for left in self.left:
            try:
                await rescue(left, _stream(b""))
            except SandboxError:
                kept.append(left)
        removed, self.left = len(self.left) - len(kept), kept
        return removed


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


async def _stream(*pieces: bytes) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece


async def tar_of(folder: Path, name: str, data: bytes) -> AsyncIterator[bytes]:
    (folder / name).write_bytes(data)
    process = await asyncio.create_subprocess_exec("tar", "-c", "-C", str(folder), name, stdout=asyncio.subprocess.PIPE)
    out, _ = await process.communicate()
    yield out


class TestHandingOut:
    async def test_a_ready_one_is_filled_and_labelled_and_used_once(self, stage: Stage, tmp_path: Path) -> None:
        async with stage.open() as warm:
            assert await warm.prepare(SPEC) == 1
            prepared = stage.bare.opened[0]
            async with warm.open(SPEC, tar_of(tmp_path, "a.txt", b"hello")) as sandbox:
                assert sandbox.name == prepared.name
                assert await sandbox.read("a.txt") == b"hello"
                assert stage.register.labels(sandbox.name) == SPEC.labels
            assert not prepared.folder.exists()
            async with warm.open(SPEC) as second:
                assert second.name != prepared.name
                with pytest.raises(SandboxPathError):
                    await second.read("a.txt")

    async def test_a_ready_one_is_nobodys_until_then(self, stage: Stage) -> None:
        async with stage.open() as warm:
            await warm.prepare(SPEC)
            assert stage.bare.tried == [SPEC.model_copy(update={"labels": {"kind": "warm"}})]
            assert stage.register.names() == ()

    async def test_twenty_opens_at_once_get_twenty_sandboxes(self, stage: Stage) -> None:
        async with stage.open(max=4) as warm, AsyncExitStack() as stack:
            await warm.prepare(SPEC)
            opened = await asyncio.gather(*(stack.enter_async_context(warm.open(SPEC)) for _ in range(20)))
            await asyncio.gather(*(sandbox.write("mine", b"%d" % at) for at, sandbox in enumerate(opened)))
            assert len({sandbox.name for sandbox in opened}) == 20
            assert [await sandbox.read("mine") for sandbox in opened] == [b"%d" % at for at in range(20)]

    async def test_specs_that_differ_never_share(self, stage: Stage) -> None:
        async with stage.open() as warm:
            await warm.prepare(SPEC)
            for other in (OTHER, SPEC.model_copy(update={"network": "model"}), SPEC.model_copy(update={"image": "x"})):
                async with warm.open(other) as sandbox:
                    assert sandbox.name != stage.bare.opened[0].name
            relabelled = SPEC.model_copy(update={"labels": {"task": "another"}})
            async with warm.open(relabelled) as sandbox:
                assert sandbox.name == stage.bare.opened[0].name

    async def test_a_way_out_learns_whose_it_is_now(self, stage: Stage) -> None:
        spec = SPEC.model_copy(update={"network": "model"})
        ask = (
            "import os, socket; s = socket.create_connection((os.environ['DOOR'], 18088)); print(s.recv(100).decode())"
        )
        async with stage.open() as warm:
            await warm.prepare(spec)
            async with warm.open(spec) as sandbox:
                assert sandbox.name == stage.bare.opened[0].name
                outcome = await sandbox.run(Command(argv=(sys.executable, "-c", ask)))
                assert outcome.text.strip() == "t"

    async def test_a_dead_one_is_thrown_away_and_another_taken(self, stage: Stage) -> None:
        async with stage.open() as warm:
            await warm.prepare(SPEC)
            await stage.bare.opened[0].close()  # killed from outside
            async with warm.open(SPEC) as sandbox:
                assert sandbox.name != stage.bare.opened[0].name
                assert (await sandbox.run(Command(argv=("echo", "alive")))).text == "alive\n"
            await stage.until(lambda: not stage.bare.opened[0].folder.exists())

    async def test_those_that_do_not_answer_are_not_waited_for_in_turn(self, stage: Stage) -> None:
        async with stage.open() as warm:
            await warm.prepare(SPEC)
            hanging = stage.bare.opened[0]

            async def ping() -> None:
                stage.clock.now += 2.0
                await asyncio.sleep(3600)

            hanging.ping = ping
            warm._host = replace(warm._host, patience=0.05)
            async with asyncio.timeout(5), warm.open(SPEC) as sandbox:
                assert sandbox.name != hanging.name
            await stage.until(lambda: not hanging.folder.exists())

    async def test_one_that_dies_before_it_reads_costs_nothing(self, stage: Stage, tmp_path: Path) -> None:
        async with stage.open() as warm:
            await warm.prepare(SPEC)
            failing = stage.bare.opened[0]

            async def adopt(labels: object, workspace: AsyncIterator[bytes] | None = None) -> None:
                raise SandboxLostError("gone")

            failing.adopt = adopt
            async with warm.open(SPEC, tar_of(tmp_path, "a.txt", b"hello")) as sandbox:
                assert sandbox.name != failing.name
                assert await sandbox.read("a.txt") == b"hello"

    async def test_one_that_dies_while_it_is_filled_is_told_and_closed(self, stage: Stage, tmp_path: Path) -> None:
        async with stage.open() as warm:
            await warm.prepare(SPEC)
            failing = stage.bare.opened[0]

            async def adopt(labels: object, workspace: AsyncIterator[bytes]) -> None:
                await anext(workspace)
                raise SandboxLostError("gone")

            failing.adopt = adopt
            with pytest.raises(SandboxLostError):
                async with warm.open(SPEC, tar_of(tmp_path, "a.txt", b"hello")):
                    pass
            await stage.until(lambda: not failing.folder.exists())
            assert stage.register.names() == ()

    async def test_a_cancelled_open_leaves_nothing(self, stage: Stage) -> None:
        async with stage.open() as warm:
            await warm.prepare(SPEC)
            waiting = asyncio.Event()

            async def endless() -> AsyncIterator[bytes]:
                waiting.set()
                await asyncio.sleep(3600)
                yield b""

            async def use() -> None:
                async with warm.open(SPEC, endless()):
                    pass

            task = asyncio.create_task(use())
            await waiting.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await stage.until(lambda: not stage.bare.opened[0].folder.exists())

    async def test_what_the_body_raises_comes_out_and_closes_it(self, stage: Stage) -> None:
        async with stage.open() as warm:
            await warm.prepare(SPEC)
            with pytest.raises(ZeroDivisionError):
                async with warm.open(SPEC):
                    raise ZeroDivisionError
            assert not stage.bare.opened[0].folder.exists()
            assert stage.register.names() == ()

    async def test_a_fork_is_written_down_as_one(self, stage: Stage) -> None:
        async with stage.open() as warm, warm.open(SPEC) as sandbox:
            await sandbox.write("a", b"x")
            async with sandbox.fork() as fork, fork.fork() as again:
                assert await again.read("a") == b"x"
                assert stage.register.labels(fork.name) == {**SPEC.labels, "fork": sandbox.name}
                assert stage.register.labels(again.name) == {**SPEC.labels, "fork": fork.name}
                name = fork.name
            assert stage.register.labels(name) is None
            mine = {"task": "u", "kind": "work"}
            async with sandbox.fork(labels=mine) as own:
                assert stage.register.labels(own.name) == mine


class TestHowMany:
    async def test_the_next_one_is_started_while_the_first_is_used(self, stage: Stage) -> None:
        async with stage.open() as warm:
            async with warm.open(SPEC) as first:
                await stage.ready(1)
            async with warm.open(SPEC) as second:
                assert second.name == stage.bare.opened[1].name != first.name

    async def test_none_is_held_once_nobody_asks(self, stage: Stage) -> None:
        async with stage.open(idle=300) as warm:
            async with warm.open(SPEC):
                await stage.ready(1)
            stage.clock.now += 301
            warm._wake.set()
            await stage.until(lambda: not stage.alive())
            await stage.until(lambda: warm._keeper is not None and warm._keeper.done())

    @pytest.mark.parametrize(("bound", "value"), [("max", 2), ("memory", 64 * MIB)])
    async def test_a_burst_is_followed_by_no_more_than_the_bound(self, stage: Stage, bound: str, value: int) -> None:
        async with stage.open(**{"max": 8, bound: value}) as warm, AsyncExitStack() as stack:
            stage.bare.slow = 0.01
            await asyncio.gather(*(stack.enter_async_context(warm.open(SPEC)) for _ in range(60)))
            for shelf in warm._shelves.values():
                shelf.demand = shelf.demand.started(60.0)
            warm._wake.set()
            await stage.ready(2)
            await asyncio.sleep(0.05)
            assert warm.ready == 2

    async def test_a_machine_without_free_memory_holds_none(self, stage: Stage) -> None:
        stage.memory = 100 * MIB
        async with stage.open() as warm:
            async with warm.open(SPEC):
                await asyncio.sleep(0.05)
            assert warm.ready == 0
            assert await warm.prepare(SPEC) == 0

    async def test_zero_holds_none_and_still_writes_down_whose_it_is(self, stage: Stage) -> None:
        async with stage.open(max=0) as warm:
            async with warm.open(SPEC) as sandbox:
                await asyncio.sleep(0.02)
                assert stage.register.labels(sandbox.name) == SPEC.labels
            assert len(stage.bare.opened) == 1
            assert await warm.prepare(SPEC) == 0

    async def test_small_machines_start_one_at_a_time(self, stage: Stage) -> None:
        stage.processors = 2
        async with stage.open(max=4) as warm:
            stage.bare.slow = 0.02
            for _ in range(40):
                await warm.prepare(SPEC)
            for shelf in warm._shelves.values():
                shelf.demand = shelf.demand.started(1000.0)
            warm._wake.set()
            await stage.ready(4)
            assert stage.bare.most_at_once == 1

    async def test_ever_new_specs_do_not_pile_up(self, stage: Stage) -> None:
        async with stage.open(max=4) as warm:
            for number in range(80):
                stage.clock.now += 1
                async with warm.open(SandboxSpec(env={"N": str(number)})):
                    pass
            assert len(warm._shelves) <= 64
            await stage.until(lambda: len(stage.alive()) <= 4)


class TestTrouble:
    async def test_failing_starts_are_tried_again_later_and_later_and_opens_are_told(self, stage: Stage) -> None:
        async with stage.open() as warm:
            async with warm.open(SPEC):
                stage.bare.broken = SandboxLostError("the engine does not answer")
                await stage.until(lambda: len(stage.bare.tried) == 2)
            for wait in (1.0, 2.0, 4.0):
                tried = len(stage.bare.tried)
                stage.clock.now += wait - 0.1
                warm._wake.set()
                await asyncio.sleep(0.02)
                assert len(stage.bare.tried) == tried
                stage.clock.now += 0.2
                warm._wake.set()
                await stage.until(lambda: len(stage.bare.tried) == tried + 1)  # noqa: B023  awaited right here
            with pytest.raises(SandboxLostError):
                async with warm.open(SPEC):
                    pass
            stage.bare.broken = None
            stage.clock.now += 60
            warm._wake.set()
            await stage.ready(1)

    async def test_an_engine_that_was_restarted_costs_one_cold_start(self, stage: Stage) -> None:
        async with stage.open(max=3) as warm:
            for _ in range(3):
                await warm.prepare(SPEC)
            for shelf in warm._shelves.values():
                shelf.demand = shelf.demand.started(1000.0)
            warm._wake.set()
            await stage.ready(3)
            before = list(stage.bare.opened)
            for sandbox in before:
                await sandbox.close()
            async with warm.open(SPEC) as sandbox:
                assert sandbox.name not in {each.name for each in before}
            await stage.ready(3)
            async with warm.open(SPEC) as sandbox:
                assert sandbox.name not in {each.name for each in before}

    async def test_closing_ends_what_is_held_and_what_is_starting(self, stage: Stage) -> None:
        async with stage.open(max=4) as warm:
            await warm.prepare(SPEC)
            stage.bare.slow = 5.0
            async with asyncio.timeout(2):
                await warm.prepare(SPEC)  # there is one
                warm._shelves[next(iter(warm._shelves))].demand = (
                    next(iter(warm._shelves.values())).demand.asked(stage.clock()).started(1e4)
                )
                warm._wake.set()
                await stage.until(lambda: stage.bare.at_once > 0)
                await warm.close()
        assert stage.alive() == []
        assert warm._starting == set()
        assert warm._finishing._going == set()

    async def test_a_close_that_is_cancelled_again_and_again_is_still_done(self, stage: Stage) -> None:
        async with stage.open(max=4) as warm:
            await warm.prepare(SPEC)
            assert stage.alive()
            closing = asyncio.create_task(warm.close())
            for _ in range(4):
                await asyncio.sleep(0)
                closing.cancel()
            await asyncio.gather(closing, return_exceptions=True)
            assert closing.cancelled()
            await stage.until(lambda: stage.alive() == [])

    async def test_nothing_is_held_after_closing(self, stage: Stage) -> None:
        async with stage.open() as warm:
            pass
        async with warm.open(SPEC):
            await asyncio.sleep(0.02)
        assert stage.alive() == []


class TestLeftBehind:
    async def test_only_what_was_handed_out_is_rescued_with_the_labels_it_had(
        self, stage: Stage, tmp_path: Path
    ) -> None:
        mine = owner_of(tmp_path)
        dead = Owner(mine.tag, 2**22 + 1, 5)
        used, unused, elsewhere = dead.new_name(), dead.new_name(), dead.new_name()
        stage.register.note(used, SPEC.labels)
        stage.register.note(elsewhere, SPEC.labels)  # on an engine that does not answer today
        async with stage.open() as warm, warm.open(SPEC) as living:
            stage.bare.left = [
                LeftBehind(name=name, labels={"kind": "warm"}, created=1.0, living=True, ours=True)
                for name in (used, unused)
            ]
            assert [left.labels["kind"] for left in await warm.left_behind()] == ["work", "unused"]
            seen: list[LeftBehind] = []

            async def rescue(left: LeftBehind, workspace: AsyncIterator[bytes]) -> None:
                seen.append(left)

            assert await warm.sweep(rescue) == 2
            assert [(left.name, left.labels) for left in seen] == [(used, SPEC.labels)]
            assert set(stage.register.names()) == {living.name, elsewhere}

    async def test_what_cannot_be_rescued_keeps_its_labels(self, stage: Stage, tmp_path: Path) -> None:
        name = Owner(owner_of(tmp_path).tag, 2**22 + 1, 5).new_name()
        stage.register.note(name, SPEC.labels)
        async with stage.open() as warm:
            stage.bare.left = [LeftBehind(name=name, labels={}, created=1.0, living=True, ours=True)]

            async def rescue(left: LeftBehind, workspace: AsyncIterator[bytes]) -> None:
                raise SandboxError("the disk is full")

            assert await warm.sweep(rescue) == 0
            assert stage.register.labels(name) == SPEC.labels
