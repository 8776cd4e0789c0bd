"""Reads an archive that holds a file system, or an image as `docker save` or an OCI tool writes it, layer by layer.

After the OCI image specification (image-layout.md, manifest.md) and Docker's image specification 1.2.
"""

from __future__ import annotations

import bz2
import gzip
import hashlib
import json
import lzma
import platform
import zlib
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from sandbox.errors import ImageError, WorkspaceError
from sandbox.images.rootfs import MOST_BYTES, MOST_ENTRIES, Caps, Unpacker
from sandbox.trees.names import normal, shown
from sandbox.trees.tarball import TarReader
from sandbox.types import MIB

MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
_CHUNK = 256 * 1024
_DOCUMENT = 4 * MIB
_MOST_LAYERS = 512
_MOST_FILES = 4096
_INDEXES = ("application/vnd.oci.image.index.v1+json", "application/vnd.docker.distribution.manifest.list.v2+json")
_ZSTD = b"\x28\xb5\x2f\xfd"


@dataclass
class Contents:
    """What lies in an archive: its documents by name, and whether it is an image."""

    documents: dict[bytes, bytes] = field(default_factory=dict)

    @property
    def image(self) -> bool:
        """Whether it is an image; else it is a file system."""
        return b"manifest.json" in self.documents or b"index.json" in self.documents


@dataclass(frozen=True)
class Plan:
    """The layers of an image, the lowest first, by the names of their files, and the variables that it sets."""

    layers: tuple[bytes, ...]
    env: Mapping[str, str]


async def unpack_archive(archive: Path, root: Path, spare: Path, room: int = MOST_BYTES) -> dict[str, str]:
    """Unpack an archive's file system into the empty folder ``root``; the variables that its image sets.

    ``spare`` is an empty folder for what is needed in between; either takes ``room`` bytes at most. Raises ImageError.
    """
    try:
        return await _unpacked(archive, Unpacker(root, Caps(bytes=min(room, MOST_BYTES))), spare, room)
    except WorkspaceError as error:
        raise ImageError(f"{archive} cannot be unpacked: {str(error).replace('the export', 'the archive')}") from error


async def _unpacked(archive: Path, unpacker: Unpacker, spare: Path, room: int) -> dict[str, str]:
    contents = await look(archive)
    env: Mapping[str, str] = {}
    if contents.image:
        names = await _spread(archive, spare, room)
        plan = plan_of({name: _document(path) for name, path in names.items()})
        for layer in plan.layers:
            if layer not in names:
                raise ImageError(f"{archive} lacks its layer {shown(layer)}")
            async with aclosing(opened(names[layer])) as stream:
                await unpacker.layer(stream)
        env = plan.env
    else:
        async with aclosing(opened(archive)) as stream:
            await unpacker.layer(stream)
    unpacker.finish()
    return dict(env)


async def look(archive: Path) -> Contents:
    """Which form an archive has."""
    contents = Contents()
    async with aclosing(opened(archive)) as stream:
        reader = _reader(stream)
        async for member in reader:
            name = normal(member.name)
            if name in {b"manifest.json", b"index.json"} and member.kind == "file" and member.size <= _DOCUMENT:
                contents.documents[name] = b"".join([chunk async for chunk in reader.content()])
    return contents


async def opened(path: Path) -> AsyncGenerator[bytes, None]:
    """A file's bytes, decompressed. Raises ImageError for what cannot be read."""
    try:
        with path.open("rb") as raw:
            head = raw.read(6)
            raw.seek(0)
            with _decompressed(path, raw, head) as file:
                while chunk := file.read(_CHUNK):
                    yield chunk
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise ImageError(f"{path} cannot be read: {error}") from error


def _decompressed(path: Path, raw: IO[bytes], head: bytes) -> IO[bytes]:
    if head.startswith(b"\x1f\x8b"):
        return gzip.GzipFile(fileobj=raw)  # type: ignore[return-value]
    if head.startswith(b"BZh"):
        return bz2.BZ2File(raw)
    if head.startswith(b"\xfd7zXZ\0"):
        return lzma.LZMAFile(raw)
    if head.startswith(_ZSTD):
        raise ImageError(f"{path} is compressed with zstd, which is not read; mend: write it with gzip")
    return raw


def plan_of(documents: Mapping[bytes, bytes | None]) -> Plan:
    """Which layers make the image, from its documents by name. Raises ImageError."""
    try:
        if documents.get(b"manifest.json"):
            return _docker(documents)
        return _oci(documents)
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError) as error:
        raise ImageError(f"the archive's description of its image cannot be read: {error!r}") from error


