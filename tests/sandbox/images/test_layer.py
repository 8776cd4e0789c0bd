"""A set-up's export is hostile: what gets into its layer lies beside the checkout, in the workspace, and is bounded."""

from __future__ import annotations

import io
import tarfile
from collections.abc import AsyncIterator

import pytest

from sandbox.errors import SandboxError, SetUpError
from sandbox.images.layer import Entry, Index, layer_of
from sandbox.trees.tarball import Member

TRACKED = {b"app.py", b"pkg/mod.py", b"link"}
KINDS = {"f": tarfile.REGTYPE, "d": tarfile.DIRTYPE, "l": tarfile.SYMTYPE, "h": tarfile.LNKTYPE, "c": tarfile.CHRTYPE}
KINDS |= {"b": tarfile.BLKTYPE, "p": tarfile.FIFOTYPE}


def tar(*entries: tuple[str, str, str], mode: int = 0o644) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as made:
        for kind, name, rest in entries:
            info = tarfile.TarInfo(name)
            info.type, info.mode, info.mtime = KINDS[kind], mode, 1_000
            info.linkname = rest if kind in "lh" else ""
            data = rest.encode() if kind == "f" else b""
            info.size = len(data)
            made.addfile(info, io.BytesIO(data))
    return out.getvalue()


async def stream_of(data: bytes) -> AsyncIterator[bytes]:
    for at in range(0, len(data), 700):
        yield data[at : at + 700]


async def layer(data: bytes, limit: int = 1 << 20) -> tuple[dict[str, tarfile.TarInfo], Index]:
    index = Index()
    made = b"".join([chunk async for chunk in layer_of(stream_of(data), TRACKED, index, limit=limit)])
    with tarfile.open(fileobj=io.BytesIO(made)) as found:
        return {info.name: info for info in found}, index


@pytest.mark.parametrize(
    "entry",
    [
        ("f", "/etc/passwd", "evil"),
        ("f", "../evil", "evil"),
        ("f", "a/../../evil", "evil"),
        ("f", "app.py", "evil"),
        ("f", "./pkg/./mod.py", "evil"),
        ("d", "app.py", ""),
        ("f", "app.py/below", "evil"),
        ("l", "pkg", "/tmp"),
        ("l", "link", "/tmp"),
        ("f", ".git/hooks/pre-commit", "evil"),
        ("l", ".git", "/tmp"),
        ("f", ".GIT/config", "evil"),
        ("f", "deep/.git/config", "evil"),
        ("f", ".g\u200cit/config", "evil"),
        ("f", "git~1/config", "evil"),
        ("h", "hard", "app.py"),
        ("h", "hard", "../../etc/passwd"),
        ("h", "hard", "/etc/passwd"),
        ("h", "hard", "missing"),
        ("c", "null", ""),
        ("b", "disk", ""),
        ("p", "pipe", ""),
    ],
)
async def test_what_does_not_belong_there_is_forgotten(entry: tuple[str, str, str]) -> None:
    found, index = await layer(tar(("f", "before", "1"), entry, ("f", "after", "2")))
    assert found.keys() == {"before", "after"}
    assert index.entries.keys() == {b"before", b"after"}


async def test_nothing_is_written_through_a_link_or_a_file_of_the_layer_itself() -> None:
    entries = (("l", "out", "/tmp"), ("f", "out/evil", "x"), ("f", "file", "x"), ("f", "file/evil", "x"))
    found, _ = await layer(tar(*entries, ("l", "file", "/tmp"), ("d", "out", "")))
    assert found.keys() == {"out", "file"}
    assert found["out"].issym()
    assert found["file"].isreg()


async def test_kinds_times_and_modes_come_along_without_privilege() -> None:
    data = tar(("d", "d", ""), ("f", "d/f", "x"), ("h", "d/g", "d/f"), ("l", "d/l", "../.."), mode=0o6511)
    found, index = await layer(data)
    assert found["d/f"].mode == 0o711
    assert found["d"].mode == 0o711
    assert found["d/g"].islnk()
    assert found["d/f"].mtime == 1_000
    assert index.made == {b"d"}
    assert index.roots() == [b"d/"]
    assert Index.loads(index.dumps()) == index


async def test_a_layer_is_bounded_by_what_its_files_say_they_hold() -> None:
    with pytest.raises(SetUpError, match="left more than 10 bytes"):
        await layer(tar(("f", "a", "x" * 6), ("f", "b", "x" * 6)), limit=10)


@pytest.mark.parametrize("data", [b"", b"x" * 2000, tar(("f", "a", "x" * 2000))[:1000]])
async def test_a_malformed_export_makes_no_layer(data: bytes) -> None:
    with pytest.raises(SandboxError):
        await layer(data)


@pytest.mark.parametrize(
    ("paths", "disagrees"),
    [
        ([b"other"], False),
        ([b"file"], False),
        ([b"folder/more"], False),
        ([b"folder"], True),
        ([b"file/below"], True),
        ([b"link"], True),
        ([b"link/below"], True),
        ([b"folder/file/deep/er"], True),
    ],
)
def test_a_checkout_agrees_with_a_layer_or_not(paths: list[bytes], disagrees: bool) -> None:
    kinds = {b"file": "file", b"folder": "directory", b"folder/file": "file", b"link": "symlink"}
    index = Index({name: Entry(kind, 1, 1) for name, kind in kinds.items()}, {b"folder"})
    assert index.disagrees(paths) is disagrees


def test_what_is_unchanged_or_in_a_folder_of_the_layers_own_is_the_layers() -> None:
    index = Index({b"made": Entry("directory", 0, 5), b"lock": Entry("file", 4, 7)}, {b"made"})

    def member(name: bytes, kind: str = "file", size: int = 4, mtime: int = 7) -> tuple[bytes, Member]:
        return name, Member(kind, name, b"", 0o644, size, size, mtime=mtime)  # type: ignore[arg-type]

    assert index.holds(*member(b"lock"))
    assert index.holds(*member(b"made/any/thing", size=9))
    assert not index.holds(*member(b"lock", mtime=8))
    assert not index.holds(*member(b"lock", size=5))
    assert not index.holds(*member(b"lock", kind="symlink"))
    assert not index.holds(*member(b"makes"))
