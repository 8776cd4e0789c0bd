"""Set-ups run once, their result is laid into every sandbox, and a hostile one reaches nothing that git tracks."""

from __future__ import annotations

import asyncio
import io
import tarfile
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from sandbox.errors import SandboxUnavailableError, SetUpError
from sandbox.images.making import Checkout, Heard, unheard
from sandbox.images.prepare import LAYER, Preparer
from sandbox.images.setup import Ground, SetUp, counting, key_of
from sandbox.images.shelf import Bounds, Shelf
from sandbox.testing import ScriptedBackend
from sandbox.types import MIB, Command, Limits, SandboxSpec

SPEC = SandboxSpec(limits=Limits(disk=16 * MIB, wall=30), labels={"task": "t1", "kind": "work"})
GROUND = Ground(backend="bwrap", system="s1")
FILES = {"app.py": "print('hi')\n", "pkg/mod.py": "x = 1\n", "requirements.txt": "one==1\n", ".git/config": "[core]\n"}


def tar_of(files: Mapping[str, str]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for name, text in files.items():
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(text.encode()), 0o644
            tar.addfile(info, io.BytesIO(text.encode()))
    return out.getvalue()


def checkout(files: Mapping[str, str] = FILES) -> Checkout:
    async def stream() -> AsyncIterator[bytes]:
        yield tar_of(files)

    paths = {name.encode(): f"oid of {text}" for name, text in files.items() if not name.startswith(".git/")}
    return Checkout(paths, stream)


@dataclass
class House:
    """A preparer over pretend sandboxes; ``told`` are the set-ups that really began."""

    folder: Path
    most: int = 1 << 30
    floor: int = 0
    templates: int = 2
    backend: ScriptedBackend = field(default_factory=ScriptedBackend)
    told: list[str] = field(default_factory=list)

    def preparer(self) -> Preparer:
        shelf = Shelf(self.folder / "setups", Bounds(self.most, self.floor))
        return Preparer(
            self.backend,
            shelf,
            templates=self.templates,
            told=self.told.append,
            denied=lambda labels: (f"evil.example for {labels['task']}",) if labels["kind"] == "setup" else (),
        )


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)


def setup(*commands: str, **more: object) -> SetUp:
    return SetUp.model_validate({"commands": commands, "network": "none", **more})


async def names(preparer: Preparer, done: SetUp, files: Mapping[str, str] = FILES) -> dict[str, str]:
    """What a prepared workspace holds, git's own folder included."""
    async with preparer.open(SPEC, checkout(files), done, GROUND) as prepared:
        data = b"".join([chunk async for chunk in prepared.sandbox.export()])
    await preparer.close()
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        return {
            info.name.removeprefix("./"): (tar.extractfile(info) or io.BytesIO()).read().decode()
            if info.isreg()
            else f"{info.type.decode()} {info.linkname}"
            for info in tar
        }


@pytest.mark.parametrize("templates", [0, 2])
async def test_a_setup_is_there_in_every_sandbox_and_ran_once(house: House, templates: int) -> None:
    house.templates = templates
    preparer, done = house.preparer(), setup("mkdir venv && echo lib >venv/lib", 'echo tool >"$HOME/.tool"')
    for _ in range(3):
        async with preparer.open(SPEC, checkout(), done, GROUND) as prepared:
            told = await prepared.sandbox.run(Command(argv=("sh", "-c", 'cat venv/lib app.py "$HOME/.tool"; ls -a')))
            assert told.text.startswith("lib\nprint('hi')\ntool\n")
            assert ".agent-swarm-home.tar" not in told.text
            assert await prepared.sandbox.read(".git/info/exclude") == b"/venv/\n"
            assert prepared.sandbox.spec.labels["task"] == "t1"
            assert "fork" not in prepared.sandbox.spec.labels
            index = preparer.furniture(prepared.sandbox.spec.labels[LAYER])
            assert index is not None
            assert index.roots() == [b"venv/", b".agent-swarm-home.tar"] or index.made == {b"venv"}
    assert house.told == ['mkdir venv && echo lib >venv/lib; echo tool >"$HOME/.tool"']
    await preparer.close()
    assert all(not box.work.exists() for box in house.backend.opened)


@pytest.mark.slow
async def test_twenty_tasks_that_ask_at_once_set_up_once(house: House) -> None:
    one, other = house.preparer(), house.preparer()  # as two processes would
    done = setup("sleep 0.3; echo lib >lib")

    async def ask(preparer: Preparer) -> bytes:
        async with preparer.open(SPEC, checkout(), done, GROUND) as prepared:
            return await prepared.sandbox.read("lib")

    assert set(await asyncio.gather(*(ask(one if at % 2 else other) for at in range(20)))) == {b"lib\n"}
    assert len(house.told) == 1
    await one.close()
    await other.close()


