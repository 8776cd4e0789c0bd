"""Opens sandboxes in which a repository's set-up has been done: made once, kept as a layer, laid into each sandbox.

The set-up runs in a sandbox of its own, the only one that reaches the package registries. Tasks get what it left in
another one. Where forks are cheap, a template with the layer in it is forked and the checkout laid over; where they are
not, the layer is laid over the checkout. Which is cheaper is measured. Works with any backend.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import platform
import re
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from sandbox.base import Sandbox, SandboxBackend
from sandbox.errors import SandboxError, SandboxLostError, SetUpError
from sandbox.images.layer import HOME_TAR, Index, layer_of
from sandbox.images.setup import Ground, SetUp, key_of
from sandbox.images.shelf import Shelf
from sandbox.line.programs import BORROWED, argv_of
from sandbox.trees.names import shown
from sandbox.types import Command, Outcome, SandboxSpec

LAYER = "layer"  # label that names what was laid into a sandbox
_KEY = re.compile(r"[0-9a-f]{64}")
_TAIL = 20  # lines of output told of a command that failed
_CHUNK = 1 << 20
_FILES = ("facts.json", "index.json", "layer.tar")
_PLAIN = 256  # layers of which is remembered that they are sound, or that forking them is no gain
# What is unpacked on the way to being installed is larger than a sandbox's /tmp.
_ROOMY = 'export TMPDIR="$HOME/.setup-tmp"; mkdir -p -- "$TMPDIR"; exec /bin/sh -c "$1"'
# Downloads that a package manager keeps are of no use without a network.
_PACK_HOME = (
    'cd -- "$HOME" 2>/dev/null || exit 0; [ -n "$(ls -A)" ] || exit 0; exec "$@" --create --format=gnu '
    "--exclude=./.cache/pip --exclude=./.cache/uv --exclude=./.npm/_cacache "
    '--exclude=./.setup-tmp --file="$OLDPWD/$home" .'
)
_UNPACK_HOME = '[ -f "$home" ] || exit 0; "$@" --extract --directory="$HOME" --file="$home" && rm -f -- "$home"'
# A stranger's image may have no tar; ours is lent to it.
_TAR = "home=$1; shift; if command -v tar >/dev/null 2>&1; then set -- tar; fi; "


@dataclass(frozen=True)
class Checkout:
    """A tree to work on: its files with git's name of each content, and a tar stream of it, made anew at each call."""

    paths: Mapping[bytes, str]
    stream: Callable[[], AsyncIterator[bytes]]


@dataclass(frozen=True)
class Prepared:
    """An open sandbox. ``furniture`` is what the set-up put there, no part of the work; None without a set-up."""

    sandbox: Sandbox
    furniture: Index | None = None


@dataclass
class _Layer:
    """A kept layer in use."""

    name: str
    folder: Path
    index: Index


@dataclass
class _Template:
    """A sandbox that holds a layer and is only forked. Seconds."""

    name: str
    sandbox: Sandbox
    stack: AsyncExitStack
    filled: float
    forked: float = 0.0
    forks: int = 0
    users: int = 0

    def let_go(self) -> None:
        """One user less."""
        self.users -= 1

    @property
    def worth_it(self) -> bool:
        """Whether a fork has cost less than a fresh sandbox with the layer laid in."""
        return not self.forks or self.forked / self.forks < self.filled


