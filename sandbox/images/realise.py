"""Turns an image source into what a backend opens: a pinned id for an engine, else a folder with a file system."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from pydantic import Field

from sandbox.config import ImagesConfig
from sandbox.errors import ImageError, SandboxLostError, SandboxUnavailableError
from sandbox.images.archive import look, unpack_archive
from sandbox.images.context import pack_folder, wrapped, write_context
from sandbox.images.dockerfile import read_dockerfile
from sandbox.images.engine import ImageEngine
from sandbox.images.making import Checkout
from sandbox.images.shelf import Shelf
from sandbox.images.sources import Archive, Dockerfile, Folder, ImageSource, Reference, insist_allowed
from sandbox.types import Backend, Frozen

_REMEMBERED = 256
_MEND = (
    'mend: start one (in a checkout, as root: eval "$(scripts/start-docker)"), or name an archive that `docker save` '
    "wrote as the image"
)


class Realised(Frozen):
    """An image that can be opened. ``image`` goes into a spec, ``system`` pins it, ``env`` are its own variables."""

    image: str | None
    system: str
    env: dict[str, str] = Field(default_factory=dict)


@dataclass
class Realiser:
    """For one backend; ``engine`` is there where a Docker engine may be asked."""

    backend: Backend
    engine: ImageEngine | None
    shelf: Shelf
    config: ImagesConfig
    _known: dict[str, str] = field(default_factory=dict)
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    @asynccontextmanager
    async def realise(self, source: ImageSource, checkout: Checkout | None = None) -> AsyncIterator[Realised]:
        """The image, kept while the context lasts. With a ``checkout`` it is the repository's choice, and judged so.

        Raises ImageError for what is not there or not allowed, SandboxUnavailableError where an engine is missing.
        """
        async with AsyncExitStack() as stack:
            if checkout is not None:
                self._judge(source)
            if self.backend == "docker":
                found = await self._id(source, checkout, stack)
                yield Realised(image=found, system=found, env=_plain(await self._engine(source).image_env(found)))
                return
            try:
                made = await self._folder(source, checkout, stack)
            except SandboxLostError as error:
                raise SandboxUnavailableError(f"{_needs_engine(source)}: {error}; {_MEND}") from error
            yield made

    def _judge(self, source: ImageSource) -> None:
        """What a repository may ask for; the parents of a Dockerfile are judged when it is read."""
        match source:
            case Reference():
                insist_allowed(source.name, self.config.allowed)
            case Dockerfile() if source.folder is None:
                if not self.config.builds:
                    raise ImageError(
                        "the repository brings a Dockerfile, and this installation builds none of a repository's; "
                        "mend: set the repository's own image, or sandbox.images.builds = true"
                    )
            case _:
                raise ImageError("a repository cannot choose files of this machine as its image")

    def _engine(self, source: ImageSource) -> ImageEngine:
        if self.engine is None:
            raise SandboxUnavailableError(f"{_needs_engine(source)}, and there is none; {_MEND}")
        return self.engine

    # Through an engine

    async def _id(self, source: ImageSource, checkout: Checkout | None, stack: AsyncExitStack) -> str:
        match source:
            case Reference():
                return await self._named(source)
            case Dockerfile():
                return await self._built(source, checkout, stack)
            case Archive() | Folder():
                return await self._loaded(await self._archive(source, stack), stack)

    async def _named(self, source: Reference) -> str:
        engine = self._engine(source)
        found = await engine.image_id(source.name)
        if found is None and self.config.pull == "missing":
            found = await engine.pull_image(source.name)
        if found is None:
            raise ImageError(
                f"the Docker engine has no image {source.name}; mend: docker pull {source.name}, "
                'or sandbox.images.pull = "missing"'
            )
        return found

    async def _built(self, source: Dockerfile, checkout: Checkout | None, stack: AsyncExitStack) -> str:
        """Built at most once per content of its context in this process; the engine keeps its own layers besides."""
        engine, spare = self._engine(source), stack.enter_context(self.shelf.spare())
        context, args = spare / "context.tar", source.args
        if source.folder is not None:
            await asyncio.to_thread(pack_folder, source.folder / source.context, context, self.shelf.room())
        elif checkout is not None:
            read = partial(read_dockerfile, args=source.args)
            recipe = await write_context(checkout.stream(), source.context, source.file, context, read)
            args = dict(recipe.args)
            for parent in recipe.parents:
                insist_allowed(parent, self.config.allowed)
                await self._named(Reference(name=parent))
        else:
            raise ImageError("a Dockerfile without a folder belongs to a checkout, and there is none")
        name = await asyncio.to_thread(_digest, context)
        key = f"build {name} {source.file} {json.dumps(args, sort_keys=True)}"
        network = self.config.build_network if source.folder is not None else "none"
        async with self._turn:
            known = self._known.get(key)
            if known is None or await engine.image_id(known) is None:
                known = await engine.build_image(context, source.file, args, network)
                self._remember(key, known)
            return known

    async def _loaded(self, archive: Path, stack: AsyncExitStack) -> str:
        engine = self._engine(Archive(path=archive))
        async with self._turn:
            key = f"load {_stamp(archive)}"
            known = self._known.get(key)
            if known is None or await engine.image_id(known) is None:
                contents = await asyncio.to_thread(asyncio.run, look(archive))
                if not contents.image:
                    whole = stack.enter_context(self.shelf.spare()) / "image.tar"
                    await asyncio.to_thread(asyncio.run, wrapped(archive, whole, self.shelf.room()))
                    archive = whole
                known = await engine.load_image(archive)
                self._remember(key, known)
            return known

    # As a folder

    async def _folder(self, source: ImageSource, checkout: Checkout | None, stack: AsyncExitStack) -> Realised:
        archive, found = None, ""
        if isinstance(source, Archive | Folder):
            archive = await self._archive(source, stack)
            name = await self._content(archive)
        else:
            found = await self._id(source, checkout, stack)
            name = found.removeprefix("sha256:")

        async def make(folder: Path) -> None:
            spare, env = stack.enter_context(self.shelf.spare()), dict[str, str]()
            whole = archive
            if whole is None:
                engine, whole = self._engine(source), spare / "export.tar"
                await engine.export_image(found, whole, self.shelf.room())
                env = await engine.image_env(found)
            (spare / "parts").mkdir()
            (folder / "root").mkdir(mode=0o755)
            unpacking = unpack_archive(whole, folder / "root", spare / "parts", self.shelf.room())
            env |= await asyncio.to_thread(asyncio.run, unpacking)
            (folder / "env.json").write_text(json.dumps(_plain(env)))

        held = await stack.enter_async_context(self.shelf.hold(f"root-{name}", make, _whole))
        env = json.loads((held / "env.json").read_text())
        return Realised(image=str(held / "root"), system=name, env=env)

    async def _archive(self, source: Archive | Folder, stack: AsyncExitStack) -> Path:
        """The operator's archive; one made of the operator's folder."""
        if not source.path.exists():
            raise ImageError(f"there is no image at {source.path}; mend: correct the setting, or put one there")
        if isinstance(source, Archive):
            return source.path
        packed = stack.enter_context(self.shelf.spare()) / "folder.tar"
        await asyncio.to_thread(pack_folder, source.path, packed, self.shelf.room())
        return packed

    async def _content(self, archive: Path) -> str:
        """The hash of a file's content, remembered for as long as the file looks the same."""
        key = f"hash {_stamp(archive)}"
        if key not in self._known:
            self._remember(key, await asyncio.to_thread(_digest, archive))
        return self._known[key]

    def _remember(self, key: str, value: str) -> None:
        while len(self._known) >= _REMEMBERED:
            del self._known[next(iter(self._known))]
        self._known[key] = value


