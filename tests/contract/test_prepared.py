"""Set-ups and images on every backend: what was set up is there, and nothing of how it came about."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import io
import re
import subprocess
import tarfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from sandbox.base import Sandbox, SandboxBackend
from sandbox.bubblewrap.backend import BwrapBackend
from sandbox.config import ImagesConfig, SandboxConfig
from sandbox.container.backend import ContainerBackend
from sandbox.errors import SetUpError
from sandbox.images.making import Checkout
from sandbox.images.prepare import Preparer
from sandbox.images.realise import Realiser
from sandbox.images.setup import Ground, SetUp
from sandbox.images.shelf import shelves_in
from sandbox.images.sources import Reference, source_of
from sandbox.owner import owner_of
from sandbox.types import MIB, Command, Limits, SandboxSpec

SPEC = SandboxSpec(limits=Limits(memory=256 * MIB, processes=48, disk=32 * MIB, wall=60), labels={"task": "t"})
FILES = {"app.py": b"print('hi')\n", ".git/config": b"[core]\n", ".git/HEAD": b"ref: refs/heads/agent\n"}
CONFIG = ImagesConfig(disk_floor=0)


def checkout() -> Checkout:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for name, data in FILES.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))

    async def stream() -> AsyncIterator[bytes]:
        yield out.getvalue()

    return Checkout({b"app.py": "1"}, stream)


async def said(box: Sandbox, script: str) -> str:
    return (await box.run(Command(argv=("/bin/sh", "-c", script)))).text


DONE = SetUp(
    commands=(
        "python3 -m venv --without-pip venv && mkdir deep && echo x >deep/file && chmod 500 deep",
        'mkdir -p "$HOME/.local/bin" && printf "#!/bin/sh\\necho tool\\n" >"$HOME/.local/bin/tool"',
        'chmod 755 "$HOME/.local/bin/tool"',
        "(sleep 321 &) ; echo '[core] fsmonitor = evil' >.git/config; echo evil >app.py",
    ),
    network="none",
)


@pytest.mark.parametrize("templates", [0, 1])
async def test_what_was_set_up_is_in_each_sandbox_and_nothing_else_of_it(
    backend: SandboxBackend, tmp_path: Path, processes_with: Callable[[str], list[int]], templates: int
) -> None:
    told: list[str] = []
    preparer = Preparer(backend, shelves_in(tmp_path, CONFIG).setups, templates=templates, told=told.append)
    ground = Ground(backend="bwrap", system="s")
    for _ in range(3):
        async with preparer.open(SPEC, checkout(), DONE, ground) as prepared:
            box = prepared.sandbox
            both = 'venv/bin/python -c "print(1+1)"; $HOME/.local/bin/tool; cat deep/file'
            assert await said(box, both) == "2\ntool\nx\n"
            assert await box.read(".git/config") == FILES[".git/config"]
            assert await box.read("app.py") == FILES["app.py"]
            assert await said(box, "ls -A $HOME/.setup-tmp .agent-swarm-home.tar 2>&1 | grep -v 'No such'; true") == ""
            await box.write("venv/own", b"x")  # a fork of a template shares nothing with the next
    async with preparer.open(SPEC, checkout(), DONE, ground) as prepared:
        assert "own" not in await said(prepared.sandbox, "ls venv")
    assert processes_with("sleep 321") == []
    assert len(told) == 1
    await preparer.close()


async def test_a_setup_that_fills_its_disk_fails_with_words(jail: SandboxBackend, tmp_path: Path) -> None:
    preparer = Preparer(jail, shelves_in(tmp_path, CONFIG).setups)
    hog = SetUp(commands=("head -c 100000000 /dev/zero >big",), network="none")
    with pytest.raises(SetUpError, match="No space left"):
        async with preparer.open(SPEC, checkout(), hog, Ground(backend="bwrap", system="s")):
            pass
    assert preparer.shelf.kept() == ()


# Real images


def stranger(target: Path) -> Path:
    """A file system with a shell and four programs: no Python, no tar, no passwd, no folder of ours."""
    names = {"/usr/bin/dash": "bin/sh"} | {f"/usr/bin/{name}": f"bin/{name}" for name in ("cat", "ls", "mkdir", "rm")}
    for program in list(names):
        for line in subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout.splitlines():
            if found := re.search(r"(/\S+)", line.partition("=>")[2] or line):
                names[found[1]] = found[1].lstrip("/")
    with tarfile.open(target, "w") as tar:
        for source, name in names.items():
            tar.add(Path(source).resolve(), name)
    return target


async def test_a_strangers_image_needs_a_shell_and_nothing_else(jail: SandboxBackend, tmp_path: Path) -> None:
    engine = jail.engine if isinstance(jail, ContainerBackend) else None
    kind, shelves = "docker" if engine else "bwrap", shelves_in(tmp_path / "state", CONFIG)
    preparer, realiser = Preparer(jail, shelves.setups), Realiser(kind, engine, shelves.images, CONFIG)
    done = SetUp(commands=("echo made >made; echo tool >$HOME/tool",), network="none")
    async with realiser.realise(source_of(str(stranger(tmp_path / "image.tar")))) as image:
        spec = SPEC.model_copy(update={"image": image.image, "env": {"PATH": "/bin"}})
        for _ in range(2):
            async with preparer.open(spec, checkout(), done, Ground(backend=kind, system=image.system)) as prepared:
                assert await said(prepared.sandbox, "cat made $HOME/tool") == "made\ntool\n"
                assert "not found" in await said(prepared.sandbox, "tar; python3")
    await preparer.close()


@pytest.fixture(scope="session")
def rootfs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The base image's file system, as scripts/build-image writes it."""
    script = Path(__file__).parents[2] / "scripts" / "build-image"
    loader = importlib.machinery.SourceFileLoader("build_image", str(script))
    spec = importlib.util.spec_from_loader("build_image", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    path = tmp_path_factory.mktemp("rootfs") / "base.tar"
    with path.open("wb") as file:
        module.write_rootfs(file)
    return path


async def has_base_image(backend: SandboxBackend, image: str | None, system: str) -> None:
    async with backend.open(SPEC.model_copy(update={"image": image})) as box:
        assert await said(box, "python3 -c 'print(6*7)'; id -un; cat /image 2>&1") == f"42\nagent\n{system}"
        assert "Read-only" in await said(box, "echo x >/usr/x")


@pytest.fixture
def marked(rootfs: Path, tmp_path: Path) -> Path:
    """The base with a mark, so that it cannot be taken for the host or the engine's own."""
    path = tmp_path / "marked.tar"
    path.write_bytes(rootfs.read_bytes())
    with tarfile.open(path, "a") as tar:
        info = tarfile.TarInfo("image")
        info.size = 5
        tar.addfile(info, io.BytesIO(b"mark\n"))
    return path


@pytest.mark.root
@pytest.mark.slow
async def test_bubblewrap_runs_on_an_archive(marked: Path, tmp_path: Path) -> None:
    backend = BwrapBackend(SandboxConfig(), owner_of(tmp_path), {})
    realiser = Realiser("bwrap", None, shelves_in(tmp_path / "state", CONFIG).images, CONFIG)
    try:
        async with realiser.realise(source_of(str(marked))) as image:
            await has_base_image(backend, image.image, "mark\n")
    finally:
        await backend.close()


@pytest.fixture
async def docker(tmp_path: Path) -> AsyncIterator[ContainerBackend]:
    backend = ContainerBackend(SandboxConfig(), owner_of(tmp_path), {})
    yield backend
    await backend.close()


@pytest.mark.docker
@pytest.mark.slow
async def test_docker_runs_on_an_archive_and_on_a_dockerfile(
    docker: ContainerBackend, marked: Path, tmp_path: Path
) -> None:
    realiser = Realiser("docker", docker.engine, shelves_in(tmp_path / "state", CONFIG).images, CONFIG)
    async with realiser.realise(source_of(str(marked))) as image:
        await has_base_image(docker, image.image, "mark\n")
    (tmp_path / "Dockerfile").write_text(f"FROM {SandboxConfig().image}\nUSER 0\nRUN echo built >/image\nENV OWN=1\n")
    async with realiser.realise(source_of(str(tmp_path / "Dockerfile"))) as image:
        await has_base_image(docker, image.image, "built\n")
        assert image.env["OWN"] == "1"


@pytest.mark.docker
@pytest.mark.root
@pytest.mark.slow
async def test_bubblewrap_runs_on_an_image_of_an_engine(docker: ContainerBackend, tmp_path: Path) -> None:
    backend = BwrapBackend(SandboxConfig(), owner_of(tmp_path), {})
    realiser = Realiser("bwrap", docker.engine, shelves_in(tmp_path / "state", CONFIG).images, CONFIG)
    try:
        async with realiser.realise(Reference(name=SandboxConfig().image)) as image:
            await has_base_image(backend, image.image, "cat: /image: No such file or directory\n")
    finally:
        await backend.close()