@dataclass
class Preparer:
    """Over one backend. ``told`` hears of a set-up that begins, with its commands; ``denied`` what egress refused."""

    backend: SandboxBackend
    shelf: Shelf
    templates: int = 2
    told: Callable[[str], None] = lambda _: None
    denied: Callable[[Mapping[str, str]], tuple[str, ...]] = lambda _: ()
    _ready: OrderedDict[str, _Template] = field(default_factory=OrderedDict)
    _plain: OrderedDict[str, None] = field(default_factory=OrderedDict)
    _seen: OrderedDict[str, tuple[tuple[int, int], ...]] = field(default_factory=OrderedDict)
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    @asynccontextmanager
    async def open(
        self, spec: SandboxSpec, checkout: Checkout, setup: SetUp, ground: Ground, base: Checkout | None = None
    ) -> AsyncIterator[Prepared]:
        """A sandbox with the checkout and what the set-up made of ``base`` (default: of the checkout itself).

        Raises SetUpError where the set-up fails, and what the backend raises.
        """
        if not setup.commands:
            async with self.backend.open(spec, checkout.stream()) as sandbox:
                yield Prepared(sandbox)
            return
        async with AsyncExitStack() as stack:
            layer = await stack.enter_async_context(self._layer(spec, base or checkout, setup, ground))
            spec = spec.model_copy(update={"labels": spec.labels | {LAYER: layer.name}})
            sandbox = await stack.enter_async_context(self._laid(spec, checkout, layer))
            await _exclude(sandbox, layer.index)
            yield Prepared(sandbox, layer.index)

    def furniture(self, layer: str) -> Index | None:
        """What a layer put into a workspace, by the label of its sandbox; None where it is not kept any more."""
        place = self.shelf.folder / layer
        if not _KEY.fullmatch(layer) or not self._sound(place):
            return None
        return Index.loads((place / "index.json").read_text())

    async def close(self) -> None:
        """Let go of the templates."""
        async with self._turn:
            ready, self._ready = list(self._ready.values()), OrderedDict()
        for template in ready:
            await template.stack.aclose()

    def _sound(self, folder: Path) -> bool:
        """Whether a kept layer is what was written; read whole once, then again only when its files look different."""
        try:
            stamp = tuple((each.stat().st_ino, each.stat().st_mtime_ns) for each in map(folder.joinpath, _FILES))
        except OSError:
            return False
        if self._seen.get(folder.name) != stamp:
            if not _intact(folder):
                return False
            while len(self._seen) >= _PLAIN:
                self._seen.popitem(last=False)
            self._seen[folder.name] = stamp
        return True

    # The set-up and its layer

    @asynccontextmanager
    async def _layer(self, spec: SandboxSpec, base: Checkout, setup: SetUp, ground: Ground) -> AsyncIterator[_Layer]:
        name = key_of(setup, ground, base.paths, spec.env)

        async def make(folder: Path) -> None:
            await self._set_up(spec, base, setup, folder)

        async with self.shelf.hold(name, make, self._sound) as folder:
            text = await asyncio.to_thread((folder / "index.json").read_text)
            yield _Layer(name, folder, Index.loads(text))

    async def _set_up(self, spec: SandboxSpec, base: Checkout, setup: SetUp, folder: Path) -> None:
        """Run the commands and write what they left into ``folder``."""
        limits = spec.limits.model_copy(update={"wall": max(spec.limits.wall, setup.seconds)})
        labels = spec.labels | {"kind": "setup"}
        own = spec.model_copy(update={"limits": limits, "network": setup.network, "labels": labels})
        self.told("; ".join(setup.commands))
        async with self.backend.open(own, base.stream()) as sandbox:
            until = time.monotonic() + setup.seconds
            for command in setup.commands:
                argv = ("/bin/sh", "-c", _ROOMY, "sh", command)
                outcome = await sandbox.run(Command(argv=argv, timeout=max(0.1, until - time.monotonic())))
                if outcome.exit_code:
                    raise SetUpError(_failure(command, outcome, self.denied(labels)))
            await _checked(sandbox, "HOME cannot be kept", _PACK_HOME)
            index = Index()
            layer = layer_of(sandbox.export(), base.paths.keys(), index, limit=spec.limits.disk)
            digest = await _written(layer, folder / "layer.tar")
        (folder / "index.json").write_text(index.dumps())
        facts = {"layer": digest, "index": _digest(folder / "index.json"), "commands": setup.commands}
        (folder / "facts.json").write_text(json.dumps(facts))

    # Laying it in

    @asynccontextmanager
    async def _laid(self, spec: SandboxSpec, checkout: Checkout, layer: _Layer) -> AsyncIterator[Sandbox]:
        disagrees = layer.index.disagrees(checkout.paths)
        template = None if disagrees else await self._template(spec, layer)
        async with AsyncExitStack() as stack:
            sandbox = await self._forked(template, spec, stack) if template else None
            if sandbox is not None:
                await sandbox.unpack(checkout.stream())
            else:
                sandbox = await stack.enter_async_context(self.backend.open(spec, checkout.stream()))
                await _fill(sandbox, layer, checkout if disagrees else None, limit=spec.limits.disk)
            yield sandbox

    async def _forked(self, template: _Template, spec: SandboxSpec, stack: AsyncExitStack) -> Sandbox | None:
        """A fork that ends with ``stack``; None where the template is lost, or forking it has cost too much so far."""
        stack.callback(template.let_go)
        began = time.monotonic()
        try:
            sandbox = await stack.enter_async_context(template.sandbox.fork(spec.labels))
        except SandboxLostError:
            async with self._turn:
                self._ready.pop(template.name, None)
            with contextlib.suppress(SandboxError):
                await template.stack.aclose()
            return None
        template.forked += time.monotonic() - began
        template.forks += 1
        return sandbox

    async def _template(self, spec: SandboxSpec, layer: _Layer) -> _Template | None:
        """The template of this layer for such sandboxes, in use until it is let go; None where none is worth it."""
        shape = spec.model_copy(update={"labels": {}}).model_dump_json()
        name = hashlib.sha256(f"{layer.name} {shape}".encode()).hexdigest()
        async with self._turn:
            if self.templates < 1 or name in self._plain:
                return None
            template = self._ready.get(name)
            if template is None:
                await self._drop(most=self.templates - 1)
                if len(self._ready) >= self.templates:
                    return None  # all are in use
                self._ready[name] = template = await self._made(name, spec, layer)
            self._ready.move_to_end(name)
            if not template.worth_it:
                await self._give_up(template)
                return None
            template.users += 1
            return template

    async def _made(self, name: str, spec: SandboxSpec, layer: _Layer) -> _Template:
        async with AsyncExitStack() as stack:
            own = spec.model_copy(update={"labels": {"kind": "template"}})
            began = time.monotonic()
            sandbox = await stack.enter_async_context(self.backend.open(own))
            await _fill(sandbox, layer, None, limit=spec.limits.disk)
            filled = time.monotonic() - began
            return _Template(name, sandbox, stack.pop_all(), filled)

    async def _give_up(self, template: _Template) -> None:
        """From now on such sandboxes get the layer laid in."""
        self._plain[template.name] = None
        while len(self._plain) > _PLAIN:
            self._plain.popitem(last=False)
        if not template.users:
            del self._ready[template.name]
            await template.stack.aclose()

    async def _drop(self, *, most: int) -> None:
        """Close the templates that were not used for the longest time, until ``most`` are left or all are in use."""
        for name, template in list(self._ready.items()):
            if len(self._ready) <= most:
                return
            if not template.users:
                del self._ready[name]
                with contextlib.suppress(SandboxError):
                    await template.stack.aclose()


