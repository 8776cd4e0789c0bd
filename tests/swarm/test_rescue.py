"""Work in a sandbox that outlived its daemon: saved once, never over newer work, kept where it cannot be saved."""

from __future__ import annotations

import asyncio
import io
import tarfile
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sandbox.errors import SandboxError, WorkspaceError
from sandbox.trees.sealing import Furniture
from sandbox.trees.workspace import Workspace
from sandbox.types import LeftBehind
from swarm.errors import TaskNotFoundError
from swarm.rescue import Rescuer, place_of
from swarm.scheduling.facts import HostFacts
from swarm.store.rows import Claim, Kept, Plan, Settlement
from swarm.store.store import Store
from swarm.types import AttemptResult, Budget, Conclusion, Step, TaskRequest, TaskState
from swarm.workroom import salvage_ref
from tests.swarm.conftest import GOOD, bare_repository, git

SANDBOX = "swarm-0000000000-1-1-aaaaaaaaaa"


@dataclass
class Scene:
    """A store with one attempt under way, its repository, and the labels of its sandbox."""

    store: Store
    workspace: Workspace
    claim: Claim
    base: str

    @property
    def labels(self) -> dict[str, str]:
        return {
            "task": "t1",
            "attempt": self.claim.attempt.id,
            "repository": "demo",
            "base": self.base,
            "kind": "work",
        }

    def left(self, name: str = SANDBOX, created: float | None = None, **labels: str) -> LeftBehind:
        created = self.claim.attempt.started + 1 if created is None else created
        return LeftBehind(name=name, labels={**self.labels, **labels}, created=created, living=True, ours=True)

    async def rescue(self, left: LeftBehind, export: AsyncIterator[bytes], **more: Any) -> None:
        await Rescuer(self.store, lambda _: self.workspace, **more)(left, export)

    async def saved(self, sandbox: str, text: str) -> str:
        """A save that a living daemon made; its tree."""
        sealed = await self.workspace.seal(self.base, tar(**{"clamp.py": text}), limit=1 << 20)
        ref = salvage_ref(self.claim.attempt.id)
        await self.workspace.keep(ref, sealed, "x")
        await self.store.salvaged(self.claim, Kept(ref, sealed.tree, sandbox))
        return sealed.tree

    async def text(self, ref: str = "") -> str:
        """What clamp.py is under a reference."""
        sealed = await self.workspace.sealed_at(ref or salvage_ref(self.claim.attempt.id))
        assert sealed is not None
        return (await self.workspace.diff(sealed.base, sealed.tree)).partition("+++ b/clamp.py")[2]

    async def refs(self) -> set[str]:
        return set(await self.workspace.refs("refs/salvage/")) | set(await self.workspace.refs("refs/left/"))