async def test_who_waits_is_told_each_command_and_whence_the_result_came(house: House) -> None:
    """A newcomer saw "work" and then nothing for the minutes of a set-up."""
    heard: list[tuple[str, float | None]] = []

    async def hear(words: str, seconds: float | None) -> None:
        heard.append((words, seconds))

    preparer, done = house.preparer(), setup("echo one >one", "echo two >two")
    for _ in range(2):
        async with preparer.open(SPEC, checkout(), done, GROUND, heard=hear):
            pass
    await preparer.close()
    words = ["set-up: echo one >one", "set-up: echo two >two", "set-up done and kept", "set-up taken from the cache"]
    assert [said for said, _ in heard] == words
    assert [seconds is None for _, seconds in heard] == [True, True, False, False]


async def test_who_waits_for_the_same_set_up_of_another_is_told_so(house: House) -> None:
    heard: list[str] = []

    async def hear(words: str, _: float | None) -> None:
        heard.append(words)

    one, other = house.preparer(), house.preparer()
    done = setup("sleep 0.5; echo lib >lib")

    async def ask(preparer: Preparer, heard: Heard = unheard) -> None:
        async with preparer.open(SPEC, checkout(), done, GROUND, heard=heard):
            pass

    first = asyncio.create_task(ask(one))
    while not house.told:  # noqa: ASYNC110 - a set-up that begins rings no bell
        await asyncio.sleep(0.01)
    await ask(other, hear)
    await first
    await one.close()
    await other.close()
    assert heard == ["set-up: waits for another task that is making the same", "set-up made by another task"]


async def test_what_counts_makes_a_setup_run_anew_and_nothing_else_does(house: House) -> None:
    preparer, done = house.preparer(), setup("echo x >made", inputs=("requirements*.txt",))
    for files in (FILES, FILES | {"app.py": "changed"}, FILES | {"requirements.txt": "two"}):
        async with preparer.open(SPEC, checkout(files), done, GROUND) as prepared:
            assert await prepared.sandbox.read("made") == b"x\n"
            assert await prepared.sandbox.read("app.py") == files["app.py"].encode()
    assert len(house.told) == 2
    await preparer.close()


async def test_a_setup_with_inputs_sees_those_alone_so_no_other_file_decides_what_is_kept(house: House) -> None:
    preparer = house.preparer()
    done = setup(": >seen; find . -type f | sort >seen; date -r requirements.txt +%Y >>seen", inputs=("req*", "pkg/*"))
    for files in (FILES | {".npmrc": "script-shell=/evil", "setup.py": "evil"}, FILES):
        async with preparer.open(SPEC, checkout(files), done, GROUND) as prepared:
            assert await prepared.sandbox.read("seen") == b"./pkg/mod.py\n./requirements.txt\n./seen\n1980\n"
            assert await prepared.sandbox.read("app.py") == FILES["app.py"].encode()
    assert len(house.told) == 1
    await preparer.close()


async def test_a_repository_that_tracks_the_name_of_a_kept_home_spoils_nobody_elses(house: House) -> None:
    preparer, done = house.preparer(), setup('echo tool >"$HOME/.tool"', inputs=())
    with pytest.raises(SetUpError, match=r"tracks \.agent-swarm-home\.tar"):
        async with preparer.open(SPEC, checkout(FILES | {".agent-swarm-home.tar": "x"}), done, GROUND):
            pass
    assert preparer.shelf.kept() == ()


def test_the_key_holds_ground_commands_inputs_and_variables() -> None:
    paths = checkout().paths
    keys = {
        key_of(setup("a"), GROUND, paths, {}),
        key_of(setup("b"), GROUND, paths, {}),
        key_of(setup("a", network="packages"), GROUND, paths, {}),
        key_of(setup("a"), GROUND.model_copy(update={"system": "s2"}), paths, {}),
        key_of(setup("a"), GROUND.model_copy(update={"policy": "more hosts"}), paths, {}),
        key_of(setup("a"), GROUND.model_copy(update={"backend": "docker"}), paths, {}),
        key_of(setup("a"), GROUND, paths, {"X": "1"}),
        key_of(setup("a"), GROUND, {**paths, b"app.py": "other"}, {}),
        key_of(setup("a", inputs=("pkg/*",)), GROUND, paths, {}),
        key_of(setup("a", inputs=()), GROUND, paths, {}),
        key_of(setup("a"), GROUND, paths, {}, "1" * 40),
    }
    assert len(keys) == 11
    assert len({key_of(setup("a", inputs=()), GROUND, paths, {}, commit) for commit in ("1" * 40, "2" * 40)}) == 1
    assert counting(setup("a", inputs=("*.py",)), paths).keys() == {b"app.py", b"pkg/mod.py"}


HOSTILE = """
printf '[core]\\n\\tfsmonitor = touch /tmp/owned\\n' >.git/config; mkdir -p .git/hooks; echo evil >.git/hooks/pre-commit
echo evil >app.py; rm -r pkg; ln -s /tmp pkg; mkdir -p sub/.git sub/.GIT
 echo evil | tee sub/.git/config >sub/.GIT/config
mkdir fine; echo fine >fine/one; ln -s ../../../etc/passwd fine/climbs; ln app.py fine/hard; mkfifo fine/pipe
ln fine/one fine/two
"""


