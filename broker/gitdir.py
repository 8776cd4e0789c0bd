"""The only git runner of this room: an empty environment, fixed settings, limits on time and size, killed as a group.

Only ever pointed at git directories that the broker's user alone can write.
"""

from __future__ import annotations

import itertools
import os
import re
import resource
import signal
import subprocess
import threading
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from pydantic import SecretStr

from broker.config.settings import Identity
from broker.errors import GitError
from broker.git_settings import FLAGS, child_environment, own_config, without_secrets

_OBJECT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_CHUNK = 64 * 1024
_MAX_COMMIT = 1 << 20
_AT_A_TIME, _MAX_KNOWN = 200, 50_000  # so many lines fit a pipe both ways
_AHEAD = 16
_MOST_COMPLAINTS, _MOST_SHOWN = 1 << 20, 4000


@dataclass(frozen=True)
class Limits:
    """What one git run may use: seconds of wall clock and of CPU, bytes of memory, of a written file and of output."""

    seconds: float = 120.0
    cpu: int = 120
    memory: int = 4 << 30
    file: int = 8 << 30
    output: int = 8 << 30


STRICT = Limits(seconds=60.0, cpu=30, memory=1 << 30, file=1 << 30, output=64 << 20)


@dataclass(frozen=True)
class Told:
    """What one run is told beside its arguments; its secrets are not shown."""

    protocols: str
    environment: Mapping[str, str]
    private: Mapping[str, str | SecretStr]


class GitDir:
    """A bare git directory of the broker's own."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def create(self, object_format: str = "sha1") -> None:
        """Makes it as an empty bare repository with no template, if it is not there yet; without starting a git."""
        if self.exists:
            return
        for folder in ("objects/info", "objects/pack", "refs/heads"):
            (self.path / folder).mkdir(parents=True, exist_ok=True, mode=0o700)
        (self.path / "config").write_text(own_config(object_format))
        (self.path / "HEAD").write_text("ref: refs/heads/none\n")  # last: it says that the rest is there

    @property
    def exists(self) -> bool:
        """Whether it was made."""
        return (self.path / "HEAD").exists()

    @property
    def hash_bytes(self) -> int:
        """Length of a binary object id."""
        return 32 if "objectformat = sha256" in (self.path / "config").read_text() else 20

    def run(
        self,
        *args: str,
        stdin: Iterable[bytes] = (),
        limits: Limits = STRICT,
        environment: Mapping[str, str] | None = None,
        private: Mapping[str, str | SecretStr] | None = None,
        protocols: str = "none",
    ) -> bytes:
        """Runs git and returns its whole output. Raises GitError on failure, timeout and excess."""
        how = Told(protocols, environment or {}, private or {})
        return b"".join(self._stream(args, stdin, limits, how))

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
        private: Mapping[str, str | SecretStr] | None = None,
        protocols: str = "none",
    ) -> Generator[bytes, None, None]:
        """Runs git and yields its output. ``protocols`` are the transports that this one run may use.

        ``private`` are settings for this one child that may hold a credential: never argv, never a file, struck out of
        what git says. Raises GitError, at the latest when the output ends; a consumer who stops early ends the run.
        """
        return self._stream(args, stdin, limits, Told(protocols, environment or {}, private or {}))

    def _stream(
        self, args: tuple[str, ...], stdin: Iterable[bytes], limits: Limits, told: Told
    ) -> Generator[bytes, None, None]:
        with self._started(args, told, limits) as run:
            run.feed(stdin)
            yield from run.output()
            if problem := run.ending():
                said = without_secrets(run.complaints().strip(), told.private)[:_MOST_SHOWN]
                raise GitError(f"git {args[0]} {problem}" + (f": {said}" if said else ""))

    @contextmanager
    def _started(self, args: tuple[str, ...], told: Told, limits: Limits) -> Iterator[_Run]:
        command = ["git", "--no-pager", "--literal-pathspecs", f"--git-dir={self.path}", *FLAGS, *args]
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=child_environment(told.protocols, told.environment, told.private),
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
        indexes, width = self.path.glob("objects/pack/*.idx"), self.hash_bytes
        return frozenset(itertools.chain.from_iterable(_ids(index.read_bytes(), width) for index in indexes))

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
        command = ("cat-file", "--batch-command")
        with self._started(command, Told("none", {}, {}), limits) as run:
            yield Objects(run)


class _Run:
    """One running git: its limits, its feeder and its end."""

    def __init__(self, process: subprocess.Popen[bytes], limits: Limits) -> None:
        self.process = process
        self._limits = limits
        self._broke = ""
        self._feeder: threading.Thread | None = None
        self._said = bytearray()
        # The limits are set before the first byte is fed, so an untrusted pack never meets an unlimited parser.
        with suppress(ProcessLookupError):
            _lower(process.pid, resource.RLIMIT_CPU, limits.cpu)
            _lower(process.pid, resource.RLIMIT_AS, limits.memory)
            _lower(process.pid, resource.RLIMIT_FSIZE, limits.file)
            _lower(process.pid, resource.RLIMIT_CORE, 0)  # a core would hold the credential of a push
        self._alarm = threading.Timer(limits.seconds, self._kill, [f"took longer than {limits.seconds:g} s"])
        self._alarm.daemon = True
        self._alarm.start()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        # By a pipe and no file: what a server sends for the user to read would fill the disk or the memory.
        pipe = self.process.stderr
        assert pipe is not None  # noqa: S101 - opened with PIPE above; for the type checker
        with suppress(OSError, ValueError):
            while chunk := pipe.read(_CHUNK):
                self._said += chunk
                if len(self._said) > _MOST_COMPLAINTS:
                    self._kill(f"complained of more than {_MOST_COMPLAINTS} bytes")
                    return

    def complaints(self) -> str:
        """What it wrote to its standard error, once it has ended."""
        self._listener.join(timeout=5)
        return self._said.decode(errors="replace")

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
        self._listener.join(timeout=5)
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()


def _lower(pid: int, kind: int, wanted: int) -> None:
    _soft, hard = resource.prlimit(pid, kind)
    limit = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.prlimit(pid, kind, (limit, limit))


def _ids(index: bytes, width: int) -> Iterator[str]:
    """The ids in a pack's index of version 2: git-scm.com/docs/pack-format. Raises GitError for any other."""
    if index[:8] != b"\xfftOc\0\0\0\2":
        raise GitError("the index of a pack is not of version 2")
    names = 8 + 256 * 4
    count = int.from_bytes(index[names - 4 : names], "big")
    for at in range(names, names + count * width, width):
        yield index[at : at + width].hex()


