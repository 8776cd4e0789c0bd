"""The only git runner of this room: an empty environment, fixed settings, limits on time and size, killed as a group.

Only ever pointed at git directories that the broker's user alone can write.
"""

from __future__ import annotations

import os
import re
import resource
import signal
import subprocess
import tempfile
import threading
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from broker.config.settings import Identity
from broker.errors import GitError

_NULL = os.devnull
_ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "HOME": "/nonexistent",
    "XDG_CONFIG_HOME": "/nonexistent",
    "LC_ALL": "C",
    "TZ": "UTC",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": _NULL,
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": "/bin/false",
    "SSH_ASKPASS": "/bin/false",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_PROTOCOL_FROM_USER": "0",
    "GIT_PAGER": "cat",
    "PAGER": "cat",
}
_SETTINGS = (
    f"core.hooksPath={_NULL}",
    "core.fsmonitor=false",
    "core.untrackedCache=false",
    "core.symlinks=false",
    "core.protectHFS=true",
    "core.protectNTFS=true",
    f"core.attributesFile={_NULL}",
    "core.bigFileThreshold=1m",
    "core.packedGitWindowSize=32m",
    "core.packedGitLimit=256m",
    "http.followRedirects=false",
    "credential.helper=",
    "credential.useHttpPath=true",
    "submodule.recurse=false",
    "fetch.recurseSubmodules=false",
    "push.recurseSubmodules=no",
    "diff.ignoreSubmodules=all",
    "push.followTags=false",
    "push.gpgSign=false",
    "push.default=nothing",
    "fetch.writeCommitGraph=false",
    "transfer.bundleURI=false",
    "gc.auto=0",
    "maintenance.auto=false",
    "commit.gpgSign=false",
    "tag.gpgSign=false",
    "safe.bareRepository=explicit",
    "pack.threads=1",
    "advice.detachedHead=false",
)
_FLAGS = tuple(part for setting in _SETTINGS for part in ("-c", setting))
_OBJECT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_CHUNK = 64 * 1024


@dataclass(frozen=True)
class Limits:
    """What one git run may use: seconds of wall clock and of CPU, bytes of memory, of a written file and of output."""

    seconds: float = 120.0
    cpu: int = 120
    memory: int = 4 << 30
    file: int = 8 << 30
    output: int = 8 << 30


STRICT = Limits(seconds=60.0, cpu=30, memory=1 << 30, file=1 << 30, output=64 << 20)


class GitDir:
    """A bare git directory of the broker's own."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def create(self, object_format: str = "sha1") -> None:
        """Makes it as an empty bare repository with no template, if it is not there yet."""
        if not (self.path / "HEAD").exists():
            self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
            self.run("init", "--quiet", "--bare", "--template=", f"--object-format={object_format}", str(self.path))

    def run(
        self,
        *args: str,
        stdin: Iterable[bytes] = (),
        limits: Limits = STRICT,
        environment: Mapping[str, str] | None = None,
        protocols: str = "none",
    ) -> bytes:
        """Runs git and returns its whole output. Raises GitError on failure, timeout and excess."""
        return b"".join(self.stream(*args, stdin=stdin, limits=limits, environment=environment, protocols=protocols))

    def text(self, *args: str, stdin: Iterable[bytes] = (), environment: Mapping[str, str] | None = None) -> str:
        """The same, for output that is one line."""
        return self.run(*args, stdin=stdin, environment=environment).decode(errors="replace").strip()

    def succeeds(self, *args: str) -> bool:
        """Whether git ended with 0."""
        try:
            self.run(*args)
        except GitError:
            return False
        return True

    def stream(
        self,
        *args: str,
        stdin: Iterable[bytes] = (),
        limits: Limits = STRICT,
        environment: Mapping[str, str] | None = None,
        protocols: str = "none",
    ) -> Generator[bytes, None, None]:
        """Runs git and yields its output. ``protocols`` are the transports that this one run may use.

        Raises GitError, at the latest when the output ends; a consumer who stops early ends the run.
        """
        environment = {**_ENVIRONMENT, "GIT_ALLOW_PROTOCOL": protocols, **(environment or {})}
        with tempfile.TemporaryFile() as complaints, self._started(args, environment, complaints, limits) as run:
            run.feed(stdin)
            yield from run.output()
            if problem := run.ending():
                complaints.seek(0)
                said = complaints.read(4000).decode(errors="replace").strip()
                raise GitError(f"git {args[0]} {problem}" + (f": {said}" if said else ""))

    @contextmanager
    def _started(
        self, args: tuple[str, ...], environment: dict[str, str], complaints: IO[bytes], limits: Limits
    ) -> Iterator[_Run]:
        command = ["git", "--no-pager", "--literal-pathspecs", f"--git-dir={self.path}", *_FLAGS, *args]
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=complaints,
            env=environment,
            cwd="/",
            start_new_session=True,
            bufsize=0,
        )
        run = _Run(process, limits)
        try:
            yield run
        finally:
            run.stop()

    def commit_of(self, ref: str) -> str | None:
        """The commit that a full ref or an object id names; None if there is none."""
        try:
            return self.text("rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}")
        except GitError:
            return None

    def tree_of(self, commit: str) -> str:
        """The tree of a commit. Raises GitError if it is not there."""
        return self.text("rev-parse", "--verify", "--end-of-options", f"{commit}^{{tree}}")

    def packed(self) -> frozenset[str]:
        """Ids of all objects in this directory's own packs; those of its alternates are not among them."""
        ids: set[str] = set()
        for index in self.path.glob("objects/pack/*.idx"):
            ids.update(
                line.split(b" ")[1].decode() for line in self.run("show-index", stdin=[index.read_bytes()]).splitlines()
            )
        return frozenset(ids)

    def commit_tree(self, tree: str, parents: tuple[str, ...], message: str, identity: Identity, at: int) -> str:
        """Writes a commit in the identity's name at a given second; the same input gives the same id."""
        people = {
            f"GIT_{role}_{key}": value
            for role in ("AUTHOR", "COMMITTER")
            for key, value in (("NAME", identity.name), ("EMAIL", identity.email), ("DATE", f"@{at} +0000"))
        }
        heads = tuple(part for parent in parents for part in ("-p", parent))
        return self.text("commit-tree", tree, *heads, stdin=[message.encode()], environment=people)

    @contextmanager
    def objects(self, limits: Limits = STRICT) -> Iterator[Objects]:
        """Opens one reader for many objects."""
        environment = {**_ENVIRONMENT, "GIT_ALLOW_PROTOCOL": "none"}
        with (
            tempfile.TemporaryFile() as complaints,
            self._started(("cat-file", "--batch-command"), environment, complaints, limits) as run,
        ):
            yield Objects(run)