def _docker(documents: Mapping[bytes, bytes | None]) -> Plan:
    images = json.loads(documents[b"manifest.json"] or b"")
    if len(images) != 1:
        raise ImageError(f"the archive holds {len(images)} images; mend: save one alone")
    layers = [str(name).encode() for name in images[0]["Layers"]]
    return _plan(layers, documents.get(str(images[0]["Config"]).encode()))


def _oci(documents: Mapping[bytes, bytes | None]) -> Plan:
    entries = json.loads(documents[b"index.json"] or b"")["manifests"]
    for _ in range(3):
        entry = _ours(entries)
        found = json.loads(_blob(documents, entry["digest"]))
        if entry.get("mediaType") not in _INDEXES and "manifests" not in found:
            layers = [_blob_name(layer["digest"]) for layer in found["layers"]]
            return _plan(layers, _blob(documents, found["config"]["digest"]))
        entries = found["manifests"]
    raise ImageError("the archive's indexes lead to no image")


def _ours(entries: list[dict[str, Any]]) -> dict[str, Any]:
    """The image for this machine, or the only one."""
    wanted = MACHINES.get(platform.machine(), platform.machine())
    fitting = [each for each in entries if each.get("platform", {}).get("architecture", wanted) == wanted]
    if len(fitting) != 1:
        raise ImageError(f"the archive holds {len(fitting)} images for {wanted}; mend: save one alone")
    return fitting[0]


def _plan(layers: list[bytes], config: bytes | None) -> Plan:
    if not layers or len(layers) > _MOST_LAYERS:
        raise ImageError(f"the image has {len(layers)} layers")
    variables = (json.loads(config or b"{}").get("config") or {}).get("Env") or []
    return Plan(tuple(layers), dict(str(line).split("=", 1) for line in variables if "=" in str(line)))


def _blob_name(digest: str) -> bytes:
    algorithm, _, value = digest.partition(":")
    if algorithm != "sha256" or len(value) != 64 or not value.isalnum():
        raise ImageError(f"the archive names its contents by {digest[:100]!r}, which is not read")
    return f"blobs/sha256/{value}".encode()


def _blob(documents: Mapping[bytes, bytes | None], digest: str) -> bytes:
    data = documents.get(_blob_name(digest))
    if data is None or f"sha256:{hashlib.sha256(data).hexdigest()}" != digest:
        raise ImageError(f"the archive lacks {digest}, or holds something else under its name")
    return data


async def _spread(archive: Path, spare: Path, room: int) -> dict[bytes, Path]:
    """The archive's files in ``spare``, under names of ours; those named by their digest are held to it."""
    found: dict[bytes, Path] = {}
    links: dict[bytes, bytes] = {}
    async with aclosing(opened(archive)) as stream:
        reader = _reader(stream)
        async for member in reader:
            name = normal(member.name)
            if name is None or member.kind not in {"file", "symlink", "hardlink"}:
                continue
            if member.kind != "file" and len(links) < _MOST_FILES:
                links[name] = _target(name, member.link, symbolic=member.kind == "symlink")
            if member.kind != "file":
                continue
            if len(found) >= _MOST_FILES:
                raise ImageError(f"the archive holds more than {_MOST_FILES} files beside its layers")
            room -= member.size
            if room < 0:
                raise ImageError(f"there is no room on the disk to take {archive} apart")
            found[name] = path = spare / str(len(found))
            digest = hashlib.sha256()
            with path.open("xb") as file:
                async for chunk in reader.content():
                    digest.update(chunk)
                    file.write(chunk)
            if name.startswith(b"blobs/sha256/") and name != _blob_name(f"sha256:{digest.hexdigest()}"):
                raise ImageError(f"{shown(name)} does not hold what its name says")
    return found | {name: found[to] for name, to in links.items() if to in found}


def _target(name: bytes, link: bytes, *, symbolic: bool) -> bytes:
    """What a link in an archive stands for, as a name in it; Docker links equal layers so (``../ID/layer.tar``)."""
    parts = name.split(b"/")[:-1] if symbolic else []
    for part in link.split(b"/"):
        if part == b"..":
            parts = parts[:-1]
        elif part not in {b"", b"."}:
            parts.append(part)
    return b"/".join(parts)


def _document(path: Path) -> bytes | None:
    """A file that may be a document: small, and an object or a list."""
    if path.stat().st_size > _DOCUMENT:
        return None
    data = path.read_bytes()
    return data if data.lstrip()[:1] in {b"{", b"["} else None


def _reader(stream: AsyncGenerator[bytes, None]) -> TarReader:
    return TarReader(stream, limit=2 * MOST_BYTES, most=MOST_ENTRIES, pax=True)
