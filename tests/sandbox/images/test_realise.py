"""Each kind of image becomes what each backend opens; what a repository may not have never reaches the engine."""

from __future__ import annotations

import asyncio
import io
import os
import tarfile
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest

from sandbox.config import ImagesConfig
from sandbox.errors import ImageError, SandboxError, SandboxLostError, SandboxUnavailableError
from sandbox.images.archive import look
from sandbox.images.making import Checkout
from sandbox.images.realise import Realiser, host_system
from sandbox.images.shelf import Bounds, Shelf
from sandbox.images.sources import Archive, Dockerfile, Folder, ImageSource, Reference, source_of
from sandbox.types import Backend


def tar(files: Mapping[str, str]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as made:
        for name, text in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(text)
            made.addfile(info, io.BytesIO(text.encode()))
    return out.getvalue()


class PretendEngine:
    """Keeps the `ImageEngine` protocol over a table of names; ``asked`` are the calls that change something."""

    def __init__(self, **images: str) -> None:
        self.images = {name.replace("_", ":"): f"sha256:{value}" for name, value in images.items()}
        self.asked: list[str] = []
        self.gone = False

    async def image_id(self, name: str) -> str | None:
        if self.gone:
            raise SandboxLostError("the Docker engine does not answer: no such file")
        return name if name in self.images.values() else self.images.get(name)

    async def image_env(self, id: str) -> dict[str, str]:  # noqa: A002
        return {"PATH": f"/of/{id[-4:]}"}

    async def pull_image(self, name: str) -> str:
        self.asked.append(f"pull {name}")
        self.images[name] = "sha256:pulled"
        return "sha256:pulled"

    async def load_image(self, archive: Path) -> str:
        self.asked.append(f"load {(await look(archive)).image}")
        self.images["loaded"] = "sha256:loaded"
        return "sha256:loaded"

    async def build_image(self, context: Path, dockerfile: str, args: Mapping[str, str], network: str) -> str:
        with tarfile.open(context) as made:
            self.asked.append(f"build {dockerfile} {dict(args)} {network} {sorted(made.getnames())}")
        self.images["built"] = "sha256:built"
        return "sha256:built"

    async def export_image(self, id: str, target: Path, most: int) -> None:  # noqa: A002
        self.asked.append(f"export {id}")
        await asyncio.to_thread(target.write_bytes, tar({"etc/who": id}))


def checkout(files: Mapping[str, str]) -> Checkout:
    async def stream() -> AsyncIterator[bytes]:
        yield tar({".git/config": "", **files})

    return Checkout({name.encode(): text for name, text in files.items()}, stream)


def realiser(tmp_path: Path, backend: Backend, engine: PretendEngine | None, **settings: object) -> Realiser:
    shelf = Shelf(tmp_path / "images", Bounds(1 << 40, 0), mode=0o711)
    return Realiser(backend, engine, shelf, ImagesConfig.model_validate(settings))


async def opened(realiser: Realiser, source: ImageSource, of: Checkout | None = None) -> str:
    """Twice, since the second time nothing may be made again."""
    async with realiser.realise(source, of) as first:
        pass
    async with realiser.realise(source, of) as second:
        assert first == second
        assert second.image is not None
        return second.image


async def test_a_name_becomes_an_id_and_is_pulled_only_where_the_operator_says_so(tmp_path: Path) -> None:
    engine = PretendEngine(python_3="aa")
    assert await opened(realiser(tmp_path, "docker", engine), Reference(name="python:3")) == "sha256:aa"
    with pytest.raises(ImageError, match="no image other:1; mend: docker pull other:1"):
        await opened(realiser(tmp_path, "docker", engine), Reference(name="other:1"))
    assert engine.asked == []
    assert (
        await opened(realiser(tmp_path, "docker", engine, pull="missing"), Reference(name="other:1")) == "sha256:pulled"
    )
    assert engine.asked == ["pull other:1"]


async def test_an_operators_dockerfile_is_built_with_the_operators_network(tmp_path: Path) -> None:
    (tmp_path / "py").mkdir()
    (tmp_path / "py" / "Dockerfile").write_text("FROM anything\nADD https://x /y\n")
    engine = PretendEngine()
    source = source_of(f"{tmp_path}/py/Dockerfile")
    assert await opened(realiser(tmp_path, "docker", engine, build_network="default"), source) == "sha256:built"
    assert engine.asked == ["build Dockerfile {} default ['Dockerfile']"]


async def test_a_repositorys_dockerfile_is_built_without_network_on_images_that_are_allowed(tmp_path: Path) -> None:
    source = Dockerfile(file="Dockerfile", context=".devcontainer", args={"V": "3"})
    files = {".devcontainer/Dockerfile": "ARG V=2\nFROM python:${V}\nRUN make\n", "app.py": ""}
    engine = PretendEngine(python_3="aa")
    settings = {"builds": True, "allowed": ("python:*",), "build_network": "default", "pull": "missing"}
    assert await opened(realiser(tmp_path, "docker", engine, **settings), source, checkout(files)) == "sha256:built"
    assert engine.asked == ["build Dockerfile {'V': '3'} none ['Dockerfile']"]
    assert not list((tmp_path / "images").glob(".spare-*"))


@pytest.mark.parametrize(
    ("source", "settings"),
    [
        (Reference(name="python:3"), {}),
        (Reference(name="evil.example/python:3"), {"allowed": ("python:*",), "pull": "missing"}),
        (Dockerfile(file="Dockerfile"), {"allowed": ("*", "*/*")}),
        (Dockerfile(file="Dockerfile"), {"allowed": ("python:*",), "builds": True, "pull": "missing"}),
        (Dockerfile(file="Dockerfile", folder=Path("/etc")), {"builds": True}),
        (Archive(path=Path("/var/lib/secret.tar")), {"allowed": ("*",)}),
        (Folder(path=Path("/")), {"allowed": ("*",)}),
    ],
)
@pytest.mark.parametrize("backend", ["docker", "bwrap"])
async def test_what_a_repository_may_not_choose_never_reaches_the_engine(
    tmp_path: Path, backend: Backend, source: ImageSource, settings: Mapping[str, object]
) -> None:
    engine = PretendEngine(python_3="aa")
    with pytest.raises(ImageError):
        await opened(realiser(tmp_path, backend, engine, **settings), source, checkout({"Dockerfile": "FROM other:1"}))
    assert engine.asked == []


async def test_bubblewrap_gets_a_folder_once_through_an_engine(tmp_path: Path) -> None:
    engine = PretendEngine(python_3="aa")
    found = Path(await opened(realiser(tmp_path, "bwrap", engine), Reference(name="python:3")))
    assert (found / "etc/who").read_text() == "sha256:aa"
    assert engine.asked == ["export sha256:aa"]
    assert os.stat(found).st_mode & 0o777 == 0o755  # noqa: PTH116


async def test_bubblewrap_without_an_engine_says_what_to_do(tmp_path: Path) -> None:
    gone = PretendEngine()
    gone.gone = True
    for engine in (None, gone):
        with pytest.raises(SandboxUnavailableError, match="docker save"):
            await opened(realiser(tmp_path, "bwrap", engine), Reference(name="python:3"))


@pytest.mark.parametrize("backend", ["docker", "bwrap"])
async def test_an_archive_and_a_folder_are_images_on_both_backends(tmp_path: Path, backend: Backend) -> None:
    (tmp_path / "root.tar").write_bytes(tar({"etc/who": "me"}))
    (tmp_path / "root" / "etc").mkdir(parents=True)
    (tmp_path / "root" / "etc" / "who").write_text("me")
    engine = PretendEngine() if backend == "docker" else None
    for name in ("root.tar", "root"):
        found = await opened(realiser(tmp_path, backend, engine), source_of(f"{tmp_path}/{name}"))
        assert found == "sha256:loaded" or (Path(found) / "etc/who").read_text() == "me"
    if engine:
        assert set(engine.asked) == {"load True"}
    with pytest.raises(ImageError, match="there is no image at"):
        await opened(realiser(tmp_path, backend, PretendEngine()), source_of(f"{tmp_path}/missing.tar"))


async def test_a_changed_archive_is_another_image_and_a_broken_one_leaves_nothing(tmp_path: Path) -> None:
    archive, made = tmp_path / "root.tar", realiser(tmp_path, "bwrap", None)
    found = set()
    for who in ("one", "other"):
        archive.write_bytes(tar({"etc/who": who}))
        found.add(await opened(made, Archive(path=archive)))
    assert len(found) == 2
    archive.write_bytes(b"broken" * 200)
    with pytest.raises(SandboxError):
        await opened(made, Archive(path=archive))
    assert len(made.shelf.kept()) == 2


def test_this_machines_system_has_another_name_once_its_packages_change(tmp_path: Path) -> None:
    (tmp_path / "var/lib/dpkg").mkdir(parents=True)
    before = host_system(tmp_path)
    (tmp_path / "var/lib/dpkg/status").write_text("Package: new\n")
    assert host_system(tmp_path) != before
    assert host_system(tmp_path) == host_system(tmp_path)