def _needs_engine(source: ImageSource) -> str:
    what = source.name if isinstance(source, Reference) else "a Dockerfile"
    return f"bubblewrap needs a Docker engine once to make a folder of {what}"


def host_system(root: Path = Path("/")) -> str:
    """A name for this machine's own system, where sandboxes show it: another one once its packages change."""
    digest = hashlib.sha256()
    for name in ("etc/os-release", "var/lib/dpkg/status", "var/lib/rpm/rpmdb.sqlite", "lib/apk/db/installed"):
        with contextlib.suppress(OSError):
            digest.update((root / name).read_bytes())
    with contextlib.suppress(OSError):
        digest.update(os.fsencode((root / "usr/bin/python3").resolve()))
    return f"host {digest.hexdigest()}"


def _plain(env: Mapping[str, str]) -> dict[str, str]:
    """The variables that a program can be given: whoever made the image wrote them, and an odd one is left out."""
    return {name: value for name, value in env.items() if name and "=" not in name and _sayable(name + value)}


def _sayable(text: str) -> bool:
    try:
        return b"\0" not in text.encode()
    except UnicodeEncodeError:
        return False


def _whole(folder: Path) -> bool:
    return (folder / "env.json").is_file()


def _stamp(path: Path) -> str:
    found = path.stat()
    return f"{path} {found.st_ino} {found.st_size} {found.st_mtime_ns}"


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