@pytest.mark.parametrize("templates", [0, 2])
async def test_a_hostile_setup_changes_nothing_that_git_tracks_nor_git_itself(house: House, templates: int) -> None:
    house.templates = templates
    found = await names(house.preparer(), setup(HOSTILE))
    assert found["app.py"] == FILES["app.py"]
    assert found["pkg/mod.py"] == FILES["pkg/mod.py"]
    assert found[".git/config"] == FILES[".git/config"]
    assert {name for name in found if name.startswith(".git/")} <= {".git/config", ".git/info", ".git/info/exclude"}
    assert not [name for name in found if ".git/" in name.lower() and not name.startswith(".git/")]
    assert {found["fine/one"], found["fine/two"]} & {"fine\n"}
    assert "fine/hard" not in found
    assert "fine/pipe" not in found
    assert found["fine/climbs"] == "2 ../../../etc/passwd"


@pytest.mark.parametrize("templates", [0, 2])
async def test_a_later_checkout_is_never_written_through_what_a_setup_left(house: House, templates: int) -> None:
    house.templates = templates
    preparer, done = house.preparer(), setup("ln -s .git later; ln -s /tmp away; mkdir dir; echo x >dir/x", inputs=())
    later = FILES | {"later/config": "harmless", "away/f": "mine", "dir": "a file now"}
    async with preparer.open(SPEC, checkout(), done, GROUND):
        pass
    found = await names(preparer, done, later)
    assert {name: found[name] for name in later} == later
    assert found["later"] == "5 " or "later" not in found
    assert len(house.told) == 1


async def test_a_setup_that_fails_names_command_status_last_lines_and_what_was_refused(house: House) -> None:
    preparer, done = house.preparer(), setup("true", "echo one; echo 'no such package'; exit 3", "echo never")
    for _ in range(2):
        with pytest.raises(SetUpError) as told:
            async with preparer.open(SPEC, checkout(), done, GROUND):
                pass
    for words in ("echo one;", "status 3", "one\nno such package", "evil.example for t1"):
        assert words in str(told.value)
    assert len(house.told) == 2, "a failure is not kept"
    assert preparer.shelf.kept() == ()


async def test_a_setup_that_takes_too_long_is_stopped(house: House) -> None:
    with pytest.raises(SetUpError, match="was stopped after"):
        async with house.preparer().open(SPEC, checkout(), setup("sleep 20", seconds=0.3), GROUND):
            pass


async def test_a_setup_that_leaves_too_much_is_refused_and_not_kept(house: House) -> None:
    preparer = house.preparer()
    with pytest.raises(SetUpError, match="left more than"):
        async with preparer.open(SPEC, checkout(), setup("truncate -s 1T hole"), GROUND):
            pass
    assert preparer.shelf.kept() == ()


async def test_a_full_disk_keeps_nothing_new_and_says_what_to_do(house: House) -> None:
    house.floor = 1 << 60
    with pytest.raises(SandboxUnavailableError, match=r"[0-9.]+ GiB free, and .* GiB have to stay free; mend: "):
        async with house.preparer().open(SPEC, checkout(), setup("echo x >made"), GROUND):
            pass
    assert house.told == []


@pytest.mark.parametrize("what", ["layer.tar", "index.json"])
async def test_a_layer_that_is_not_what_was_written_is_made_anew(house: House, what: str) -> None:
    preparer, done = house.preparer(), setup("echo good >made")
    async with preparer.open(SPEC, checkout(), done, GROUND) as prepared:
        place = preparer.shelf.folder / prepared.sandbox.spec.labels[LAYER]
    await preparer.close()
    (place / what).write_bytes((place / what).read_bytes().replace(b"good", b"evil").replace(b"made", b"evil") + b" ")
    async with preparer.open(SPEC, checkout(), done, GROUND) as prepared:
        assert await prepared.sandbox.read("made") == b"good\n"
    assert len(house.told) == 2
    await preparer.close()


async def test_templates_are_bounded_and_one_that_is_lost_is_done_without(house: House) -> None:
    house.templates = 1
    preparer = house.preparer()
    for number in range(3):
        async with preparer.open(SPEC, checkout(), setup(f"echo {number} >made"), GROUND) as prepared:
            assert await prepared.sandbox.read("made") == f"{number}\n".encode()
            assert len(preparer.templates.ready) <= 1
    for template in preparer.templates.ready.values():
        template.forks, template.forked = 1, 0.0  # worth it, whatever this machine's clock said
        await template.sandbox.close()
    async with preparer.open(SPEC, checkout(), setup("echo 2 >made"), GROUND) as prepared:
        assert await prepared.sandbox.read("made") == b"2\n"
    await preparer.close()


async def test_without_commands_nothing_is_prepared(house: House) -> None:
    async with house.preparer().open(SPEC, checkout(), SetUp(), GROUND) as prepared:
        assert prepared.furniture is None
        assert await prepared.sandbox.read("app.py") == FILES["app.py"].encode()
    assert not (house.folder / "setups").exists()
