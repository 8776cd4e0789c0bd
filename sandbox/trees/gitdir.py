"""Runs git on a trusted git directory, and only there: no hook, no configuration but our own, no network, no prompt.

Git is called as a program, since what is needed here is plumbing (fast-import, pack-objects, check-ignore) that no
binding offers whole. It is never pointed at a folder that an agent could write to. What it reads may be hostile all the
same (trees without end, deltas of nothing, rules that take for ever), so each call has limits.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import secrets
import shutil
import signal
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from sandbox.errors import WorkspaceError
from sandbox.types import MIB

_ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "HOME": "/nonexistent",
    "XDG_CONFIG_HOME": "/nonexistent",
    "LC_ALL": "C",
    "TZ": "UTC",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_SYSTEM": "/dev/null",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_LITERAL_PATHSPECS": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": "/bin/false",
    "GIT_ALLOW_PROTOCOL": "",
    "GIT_AUTHOR_NAME": "Agent Swarm",
    "GIT_AUTHOR_EMAIL": "agent-swarm@localhost",
    "GIT_COMMITTER_NAME": "Agent Swarm",
    "GIT_COMMITTER_EMAIL": "agent-swarm@localhost",
}
_SETTINGS = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.attributesFile=/dev/null",
    "core.excludesFile=/dev/null",
    "core.autocrlf=false",
    "core.quotePath=false",
    "core.alternateRefsCommand=true",
    "protocol.allow=never",
    "gc.auto=0",
    "maintenance.auto=false",
    "transfer.fsckObjects=true",
    "fastimport.unpackLimit=1000",  # loose objects can be pruned one by one, a pack only as a whole
    # Memory that does not grow with what is read, nor with the number of processors.
    "core.bigFileThreshold=32m",
    "core.packedGitWindowSize=32m",
    "core.packedGitLimit=256m",
    "core.preloadIndex=false",
    "index.threads=1",
    "pack.threads=2",
    "pack.windowMemory=128m",
)
_CHUNK = 256 * 1024
_WORDS = 4096  # bytes of standard error that are kept


@dataclass(frozen=True)
class Limits:
    """What one call may use: seconds of the clock and of a processor, bytes of memory and of output.

    ``seconds`` is None where somebody else sets the pace, who gives or takes a stream.
    """

    seconds: float | None = 600.0
    processor: int = 600
    memory: int = 4096 * MIB
    output: int = 128 * MIB


USUAL = Limits()
STREAM = Limits(seconds=None, processor=1800)
PACK = Limits(processor=1800, seconds=1800.0, output=4096 * MIB)


class GitLimitError(WorkspaceError):
    """A call of git's was ended since it used more than it may."""


async def tracked_files(folder: Path, seconds: float = 60.0) -> tuple[bytes, ...] | None:
    """What the person's own checkout at ``folder`` tracks below it; None where it is no checkout.

    Outside a directory of ours, as `untracked` is: it reads the index alone, with our settings over the checkout's.
    Raises WorkspaceError with git's own words, for example where the checkout belongs to another user, GitLimitError
    where it does not answer within ``seconds``.
    """
    argv = _in_checkout(folder, "ls-files", "-z", "--cached")
    code, out, err = await _called(argv, _once(b""), limits=Limits(seconds=seconds))
    if code == 0:
        return tuple(dict.fromkeys(out.split(b"\0")[:-1]))
    if b"not a git repository" in err:
        return None
    raise WorkspaceError(f"git cannot list the files of {folder}: {err.decode('utf-8', 'replace').strip()[-300:]}")


async def untracked(folder: Path, seconds: float = 5.0) -> int:
    """How many files, or whole folders, of a person's checkout are neither tracked nor ignored; 0 where git cannot say.

    Reads the index, names of files and the checkout's own ignore rules; starts nothing that the checkout names.
    """
    words = ("ls-files", "-z", "--others", "--exclude-standard", "--directory", "--no-empty-directory")
    argv = _in_checkout(folder, *words)
    try:
        code, out, _ = await _called(argv, _once(b""), limits=Limits(seconds=seconds))
    except GitLimitError:
        return 0
    return 0 if code else out.count(b"\0")


async def in_checkout(folder: Path, *words: str, stdin: bytes = b"") -> tuple[int, bytes, str]:
    """Exit status, output and last words of git on a person's own repository, on that person's wish.

    For plumbing that touches objects and references alone. With our settings over the repository's: no hook runs.
    Raises GitLimitError.
    """
    code, out, err = await _called(_in_checkout(folder, *words), _once(stdin), limits=PACK)
    return code, out, err.decode("utf-8", "replace").strip()[-300:]


