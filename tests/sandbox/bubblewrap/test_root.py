"""What is shown inside: the machine's system, an extracted image of whatever kind, and the operator's own folders."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from sandbox.bubblewrap.backend import BwrapBackend
from sandbox.bubblewrap.root import image_root, root_of, system_root
from sandbox.config import SandboxConfig
from sandbox.errors import SandboxUnavailableError
from sandbox.line.programs import BORROWED
from sandbox.owner import owner_of
from sandbox.types import Command, SandboxSpec

PROGRAMS = ("sh", "cat", "ls", "id", "touch")


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """An image of one static program: no shell, no C library, no Python, no tar, and a few traps."""
    folder = tmp_path / "state" / "image"
    for name in ("bin", "etc", "home/other", "home/agent", "work", "tmp", "proc", "dev", "opt/tool"):
        (folder / name).mkdir(parents=True)
    (folder / "etc" / "passwd").write_text("image:x:0:0::/:/bin/no\n")
    (folder / "etc" / "hosts").symlink_to("/etc/shadow")
    (folder / "sbin").symlink_to("usr/sbin")
    (folder / "trap").symlink_to("/")
    (folder / "work" / "hidden").touch()
    (folder / "home" / "other" / "file").write_text("theirs")
    (folder / "opt" / "tool" / "data").write_text("from the image")
    for path in (folder, *folder.rglob("*")):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() else 0o644)
    return folder


@pytest.fixture
def foreign(image: Path) -> Path:
    """The image with five programs and the libraries of just these: nothing that Python or tar would need."""
    programs = [Path("/bin") / name for name in PROGRAMS]
    said = subprocess.run(["ldd", *map(str, programs)], check=True, capture_output=True, text=True).stdout
    for path in {*programs, *(Path(word) for word in said.split() if word.startswith("/") and not word.endswith(":"))}:
        target = image / path.relative_to("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
        target.chmod(0o755)
    return image


def test_an_image_is_shown_folder_by_folder_and_never_over_places_of_ours(image: Path) -> None:
    root = image_root(image)
    arguments = list(root.arguments)
    shown = [arguments[at + 2] for at, word in enumerate(arguments) if word == "--ro-bind"]
    assert shown == [
        *("/bin", "/etc", "/opt", "/home/other", "/etc/passwd", BORROWED),
    ], "neither a link nor what the image lacks can be mounted over"
    links = [tuple(arguments[at + 1 : at + 3]) for at, word in enumerate(arguments) if word == "--symlink"]
    assert links == [("usr/sbin", "/sbin"), ("/", "/trap")]
    assert root.binds == {"root": str(image)}
    assert root.tool("tar")[0].startswith(BORROWED)


def test_an_image_that_is_no_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SandboxUnavailableError, match="cannot be used"):
        image_root(tmp_path / "none")
    (tmp_path / "file").touch()
    with pytest.raises(SandboxUnavailableError):
        image_root(tmp_path / "file")


def test_a_name_is_never_taken_for_the_machines_own_system() -> None:
    with pytest.raises(SandboxUnavailableError, match="only a name; mend: "):
        root_of("agent-swarm/base:1", {})
    assert root_of(None, {}) == system_root()
    assert root_of(None, {"/opt/t": "/srv/t"}).arguments[-3:] == ("--ro-bind", "/mnt/mounts/0", "/opt/t")


@pytest.mark.root
async def test_an_image_without_python_shell_or_libraries_runs_its_own_programs(
    backend: BwrapBackend, foreign: Path
) -> None:
    foreign.parent.chmod(0o700)  # the agent's user could not walk there
    async with backend.open(SandboxSpec(image=str(foreign))) as box:
        await box.write("file", b"1")
        assert await box.read("file") == b"1"
        seen = await box.run(
            Command(argv=("/bin/sh", "-c", "id -u; cat /opt/tool/data /home/other/file; ls -A / /work"))
        )
        assert seen.exit_code == 0, seen.text
        assert seen.text.startswith("70000\nfrom the imagetheirs")
        assert "hidden" not in seen.text
        for place in ("/x", "/opt/x", "/etc/x", "/home/other/x", f"{BORROWED}/x"):
            assert (await box.run(Command(argv=("/bin/touch", place)))).exit_code != 0
        assert (await box.run(Command(argv=("/usr/bin/python3",)))).exit_code == 127
        async with box.fork() as fork:
            assert await fork.read("file") == b"1"
            assert b"file" in b"".join([chunk async for chunk in fork.export()])
    assert not (foreign / "x").exists()


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """A folder that the agent's user could not walk to."""
    folder = tmp_path / "tools"
    folder.mkdir()
    (folder / "data").write_text("a tool")
    tmp_path.chmod(0o700)
    return folder


@pytest.mark.root
async def test_the_operators_folders_are_there_and_read_only(tools: Path, tmp_path: Path) -> None:
    backend = BwrapBackend(SandboxConfig(mounts={"/opt/tools": str(tools)}), owner_of(tmp_path))
    try:
        async with backend.open(SandboxSpec()) as box:
            assert (await box.run(Command(argv=("cat", "/opt/tools/data")))).text == "a tool"
            assert (await box.run(Command(argv=("touch", "/opt/tools/x")))).exit_code != 0
    finally:
        await backend.close()
    assert not (tools / "x").exists()