async def _fill(sandbox: Sandbox, layer: _Layer, over: Checkout | None, *, limit: int) -> None:
    """Lay a layer into a sandbox, less what disagrees with a checkout that is there already."""
    async with aclosing(_read(layer.folder)) as stream:
        if over is None:
            await sandbox.unpack(stream)
        else:
            await sandbox.unpack(layer_of(stream, over.paths.keys(), Index(), limit=limit))
    await _checked(sandbox, "what the set-up left in HOME cannot be unpacked", _UNPACK_HOME)


async def _checked(sandbox: Sandbox, what: str, script: str) -> None:
    lent = argv_of("tar", usr=BORROWED, machine=platform.machine())
    outcome = await sandbox.run(Command(argv=("/bin/sh", "-c", _TAR + script, "sh", HOME_TAR.decode(), *lent)))
    if outcome.exit_code:
        raise SetUpError(f"{what}: {_last(outcome)}")


async def _exclude(sandbox: Sandbox, index: Index) -> None:
    """Tell git inside that these are no part of the work; only a comfort, sealing does not look there."""
    roots = [root for root in index.roots() if b"\n" not in root and root != HOME_TAR]
    lines = b"".join(b"/" + _escaped(root) + b"\n" for root in roots)
    with contextlib.suppress(SandboxError):
        await sandbox.write(".git/info/exclude", lines)


def _escaped(path: bytes) -> bytes:
    return b"".join(b"\\" + bytes([c]) if c in b"\\*?[ !#" else bytes([c]) for c in path)


def _failure(command: str, outcome: Outcome, denied: tuple[str, ...]) -> str:
    """The words of a failed set-up: the command, how it ended, what it said last, and what it was not let to reach."""
    how = f"ended with status {outcome.exit_code}"
    if outcome.timed_out:
        how = f"was stopped after {outcome.seconds:.0f} s"
    elif outcome.out_of_memory:
        how = "ran out of memory"
    refused = f"\nnot let through: {', '.join(denied[:20])}" if denied else ""
    return f"the set-up command {command!r} {how}; it said last:\n{_last(outcome)}{refused}"


def _last(outcome: Outcome) -> str:
    return "\n".join(outcome.text.splitlines()[-_TAIL:])[-4000:] or "(nothing)"


def _intact(folder: Path) -> bool:
    try:
        facts = json.loads((folder / "facts.json").read_text())
        return bool(
            facts["layer"] == _digest(folder / "layer.tar") and facts["index"] == _digest(folder / "index.json")
        )
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


async def _written(stream: AsyncGenerator[bytes, None], path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("wb") as file:
        async with aclosing(stream):
            async for chunk in stream:
                digest.update(chunk)
                file.write(chunk)
        file.flush()
    return digest.hexdigest()


async def _read(folder: Path) -> AsyncGenerator[bytes, None]:
    with (folder / "layer.tar").open("rb") as file:
        while chunk := file.read(_CHUNK):
            yield chunk
            await asyncio.sleep(0)


def names_of(index: Index) -> tuple[str, ...]:
    """The topmost paths of a layer, for people."""
    return tuple(shown(root) for root in index.roots())
