"""Archives of images unpack to what their layers say, and a hostile one writes nothing outside its folder."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import json
import lzma
import os
import stat
import tarfile
from collections.abc import AsyncIterator, Callable, Iterable
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from sandbox.errors import ImageError, SandboxError
from sandbox.images.archive import look, unpack_archive
from sandbox.images.context import pack_folder, wrapped, write_context
from sandbox.images.dockerfile import read_dockerfile
from sandbox.images.rootfs import Caps, Unpacker
from sandbox.types import MIB

KINDS = {"f": tarfile.REGTYPE, "d": tarfile.DIRTYPE, "l": tarfile.SYMTYPE, "h": tarfile.LNKTYPE, "c": tarfile.CHRTYPE}
KINDS |= {"b": tarfile.BLKTYPE, "p": tarfile.FIFOTYPE}


def tar(*entries: tuple[str, str, str], form: int = tarfile.GNU_FORMAT, mode: int = 0o644) -> bytes:
    """Entries are kind, name, and content or target."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form) as made:
        for kind, name, rest in entries:
            info = tarfile.TarInfo(name)
            info.type, info.mode = KINDS[kind], mode
            if kind in "lh":
                info.linkname = rest
            data = rest.encode() if kind == "f" else b""
            info.size = len(data)
            made.addfile(info, io.BytesIO(data))
    return out.getvalue()


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def docker_save(*layers: bytes, env: Iterable[str] = ()) -> bytes:
    config = json.dumps({"config": {"Env": list(env)}})
    names = [f"{at}/layer.tar" for at in range(len(layers))]
    manifest = json.dumps([{"Config": "c.json", "RepoTags": None, "Layers": names}])
    files = {"manifest.json": manifest.encode(), "c.json": config.encode()} | dict(zip(names, layers, strict=True))
    return packed(files)


def oci(*layers: bytes, wrong: bool = False, nested: bool = True) -> bytes:
    blobs: dict[str, bytes] = {}

    def put(data: bytes) -> str:
        blobs[f"blobs/sha256/{sha(data)}"] = data[:-1] + b"X" if wrong and data in layers else data
        return f"sha256:{sha(data)}"

    config = put(json.dumps({"config": {"Env": ["A=1"]}}).encode())
    manifest = {"config": {"digest": config}, "layers": [{"digest": put(layer)} for layer in layers]}
    entry = {"digest": put(json.dumps(manifest).encode()), "mediaType": "application/vnd.oci.image.manifest.v1+json"}
    if nested:
        index = put(json.dumps({"manifests": [entry]}).encode())
        entry = {"digest": index, "mediaType": "application/vnd.oci.image.index.v1+json"}
    return packed({"index.json": json.dumps({"manifests": [entry]}).encode(), **blobs})


