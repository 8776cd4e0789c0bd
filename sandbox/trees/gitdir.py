"""Runs git on a trusted git directory, and only there: no hook, no configuration but our own, no network, no prompt.

Git is called as a program, since what is needed here is plumbing (fast-import, pack-objects, check-ignore) that no
binding offers whole. It is never pointed at a folder that an agent could write to.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from pathlib import Path

from sandbox.errors import WorkspaceError

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
)


async def tracked_files(folder: Path) -> tuple[bytes, ...] | None:
    """What the person's own checkout at ``folder`` tracks below it; None where it is no checkout.

    The one call outside a directory of ours: it reads the index alone, with our settings over those of the checkout.
    Raises WorkspaceError with git's own words, for example where the checkout belongs to another user.
    """
    settings = [part for setting in _SETTINGS for part in ("-c", setting)]
    process = await asyncio.create_subprocess_exec(
        *("git", "-C", str(folder), *settings, "ls-files", "-z", "--cached"),
        env=_ENVIRONMENT,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    if process.returncode == 0:
        return tuple(dict.fromkeys(out.split(b"\0")[:-1]))
    if b"not a git repository" in err:
        return None
    raise WorkspaceError(f"git cannot list the files of {folder}: {err.decode('utf-8', 'replace').strip()[-300:]}")


class GitDir:
    """A bare git directory that this process owns and nobody else writes."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()

    def argv(self, *args: str) -> list[str]:
        """The command line of one git call."""
        settings = [part for setting in _SETTINGS for part in ("-c", setting)]
        return ["git", f"--git-dir={self.path}", *settings, *args]

    async def create(self, *, sha256: bool = False) -> None:
        """Make the directory where it is absent."""
        if (self.path / "HEAD").exists():
            return
        self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        kind = "sha256" if sha256 else "sha1"
        await self.run("init", "--quiet", "--bare", "--template=", f"--object-format={kind}")

    async def run(
        self,
        *args: str,
        stdin: bytes | AsyncIterator[bytes] = b"",
        env: Mapping[str, str] | None = None,
        accept: tuple[int, ...] = (0,),
        cwd: Path | None = None,
        within: float | None = None,
    ) -> bytes:
        """Standard output of one call. Raises WorkspaceError with git's own words when it fails.

        Raises TimeoutError where it takes more than ``within`` seconds; it is killed then.
        """
        process = await asyncio.create_subprocess_exec(
            *self.argv(*args),
            env=_ENVIRONMENT | dict(env or {}),
            cwd=cwd or "/",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            async with asyncio.timeout(within):
                if isinstance(stdin, bytes):
                    out, err = await process.communicate(stdin)
                else:
                    feeding = asyncio.create_task(_feed(process, stdin))
                    out, err = await _read_both(process)
                    await feeding
                    await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode not in accept:
            said = err.decode("utf-8", "replace").strip()[-500:] or f"exit status {process.returncode}"
            raise WorkspaceError(f"git {args[0]} failed in {self.path}: {said}")
        return out

    async def line(self, *args: str) -> str:
        """Output of a call that answers one line."""
        return (await self.run(*args)).decode("utf-8", "replace").strip()

    async def blobs(self, ids: list[str]) -> AsyncGenerator[tuple[int, AsyncIterator[bytes]], None]:
        """Size and content of each object, in order. Read each content to its end before asking for the next."""
        process = await asyncio.create_subprocess_exec(
            *self.argv("cat-file", "--batch", "--buffer"),
            env=_ENVIRONMENT,
            cwd="/",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            limit=256 * 1024,
        )
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
            feeding.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await feeding
            # Killing one that ends by itself would take its status away from asyncio, which then complains in the log.
            if not ending and process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
            await process.communicate()


async def _once(data: bytes) -> AsyncIterator[bytes]:
    yield data


async def _content(out: asyncio.StreamReader, size: int) -> AsyncIterator[bytes]:
    left = size + 1  # the line feed that ends each object
    while left:
        chunk = await out.read(min(left, 256 * 1024))
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
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            await stdin.wait_closed()


async def _read_both(process: asyncio.subprocess.Process) -> tuple[bytes, bytes]:
    assert process.stdout is not None  # noqa: S101 - as above
    assert process.stderr is not None  # noqa: S101 - as above
    out, err = await asyncio.gather(process.stdout.read(), process.stderr.read())
    return out, err
