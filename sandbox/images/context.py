"""Writes tars for an engine: the context of a build, a file system wrapped as an image."""

from __future__ import annotations

import hashlib
import io
import json
import os
import platform
import tarfile
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

from sandbox.errors import ImageError
from sandbox.images.archive import MACHINES, opened
from sandbox.images.dockerfile import LONGEST, Recipe
from sandbox.trees.names import names_git, normal
from sandbox.trees.tarball import END, TarReader, header, padding
from sandbox.types import MIB

_CONTEXT_LIMIT = 1024 * MIB
_BEGINNING = "1970-01-01T00:00:00Z"


async def write_context(
    stream: AsyncIterator[bytes], folder: str, file: str, target: Path, read: Callable[[str], Recipe]
) -> Recipe:
    """A folder of a checkout as a tar, without git's own; its Dockerfile as ``read`` understood it, in its place.

    Raises ImageError where the Dockerfile is not there or too long, WorkspaceError for a bad stream, and what ``read``
    raises.
    """
    top = b"" if folder in {"", "."} else os.fsencode(folder).strip(b"/") + b"/"
    recipe: Recipe | None = None
    reader = TarReader(stream, limit=_CONTEXT_LIMIT)
    with target.open("wb") as out:
        async for member in reader:
            path = normal(member.name)
            if path is None or not path.startswith(top) or names_git(path.split(b"/")[0]):
                continue
            path = path[len(top) :]
            if member.kind == "symlink":
                out.write(header(path, 0o777, 0, 0, member.link))
            elif member.kind == "file" and path == os.fsencode(file):
                if member.size > LONGEST:
                    raise ImageError(f"the Dockerfile {file!r} is longer than {LONGEST} bytes")
                said = b"".join([chunk async for chunk in reader.content()])
                recipe = read(said.decode("utf-8", "replace"))
                text = recipe.text.encode()
                out.write(header(path, 0o644, len(text), 0) + text + padding(len(text)))
            elif member.kind == "file":
                out.write(header(path, member.mode & 0o755, member.size, 0))
                async for chunk in reader.content():
                    out.write(chunk)
                out.write(padding(member.size))
        out.write(END)
    if recipe is None:
        raise ImageError(f"the repository has no Dockerfile {file!r} in {folder!r}")
    return recipe


def pack_folder(folder: Path, target: Path, room: int) -> None:
    """A folder of the operator's as a tar, the same for the same content. Raises ImageError, also over ``room`` bytes.

    Holes in its files become zeros.
    """
    if not folder.is_dir():
        raise ImageError(f"there is no folder {folder}; mend: correct the setting, or put one there")
    try:
        with tarfile.open(target, "w", format=tarfile.GNU_FORMAT) as tar:
            for above, folders, files in os.walk(folder):
                folders.sort()
                for name in sorted([*folders, *files]):
                    room -= _add(tar, Path(above, name), folder, room)
    except OSError as error:
        raise ImageError(f"{folder} cannot be read: {error}") from error


def _add(tar: tarfile.TarFile, path: Path, folder: Path, room: int) -> int:
    """Bytes that it takes."""
    tar.inodes = {}  # type: ignore[attr-defined]  # no hard links: each path stands for itself
    info = tar.gettarinfo(path, str(path.relative_to(folder)))
    if info is None or not (info.isreg() or info.isdir() or info.issym()):
        return 0
    info.uid = info.gid = 0
    info.mtime = 0
    info.uname = info.gname = ""
    if info.size > room:
        raise ImageError(f"there is no room on the disk for what {folder} holds")
    if info.isreg():
        with path.open("rb") as content:
            tar.addfile(info, content)
    else:
        tar.addfile(info)
    return info.size


async def wrapped(rootfs: Path, target: Path, room: int) -> None:
    """A file system's tar as an archive of an image of one layer, which has the same id for the same content.

    Raises ImageError where that would take more than ``room`` bytes: it is there twice for a while, unpacked.
    """
    plain = target.with_suffix(".layer")
    digest = hashlib.sha256()
    with plain.open("wb") as out:
        async with aclosing(opened(rootfs)) as stream:
            async for chunk in stream:
                digest.update(chunk)
                out.write(chunk)
                if 2 * out.tell() > room:
                    raise ImageError(f"there is no room on the disk for what {rootfs} unpacks to")
    config: dict[str, Any] = {
        "architecture": MACHINES.get(platform.machine(), platform.machine()),
        "os": "linux",
        "created": _BEGINNING,
        "config": {"Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest.hexdigest()}"]},
        "history": [{"created": _BEGINNING, "created_by": "agent-swarm"}],
    }
    encoded = json.dumps(config, sort_keys=True).encode()
    name = f"{hashlib.sha256(encoded).hexdigest()}.json"
    manifest = [{"Config": name, "RepoTags": None, "Layers": ["layer.tar"]}]
    with tarfile.open(target, "w", format=tarfile.GNU_FORMAT) as tar:
        for each, data in ((name, encoded), ("manifest.json", json.dumps(manifest).encode())):
            info = tarfile.TarInfo(each)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
        layer = tarfile.TarInfo("layer.tar")
        layer.size = plain.stat().st_size
        with plain.open("rb") as content:
            tar.addfile(layer, content)
    plain.unlink()