def packed(files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as made:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            made.addfile(info, io.BytesIO(data))
    return out.getvalue()


class Place:
    """A folder to unpack into, with a file beside it that nothing may touch."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.root = folder, folder / "root"
        self.root.mkdir()
        (folder / "outside").mkdir()
        (folder / "outside" / "secret").write_text("secret")

    async def unpack(self, data: bytes) -> dict[str, str]:
        archive, spare = self.folder / "archive", self.folder / "spare"
        archive.write_bytes(data)
        spare.mkdir(exist_ok=True)
        return await unpack_archive(archive, self.root, spare)

    def untouched(self) -> bool:
        return [each.name for each in (self.folder / "outside").iterdir()] == ["secret"] and (
            self.folder / "outside" / "secret"
        ).read_text() == "secret"

    def text(self, name: str) -> str:
        return (self.root / name).read_text()


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


BASE = tar(("d", "etc", ""), ("f", "etc/one", "1"), ("f", "gone/a", "a"), ("f", "gone/b", "b"), ("l", "bin", "usr/bin"))
OVER = tar(("f", "etc/.wh.one", ""), ("f", "gone/new", "n"), ("f", "gone/.wh..wh..opq", ""), ("f", "bin/sh", "#!"))


@pytest.mark.parametrize("make", [docker_save, oci])
@pytest.mark.parametrize("press", [bytes, gzip.compress, bz2.compress, lzma.compress])
async def test_layers_are_laid_over_one_another_with_their_whiteouts(
    place: Place, make: Callable[..., bytes], press: Callable[[bytes], bytes]
) -> None:
    await place.unpack(press(make(press(BASE), press(OVER))))
    assert not (place.root / "etc/one").exists()
    assert [each.name for each in (place.root / "gone").iterdir()] == ["new"]
    assert place.text("usr/bin/sh") == "#!"
    assert (place.root / "bin").readlink() == Path("usr/bin")


async def test_variables_come_along(place: Place) -> None:
    assert await place.unpack(docker_save(BASE, env=["PATH=/x", "A=b=c", "odd"])) == {"PATH": "/x", "A": "b=c"}


@pytest.mark.parametrize("form", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT, tarfile.USTAR_FORMAT])
async def test_a_file_system_in_any_form_of_tar(place: Place, form: int) -> None:
    long = "/".join(["d" * 60] * 3) + "/file"
    await place.unpack(tar(("f", long, "deep"), ("f", "./ünï", "x"), form=form))
    assert place.text(long) == "deep"
    assert place.text("ünï") == "x"


async def test_no_privilege_device_or_pipe_comes_along_and_all_can_read(place: Place) -> None:
    await place.unpack(tar(("f", "su", "x"), ("c", "tty", ""), ("b", "disk", ""), ("p", "pipe", ""), mode=0o6711))
    assert stat.S_IMODE((place.root / "su").stat().st_mode) == 0o755
    assert not any((place.root / name).exists() for name in ("tty", "disk", "pipe"))


async def test_the_places_of_the_backends_are_real_whatever_the_image_has_there(place: Place) -> None:
    out = str(place.folder / "outside")
    links = [("l", name, out) for name in ("proc", "dev", "work", "tmp", "etc", "home", "run", ".swarm")]
    await place.unpack(tar(*links, ("l", "sys", "/nowhere")))
    for name in ("proc", "dev", "dev/shm", "work", "tmp", "home/agent", "run", "sys", "etc"):
        assert (place.root / name).is_dir()
        assert not (place.root / name).is_symlink()
    assert (place.root / "etc/passwd").is_file()
    assert place.untouched()


async def test_what_an_image_links_to_is_found_in_the_image(place: Place) -> None:
    out = str(place.folder / "outside")
    await place.unpack(
        tar(
            ("l", "abs", out),
            ("f", "abs/secret", "evil"),
            ("l", "up", "../../../../../../" + out),
            ("f", "up/new", "evil"),
            ("l", "file", f"{out}/secret"),
            ("f", "file", "mine"),
            ("l", "dot", "."),
            ("f", "dot/dot/dot/x", "x"),
        )
    )
    assert place.untouched()
    assert (place.root / out.lstrip("/") / "secret").read_text() == "evil"
    assert place.text("file") == "mine"
    assert place.text("x") == "x"


@pytest.mark.parametrize(
    "data",
    [
        tar(("f", "/etc/cron.d/x", "evil")),
        tar(("f", "a/../../outside/x", "evil")),
        tar(("l", "s", "../outside"), ("h", "h", "s/../../outside/secret")),
        tar(("h", "h", "../outside/secret")),
        tar(("h", "h", "missing")),
        tar(("l", "s", "/etc/passwd"), ("h", "h", "s")),
        tar(("c", "null", ""), ("h", "h", "null")),
        tar(("l", "a", "b"), ("l", "b", "a"), ("f", "a/x", "evil")),
        tar(("f", "x" * 300, "evil")),
        tar(("f", "/".join("d" * 300) + "/x", "evil")),
        tar(("f", ".wh...", ""), ("f", ".wh..", "")),
        docker_save(tar(("f", "../outside/x", "evil"))),
        docker_save(),
        packed({"manifest.json": b"[]"}),
        packed({"manifest.json": b"[[[[[["}),
        packed({"manifest.json": b"[" * 100_000}),
        packed({"manifest.json": json.dumps([{"Config": "c", "Layers": ["../outside/secret"]}]).encode()}),
        packed({"index.json": b'{"manifests": [{"digest": "sha256:../../outside/secret"}]}'}),
        packed({"index.json": b'{"manifests": [{"digest": "md5:00"}]}'}),
        oci(BASE, wrong=True),
        BASE[:700],
        gzip.compress(BASE)[:60],
        b"\x28\xb5\x2f\xfd zstd",
        b"",
        b"not a tar" * 100,
    ],
    ids=map(str, count()),  # what gzip writes tells the time, and a name must be the same in every worker
)
async def test_a_hostile_or_broken_archive_is_refused_and_nothing_outside_is_touched(place: Place, data: bytes) -> None:
    with pytest.raises(SandboxError):
        await place.unpack(data)
    assert place.untouched()


async def test_a_link_to_a_layer_in_the_archive_stands_for_it_alone(place: Place) -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as made:
        manifest = json.dumps([{"Config": "c", "Layers": ["a/layer.tar", "b/layer.tar"]}]).encode()
        for name, data in (("manifest.json", manifest), ("a/layer.tar", BASE), ("c", b"{}")):
            info = tarfile.TarInfo(name)
            info.size = len(data)
            made.addfile(info, io.BytesIO(data))
        info = tarfile.TarInfo("b/layer.tar")
        info.type, info.linkname = tarfile.SYMTYPE, "../a/layer.tar"
        made.addfile(info)
    await place.unpack(out.getvalue())
    assert place.text("etc/one") == "1"


async def stream_of(data: bytes) -> AsyncIterator[bytes]:
    yield data


async def test_sizes_and_counts_are_bounded_before_anything_is_written(place: Place) -> None:
    with pytest.raises(ImageError, match="more files or bytes"):
        await Unpacker(place.root, Caps(bytes=10)).layer(stream_of(tar(("f", "big", "x" * 11))))
    with pytest.raises(ImageError, match="more files or bytes"):
        await Unpacker(place.root, Caps(entries=2)).layer(stream_of(tar(*(("d", f"d{at}", "") for at in range(3)))))
    assert not (place.root / "big").exists()


@pytest.mark.parametrize("data", [docker_save(tar(("f", "big", "x" * 5000))), tar(("f", "big", "x" * 5000))])
async def test_an_archive_takes_no_more_than_there_is_room_for(place: Place, data: bytes) -> None:
    archive = place.folder / "archive"
    archive.write_bytes(data)
    (place.folder / "spare").mkdir()
    with pytest.raises(ImageError, match="room"):
        await unpack_archive(archive, place.root, place.folder / "spare", 4000)
    assert sum(each.stat().st_size for each in place.folder.rglob("*") if each.is_file() and each != archive) < 4000


async def test_a_folder_and_a_file_system_become_the_same_image_each_time(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    (folder / "d").mkdir(parents=True)
    (folder / "d" / "f").write_text("x")
    (folder / "l").symlink_to("d/f")
    made = []
    for at in range(2):
        os.utime(folder / "d" / "f", (at, at))
        pack_folder(folder, tmp_path / "folder.tar", MIB)
        await wrapped(tmp_path / "folder.tar", tmp_path / f"image{at}.tar", MIB)
        made.append(sha((tmp_path / f"image{at}.tar").read_bytes()))
        assert (await look(tmp_path / f"image{at}.tar")).image
    assert made[0] == made[1]
    (tmp_path / "place").mkdir()
    place = Place(tmp_path / "place")
    await place.unpack((tmp_path / "image0.tar").read_bytes())
    assert place.text("d/f") == "x"
    with pytest.raises(ImageError, match="no folder"):
        pack_folder(tmp_path / "missing", tmp_path / "x.tar", MIB)


async def test_what_is_small_until_it_is_unpacked_takes_no_more_than_there_is_room_for(tmp_path: Path) -> None:
    bomb = tmp_path / "bomb.tar.gz"
    bomb.write_bytes(gzip.compress(tar(("f", "big", "\0" * (8 * MIB)))))
    assert bomb.stat().st_size < MIB // 16
    with pytest.raises(ImageError, match="no room"):
        await wrapped(bomb, tmp_path / "image.tar", 2 * MIB)
    folder = tmp_path / "folder"
    folder.mkdir()
    with (folder / "holes").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(ImageError, match="no room"):
        pack_folder(folder, tmp_path / "folder.tar", 2 * MIB)
    (folder / "holes").unlink()
    for name in "abc":
        (folder / name).write_bytes(bytes(MIB))
    with pytest.raises(ImageError, match="no room"):
        pack_folder(folder, tmp_path / "folder.tar", 2 * MIB)
    assert sum(path.stat().st_size for path in tmp_path.glob("*") if path.is_file()) < 6 * MIB  # noqa: ASYNC240


async def test_a_context_holds_its_folder_without_git(tmp_path: Path) -> None:
    read = partial(read_dockerfile, args={})
    data = tar(
        ("f", ".git/config", "x"),
        ("f", "dev/Dockerfile", "FROM \\\n a # b\nRUN x"),
        ("f", "dev/good", "#c\nFROM a\nRUN \\\n x"),
        ("l", "dev/link", "../x"),
        ("f", "other", "x"),
        ("f", "long", "#" * 70000),
    )
    recipe = await write_context(stream_of(data), "dev", "good", tmp_path / "context.tar", read)
    assert recipe.parents == ("a",)
    with tarfile.open(tmp_path / "context.tar") as made:
        assert sorted(made.getnames()) == ["Dockerfile", "good", "link"]
        assert made.extractfile("good").read() == b"FROM a\nRUN x\n"
    await write_context(stream_of(data), ".", "dev/good", tmp_path / "context.tar", read)
    with tarfile.open(tmp_path / "context.tar") as made:
        assert sorted(made.getnames()) == ["dev/Dockerfile", "dev/good", "dev/link", "long", "other"]
    for folder, file in (("dev", "missing"), ("dev", "link"), ("dev", "Dockerfile"), (".", "long")):
        with pytest.raises(ImageError, match="Dockerfile"):
            await write_context(stream_of(data), folder, file, tmp_path / "context.tar", read)