async def merge_file(place: Path, ours: bytes, base: bytes, theirs: bytes) -> tuple[bytes, int]:
    """Three versions of a text as one, with marks around the places that clash, and how many those are.

    ``place`` is an empty folder of the caller's. Raises WorkspaceError for what is no text.
    """
    for name, content in (("yours", ours), ("base", base), ("salvage", theirs)):
        (place / name).write_bytes(content)
    settings = [part for setting in _SETTINGS for part in ("-c", setting)]
    argv = ["git", *settings, "merge-file", "-p", "--diff3", "yours", "base", "salvage"]
    env = {"GIT_CEILING_DIRECTORIES": str(place.parent)}
    code, out, err = await _called(argv, _once(b""), env=env, cwd=place, limits=Limits(seconds=60.0))
    if code > 127:
        raise WorkspaceError(f"git cannot merge it: {err.decode('utf-8', 'replace').strip()[-300:]}")
    return out, code


def _in_checkout(folder: Path, *words: str) -> list[str]:
    """Named in full, since git is started elsewhere than where the person stands."""
    settings = [part for setting in _SETTINGS for part in ("-c", setting)]
    return ["git", "-C", str(folder.absolute()), *settings, *words]


class GitDir:
    """A bare git directory that this process owns and nobody else writes."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()

    def argv(self, *args: str) -> list[str]:
        """The command line of one git call."""
        settings = [part for setting in _SETTINGS for part in ("-c", setting)]
        return ["git", f"--git-dir={self.path}", *settings, *args]

    async def create(self, *, sha256: bool = False) -> None:
        """Make the directory where it is absent, whole or not at all: nobody sees a half one, who dies leaves none."""
        if self._whole():
            return
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        new = GitDir(self.path.with_name(f".{self.path.name}.{secrets.token_hex(4)}.new"))
        new.path.mkdir(mode=0o700)
        init = ("init", "--quiet", "--bare", "--template=", f"--object-format={'sha256' if sha256 else 'sha1'}")
        try:
            await new.run(*init)
            new.path.rename(self.path)
        except OSError:  # it is there by now, or a half one is, which git completes
            if not self._whole():
                await self.run(*init)
        finally:
            await asyncio.to_thread(shutil.rmtree, new.path, ignore_errors=True)

    def _whole(self) -> bool:
        return all((self.path / name).exists() for name in ("HEAD", "config", "objects", "refs"))

    async def run(
        self,
        *args: str,
        stdin: bytes | AsyncIterator[bytes] = b"",
        env: Mapping[str, str] | None = None,
        accept: tuple[int, ...] = (0,),
        cwd: Path | None = None,
        limits: Limits = USUAL,
    ) -> bytes:
        """Standard output of one call. Raises WorkspaceError with git's own words when it fails.

        Raises GitLimitError where it uses more than ``limits``.
        """
        stream = _once(stdin) if isinstance(stdin, bytes) else stdin
        code, out, err = await _called(self.argv(*args), stream, env=env or {}, cwd=cwd, limits=limits)
        if code not in accept:
            said = err.decode("utf-8", "replace").strip()[-500:] or f"exit status {code}"
            raise WorkspaceError(f"git {args[0]} failed in {self.path}: {said}")
        return out

    async def line(self, *args: str) -> str:
        """Output of a call that answers one line."""
        return (await self.run(*args)).decode("utf-8", "replace").strip()

    async def blobs(self, ids: list[str]) -> AsyncGenerator[tuple[int, AsyncIterator[bytes]], None]:
        """Size and content of each object, in order. Read each content to its end before asking for the next."""
        process = await _started(self.argv("cat-file", "--batch", "--buffer"), STREAM)
        words = asyncio.create_task(_last_words(process))
        asked = "".join(f"{oid}\n" for oid in ids).encode()
        feeding = asyncio.create_task(_feed(process, _once(asked)))
        out = process.stdout
        assert out is not None  # noqa: S101 - PIPE was asked for; this tells mypy
        ending = False
        try:
            for oid in ids:
                head = (await out.readline()).split()
                if len(head) != 3:
                    raise WorkspaceError(f"object {oid} is missing in {self.path}")
                yield int(head[2]), _content(out, int(head[2]))
            await feeding
            ending = True
        finally:
            await _over(process, feeding, words, ended=ending)


async def _once(data: bytes) -> AsyncIterator[bytes]:
    yield data


async def _content(out: asyncio.StreamReader, size: int) -> AsyncIterator[bytes]:
    left = size + 1  # the line feed that ends each object
    while left:
        chunk = await out.read(min(left, _CHUNK))
        if not chunk:
            raise WorkspaceError("git cat-file ended early")
        left -= len(chunk)
        body = chunk if left else chunk[:-1]
        if body:
            yield body


async def _feed(process: asyncio.subprocess.Process, stream: AsyncIterator[bytes]) -> None:
    stdin = process.stdin
    assert stdin is not None  # noqa: S101 - PIPE was asked for; this tells mypy
    try:
        async for chunk in stream:
            stdin.write(chunk)
            await stdin.drain()
    except (BrokenPipeError, ConnectionResetError):
        pass  # git gave up reading; its exit status says why
    finally:
        stdin.close()
        # Waited for from beside: where asyncio's own wait is cancelled, a callback of its fails once the pipe closes.
        closing = asyncio.ensure_future(stdin.wait_closed())
        closing.add_done_callback(_noticed)
        await asyncio.wait([closing])


def _noticed(closing: asyncio.Future[None]) -> None:
    """A pipe that broke is no news: git's exit status says why."""
    if not closing.cancelled():
        closing.exception()