class Objects:
    """Reads objects one after the other from one git process."""

    def __init__(self, run: _Run) -> None:
        assert run.process.stdin is not None and run.process.stdout is not None  # noqa: S101, PT018 - as above
        self._to = run.process.stdin
        self._from = run.process.stdout
        self._rest = b""
        self._known: dict[str, tuple[str, int]] = {}

    def info(self, oid: str) -> tuple[str, int] | None:
        """Type and size in bytes of an object, without reading it; None if it is not there. Raises GitError."""
        return self._known.get(oid) or self._header("info", oid)

    def prefetch(self, oids: Iterable[str]) -> None:
        """Asks for type and size of many objects at a time; `info` then knows those that are there. Raises GitError."""
        wanted = [oid for oid in dict.fromkeys(oids) if oid not in self._known]
        if len(self._known) + len(wanted) > _MAX_KNOWN:
            self._known.clear()
            return
        for at in range(0, len(wanted), _AT_A_TIME):
            some = wanted[at : at + _AT_A_TIME]
            self._ask("info", *some)
            for oid in some:
                if found := self._answer(oid):
                    self._known[oid] = found

    def read(self, oid: str, kind: str, limit: int) -> bytes:
        """The object's bytes. Raises GitError if it is absent, of another type or larger than ``limit``."""
        known = self.info(oid)
        if known is None or known[0] != kind:
            raise GitError(f"object {oid} is not a {kind}" if known else f"object {oid} is not there")
        if known[1] > limit:
            raise GitError(f"object {oid} has {known[1]} bytes, more than {limit}")
        self._header("contents", oid)
        return self._take(known[1] + 1)[:-1]

    def contents(self, wanted: Sequence[tuple[str, int]]) -> Iterator[bytes]:
        """The bytes of objects whose sizes `info` told, in order; a few are asked for ahead, since git answers slowly.

        Nothing else may be asked before the last one was taken. Raises GitError if a size is not the told one.
        """
        for at in range(0, len(wanted), _AHEAD):
            some = wanted[at : at + _AHEAD]
            self._ask("contents", *(oid for oid, _ in some))
            for oid, size in some:
                told = self._answer(oid)
                if told is None or told[1] != size:
                    raise GitError(f"object {oid} does not have {size} bytes any more")
                yield self._take(size + 1)[:-1]

    def tree_of(self, commit: str) -> str:
        """The tree of a commit. Raises GitError if it is not there."""
        first = self.read(commit, "commit", _MAX_COMMIT).split(b"\n", 1)[0]
        return first.removeprefix(b"tree ").decode("ascii", "replace")

    def _header(self, verb: str, oid: str) -> tuple[str, int] | None:
        self._ask(verb, oid)
        return self._answer(oid)

    def _ask(self, verb: str, *oids: str) -> None:
        for oid in oids:
            if not _OBJECT.fullmatch(oid):
                raise GitError(f"{oid!r} is not an object id")
        try:
            view = memoryview("".join(f"{verb} {oid}\n" for oid in oids).encode())
            while view:
                view = view[self._to.write(view) or 0 :]
        except BrokenPipeError:
            raise GitError("git cat-file ended early") from None

    def _answer(self, oid: str) -> tuple[str, int] | None:
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