async def tar(cut: int = 0, /, **files: str) -> AsyncIterator[bytes]:
    """A workspace's export: clamp.py and its test, and what is given instead or beside."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, text in {"test_clamp.py": "", **files}.items():
            info = tarfile.TarInfo(name)
            info.size = len(text)
            archive.addfile(info, io.BytesIO(text.encode()))
    data = out.getvalue()
    for start in range(0, len(data) - cut, 700):
        yield data[start : min(start + 700, len(data) - cut)]


async def untouched() -> AsyncIterator[bytes]:
    raise AssertionError("nobody may read this")
    yield b""


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    origin = bare_repository(tmp_path / "forge")
    base = git("rev-parse", "main", cwd=origin)
    workspace = Workspace(tmp_path / "demo.git")
    git("bundle", "create", "-q", str(tmp_path / "b"), "main", cwd=origin)
    pack = (tmp_path / "b").read_bytes().partition(b"\n\n")[2]
    await workspace.take_pack(pack, base)
    async with Store(tmp_path / "swarm.db") as store:
        request = TaskRequest(repository="demo", instructions="fix it", task="t1")
        await store.add(request, Plan(budget=Budget(), tier="small", strategy="auto"))
        claim = await store.queue.claim(HostFacts("here"))
        assert claim is not None
        yield Scene(store, workspace, claim, base)


async def test_work_since_the_base_is_saved_and_told_in_the_journal(scene: Scene) -> None:
    await scene.rescue(scene.left(), tar(**{"clamp.py": GOOD}))
    assert "min(x, high)" in await scene.text()
    view = await scene.store.view("t1")
    assert view.attempts[-1].salvage == salvage_ref(scene.claim.attempt.id)
    told = {line.kind: line.data for line in await scene.store.steps("t1")}
    assert told["salvage"]["sandbox"] == SANDBOX
    assert SANDBOX in told["note"]["reason"]


async def test_work_since_the_last_save_of_the_same_sandbox_takes_its_place(scene: Scene) -> None:
    await scene.saved(SANDBOX, "# half\n")
    await scene.rescue(scene.left(), tar(**{"clamp.py": GOOD}))
    assert "min(x, high)" in await scene.text()


async def test_a_sandbox_that_was_opened_after_the_last_save_is_newer(scene: Scene) -> None:
    await scene.saved("swarm-of-an-earlier-daemon", "# half\n")
    await scene.rescue(scene.left(created=time.time() + 1), tar(**{"clamp.py": GOOD}))
    assert "min(x, high)" in await scene.text()


async def test_an_older_sandbox_never_takes_the_place_of_a_newer_save(scene: Scene) -> None:
    tree = await scene.saved("swarm-of-a-later-daemon", GOOD)
    await scene.rescue(scene.left(created=scene.claim.attempt.started), tar(**{"clamp.py": "# old\n"}))
    sealed = await scene.workspace.sealed_at(salvage_ref(scene.claim.attempt.id))
    assert sealed is not None
    assert sealed.tree == tree
    assert "# old" in await scene.text(f"refs/left/{SANDBOX}")
    assert (await scene.store.view("t1")).attempts[-1].salvage == salvage_ref(scene.claim.attempt.id)


async def test_one_of_which_nothing_was_written_down_is_kept_beside(scene: Scene) -> None:
    """Its owner may have died while it was filled: what it lacks is no deletion by the agent."""
    await scene.rescue(scene.left(unsure="yes"), tar(**{"half.py": "x"}))
    assert await scene.refs() == {f"refs/left/{SANDBOX}"}
    assert (await scene.store.view("t1")).attempts[-1].salvage is None


async def test_where_the_furniture_is_not_known_any_more_the_sandbox_stays(scene: Scene) -> None:
    def unknown(labels: Mapping[str, str]) -> Furniture | None:
        raise SandboxError(f"the layer {labels['layer']} is not kept any more")

    with pytest.raises(SandboxError, match="not kept"):
        await scene.rescue(scene.left(layer="x"), tar(**{"clamp.py": GOOD}), furniture=unknown)
    assert await scene.refs() == set()


async def test_what_is_saved_already_is_not_saved_again(scene: Scene) -> None:
    await scene.saved(SANDBOX, GOOD)
    before = await scene.store.steps("t1")
    await scene.rescue(scene.left(), tar(**{"clamp.py": GOOD, "test_clamp.py": ""}))
    assert await scene.store.steps("t1") == before


async def test_an_untouched_checkout_leaves_nothing(scene: Scene) -> None:
    stream = scene.workspace.checkout(scene.base)
    await scene.rescue(scene.left(), stream)
    assert await scene.refs() == set()


@pytest.mark.parametrize(
    "labels", [{"kind": "check"}, {"kind": "setup"}, {"kind": "unused"}, {"kind": "warm"}, {"fork": "swarm-x"}]
)
async def test_copies_checks_and_unused_ones_are_let_go_unread(scene: Scene, labels: dict[str, str]) -> None:
    await scene.rescue(scene.left(**labels), untouched())
    assert await scene.refs() == set()


async def test_a_sealed_result_is_never_replaced(scene: Scene) -> None:
    tree = await scene.saved(SANDBOX, GOOD)
    await scene.store.record(scene.claim, "sealed", {"tree": tree})
    await scene.rescue(scene.left(), untouched())
    assert "min(x, high)" in await scene.text()


async def test_an_attempt_that_ended_is_left_as_it_ended(scene: Scene) -> None:
    end = Settlement(TaskState.GAVE_UP, "x", AttemptResult(conclusion=Conclusion(ending="gave_up")))
    await scene.store.settle(scene.claim, end)
    await scene.rescue(scene.left(), untouched())
    assert await scene.refs() == set()


@pytest.mark.parametrize(
    ("labels", "error"),
    [
        ({"task": "nobody"}, TaskNotFoundError),
        ({"attempt": "t1-9"}, SandboxError),
        ({"repository": "other"}, SandboxError),
        ({"repository": "../../etc"}, SandboxError),
        ({"attempt": "x/../y"}, SandboxError),
        ({"base": "main"}, SandboxError),
        ({"base": ""}, SandboxError),
        ({"base": "--output=/tmp/x"}, SandboxError),
        ({"base": "c" * 40}, WorkspaceError),
    ],
)
async def test_labels_that_name_nothing_keep_the_sandbox(
    scene: Scene, labels: dict[str, str], error: type[Exception], caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(error):
        await scene.rescue(scene.left(**labels), tar(**{"clamp.py": GOOD}))
    assert f"{SANDBOX} stays, with work of attempt" in caplog.text
    assert await scene.refs() == set()


async def test_an_export_that_breaks_off_keeps_the_sandbox_and_saves_nothing(scene: Scene) -> None:
    with pytest.raises(WorkspaceError):
        await scene.rescue(scene.left(), tar(9000, **{"clamp.py": GOOD}))
    assert await scene.refs() == set()


async def test_a_workspace_without_end_is_given_up_in_time(scene: Scene) -> None:
    clock = iter([0.0, 299.9])

    async def endless() -> AsyncIterator[bytes]:
        while True:
            await asyncio.sleep(0.01)
            yield b""

    with pytest.raises(TimeoutError):
        await scene.rescue(scene.left(), endless(), clock=lambda: next(clock))


def test_a_save_that_came_after_the_seal_of_an_earlier_life_counts(scene: Scene) -> None:
    def line(kind: str, **data: str) -> Step:
        return Step(task="t1", attempt="a", seq=1, at=50.0, kind=kind, data=data)

    left = scene.left(created=10.0)
    assert place_of(left, []) == "newest"
    assert place_of(left, [line("sealed")]) == "sealed"
    assert place_of(left, [line("sealed"), line("salvage", sandbox=left.name)]) == "newest"
    assert place_of(left, [line("salvage", sandbox="other"), line("command")]) == "beside"
    assert place_of(left.model_copy(update={"created": 60.0}), [line("salvage", sandbox="other")]) == "newest"