async def _called(
    argv: Sequence[str],
    stdin: AsyncIterator[bytes],
    *,
    limits: Limits,
    env: Mapping[str, str] = MappingProxyType({}),
    cwd: Path | None = None,
) -> tuple[int, bytes, bytes]:
    """Exit status, output and last words of a git that is gone afterwards. Raises GitLimitError."""
    process = await _started(argv, limits, env, cwd)
    feeding, words = asyncio.create_task(_feed(process, stdin)), asyncio.create_task(_last_words(process))
    ended = False
    try:
        async with asyncio.timeout(limits.seconds) as clock:
            out = await _read(process, limits.output)
            if out is None:
                raise GitLimitError(f"{_named(argv)} had more than {limits.output} bytes to say")
            await feeding
            said = await words
            code = await process.wait()
            ended = True
    except TimeoutError:
        if clock.expired():
            raise GitLimitError(f"{_named(argv)} took more than {limits.seconds:g} s") from None
        raise
    finally:
        await _over(process, feeding, words, ended=ended)
    if code < 0:
        raise GitLimitError(
            f"{_named(argv)} was ended by signal {-code}, at {limits.processor} s of a processor's time"
        )
    if code and b"ut of memory" in said:
        raise GitLimitError(f"{_named(argv)} needed more than {limits.memory} bytes of memory")
    return code, out, said


async def _started(
    argv: Sequence[str], limits: Limits, env: Mapping[str, str] = MappingProxyType({}), cwd: Path | None = None
) -> asyncio.subprocess.Process:
    """With its limits, before the first byte is fed to it. Nothing between the start and the caller's ``try`` waits."""
    process = await asyncio.create_subprocess_exec(
        *argv,
        env=_ENVIRONMENT | dict(env),
        cwd=cwd or "/",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        limit=_CHUNK,
        start_new_session=True,
    )
    with contextlib.suppress(ProcessLookupError):  # it is that fast
        for kind, most in ((resource.RLIMIT_CPU, limits.processor), (resource.RLIMIT_AS, limits.memory)):
            _, hard = resource.prlimit(process.pid, kind)
            least = most if hard == resource.RLIM_INFINITY else min(most, hard)
            resource.prlimit(process.pid, kind, (least, least))
    return process


async def _over(process: asyncio.subprocess.Process, *tasks: asyncio.Task[Any], ended: bool) -> None:
    """Let nothing of it go on.

    Killing one that ends by itself would take its status away from asyncio, which then complains in the log.
    """
    if not ended and process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await process.communicate()  # what nobody reads would keep asyncio from seeing its end


async def _read(process: asyncio.subprocess.Process, most: int) -> bytes | None:
    """All that it says; None for more than it may."""
    assert process.stdout is not None  # noqa: S101 - as above
    out = bytearray()
    while chunk := await process.stdout.read(_CHUNK):
        out += chunk
        if len(out) > most:
            return None
    return bytes(out)


async def _last_words(process: asyncio.subprocess.Process) -> bytes:
    assert process.stderr is not None  # noqa: S101 - as above
    said = b""
    while chunk := await process.stderr.read(_CHUNK):
        said = (said + chunk)[-_WORDS:]
    return said


def _named(argv: Sequence[str]) -> str:
    """The call without our settings."""
    words = iter(argv[1:])
    for word in words:
        if word in {"-c", "-C"}:
            next(words)
        elif not word.startswith("-"):
            return f"git {word}"
    return "git"