class _Run:
    """One running git: its limits, its feeder and its end."""

    def __init__(self, process: subprocess.Popen[bytes], limits: Limits) -> None:
        self.process = process
        self._limits = limits
        self._broke = ""
        self._feeder: threading.Thread | None = None
        # The limits are set before the first byte is fed, so an untrusted pack never meets an unlimited parser.
        with suppress(ProcessLookupError):
            _lower(process.pid, resource.RLIMIT_CPU, limits.cpu)
            _lower(process.pid, resource.RLIMIT_AS, limits.memory)
            _lower(process.pid, resource.RLIMIT_FSIZE, limits.file)
        self._alarm = threading.Timer(limits.seconds, self._kill, [f"took longer than {limits.seconds:g} s"])
        self._alarm.daemon = True
        self._alarm.start()

    def feed(self, stdin: Iterable[bytes]) -> None:
        self._feeder = threading.Thread(target=self._write, args=(stdin,), daemon=True)
        self._feeder.start()

    def _write(self, stdin: Iterable[bytes]) -> None:
        pipe = self.process.stdin
        assert pipe is not None  # noqa: S101 - opened with PIPE above; for the type checker
        with suppress(BrokenPipeError), pipe:
            for chunk in stdin:
                view = memoryview(chunk)
                while view:
                    view = view[pipe.write(view) or 0 :]

    def output(self) -> Iterator[bytes]:
        pipe, total = self.process.stdout, 0
        assert pipe is not None  # noqa: S101 - as above
        while chunk := pipe.read(_CHUNK):
            total += len(chunk)
            if total > self._limits.output:
                self._kill(f"wrote more than {self._limits.output} bytes")
                return
            yield chunk

    def ending(self) -> str:
        """What went wrong, empty if nothing did."""
        code = self.process.wait()
        self._alarm.cancel()
        if self._broke:
            return self._broke
        if code < 0:
            return f"was ended by {signal.Signals(-code).name}, a limit on CPU, memory or file size"
        return f"failed ({code})" if code else ""

    def _kill(self, reason: str) -> None:
        self._broke = reason
        self._end_group()

    def _end_group(self) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def stop(self) -> None:
        self._alarm.cancel()
        if self.process.poll() is None:
            self._end_group()
        self.process.wait()
        if self._feeder is not None:
            self._feeder.join(timeout=5)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()


def _lower(pid: int, kind: int, wanted: int) -> None:
    _soft, hard = resource.prlimit(pid, kind)
    limit = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.prlimit(pid, kind, (limit, limit))


class Objects:
    """Reads objects one after the other from one git process."""

    def __init__(self, run: _Run) -> None:
        assert run.process.stdin is not None and run.process.stdout is not None  # noqa: S101, PT018 - as above
        self._to = run.process.stdin
        self._from = run.process.stdout
        self._rest = b""

    def info(self, oid: str) -> tuple[str, int] | None:
        """Type and size in bytes of an object, without reading it; None if it is not there. Raises GitError."""
        return self._header("info", oid)

    def read(self, oid: str, kind: str, limit: int) -> bytes:
        """The object's bytes. Raises GitError if it is absent, of another type or larger than ``limit``."""
        known = self._header("info", oid)
        if known is None or known[0] != kind:
            raise GitError(f"object {oid} is not a {kind}" if known else f"object {oid} is not there")
        if known[1] > limit:
            raise GitError(f"object {oid} has {known[1]} bytes, more than {limit}")
        self._header("contents", oid)
        return self._take(known[1] + 1)[:-1]

    def _header(self, verb: str, oid: str) -> tuple[str, int] | None:
        if not _OBJECT.fullmatch(oid):
            raise GitError(f"{oid!r} is not an object id")
        try:
            self._to.write(f"{verb} {oid}\n".encode())
        except BrokenPipeError:
            raise GitError("git cat-file ended early") from None
        words = self._line().split(b" ")
        if len(words) == 3:
            return words[1].decode(), int(words[2])
        if words[-1] in {b"missing", b"ambiguous"}:
            return None
        raise GitError(f"git cat-file gave no answer for {oid}")

    def _line(self) -> bytes:
        while b"\n" not in self._rest:
            self._more()
        line, self._rest = self._rest.split(b"\n", 1)
        return line

    def _take(self, count: int) -> bytes:
        parts, have = [self._rest], len(self._rest)
        while have < count:
            chunk = self._from.read(_CHUNK)
            if not chunk:
                raise GitError("git cat-file ended early")
            parts.append(chunk)
            have += len(chunk)
        data = b"".join(parts)
        self._rest = data[count:]
        return data[:count]

    def _more(self) -> None:
        chunk = self._from.read(_CHUNK)
        if not chunk:
            raise GitError("git cat-file ended early")
        self._rest += chunk
