"""Sandboxes with bubblewrap: no daemon, and one bubblewrap per command, so that nothing survives a command.

A sandbox is a control group with its limits, a pair of namespaces that hold the workspace, and an unprivileged uid: one
of its own when we are root, ours when we are not. A command enters the control group, drops to that uid, enters the
namespaces and starts bubblewrap there, which takes away everything else.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from sandbox.bubblewrap.cgroup import Group, Parent, find_parent
from sandbox.bubblewrap.namespaces import FILES, PATH, PLACE, WORK, Namespaces, dropped, make_namespaces
from sandbox.bubblewrap.seccomp import compile_filter
from sandbox.config import SandboxConfig
from sandbox.errors import SandboxError, SandboxLostError, SandboxUnavailableError
from sandbox.line.inside import NO_FOLDER, pack_argv, read_argv, refuse, run_argv, unpack_argv, write_argv
from sandbox.owner import Owner, orphaned
from sandbox.probe import insist, prove
from sandbox.process import Finished, ProcessFailedError, Start, feed_process, run_process, stream_process
from sandbox.rules.bwrap import bwrap_arguments
from sandbox.rules.profile import AGENT_UID, AGENT_UIDS, environment_of, profile_of, rlimits, time_limit
from sandbox.rules.profile import WORK as INSIDE
from sandbox.types import Command, Outcome, SandboxSpec, SelfTest

_PROGRAMS = ("bwrap", "setpriv", "unshare", "nsenter", "mount", "tar", "realpath")
_SHARED_ETC = ("alternatives", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime", "mime.types", "ssl/certs")
_NOTHING = Command(argv=("-",))

# Descriptors 3 to 6 are opened anew by the shell: ours are closed on exec, and only one digit can be closed inside.
_ENTER = (
    'for f in {entrances}; do echo 0 >"$f" || exit 125; done; echo 1000 >/proc/self/oom_score_adj; '
    "ulimit -c {core}; ulimit -n {nofile}; ulimit -f {blocks}; p=/proc/{pid}/fd; "
    "exec 3<$p/{user} 4<$p/{mount} 5<$p/{filter} 6>$p/{report}; "
    'exec "$@"'
)
_FORGET = "exec 3<&- 4<&- 5<&- 6<&-; "


@dataclass(frozen=True)
class Machine:
    """What all sandboxes share: the read-only root, the compiled filter's descriptor, the parent group."""

    root: tuple[str, ...]
    filter: int
    parent: Parent


@dataclass(frozen=True)
class Place:
    """What one sandbox has."""

    namespaces: Namespaces
    group: Group
    uid: int


class BwrapSandbox:
    """One open sandbox. Commands may run at the same time; they share its memory, processes and CPU."""

    def __init__(self, backend: BwrapBackend, name: str, spec: SandboxSpec, place: Place) -> None:
        self._backend = backend
        self._name = name
        self._spec = spec
        self._profile = profile_of(spec)
        self._place = place
        self._closed = False

    @property
    def name(self) -> str:
        """Name of its control group."""
        return self._name

    async def run(self, command: Command) -> Outcome:
        """As the protocol says."""
        kills = self._place.group.oom_kills()
        limit = time_limit(self._profile, command)
        ended = await self._execute(run_argv(command), command, limit, self._profile.output)
        starved = self._place.group.oom_kills() > kills and ended.exit_code != 0 and not ended.timed_out
        return Outcome(
            exit_code=ended.exit_code,
            output=ended.output,
            seconds=ended.seconds,
            timed_out=ended.timed_out,
            out_of_memory=starved,
            cut=ended.cut,
        )

    async def read(self, path: str, limit: int = 1_000_000) -> bytes:
        """As the protocol says."""
        ended = await self._execute(read_argv(path, limit), None, self._profile.wall, 2 * limit + 2, apart=True)
        refuse(path, ended.exit_code, ended.errors)
        return ended.output

    async def write(self, path: str, data: bytes, *, executable: bool = False) -> None:
        """As the protocol says."""
        argv, command = write_argv(path, executable=executable), _NOTHING.model_copy(update={"stdin": data})
        ended = await self._execute(argv, command, self._profile.wall, 65536, apart=True)
        refuse(path, ended.exit_code, ended.errors)

    async def export(self) -> AsyncGenerator[bytes, None]:
        """As the protocol says."""
        with _report() as (_, writer):
            start = self._start(pack_argv(), None, writer, apart=True)
            stream = stream_process(start, timeout=self._profile.wall, output=self._profile.export_limit)
            try:
                async with aclosing(stream):
                    async for chunk in stream:
                        yield chunk
            except ProcessFailedError as error:
                raise SandboxError(f"{self._name} cannot be exported: it {error}") from error

    def fork(self) -> AbstractAsyncContextManager[BwrapSandbox]:
        """As the protocol says."""
        return self._backend.open(self._spec, self.export())

    async def fill(self, workspace: AsyncIterator[bytes]) -> None:
        """Unpack a tar stream into the workspace. Raises SandboxError."""
        with _report() as (_, writer):
            start = self._start(unpack_argv(), None, writer)
            try:
                await feed_process(start, workspace, timeout=self._profile.wall)
            except ProcessFailedError as error:
                raise SandboxError(f"the workspace of {self._name} cannot be filled: tar {error}") from error

    async def close(self) -> None:
        """Kill what runs, and let go of everything. Raises SandboxError where something could not be killed."""
        self._closed = True
        gone = await self._place.group.remove()
        self._place.namespaces.close()
        if not gone:
            raise SandboxError(f"processes of {self._name} could not be killed; see {self._place.group.folders[0]}")

    async def _execute(
        self, argv: list[str], command: Command | None, limit: float, output: int, *, apart: bool = False
    ) -> Finished:
        kills = self._place.group.oom_kills()
        with _report() as (reader, writer):
            start = self._start(argv, command, writer, apart=apart)
            stdin = command.stdin if command else b""
            ended = await run_process(start, stdin=stdin, timeout=limit, output=output)
            told = _told(reader)
        if told is None and not ended.timed_out and self._place.group.oom_kills() == kills:
            return self._not_started(ended)
        return ended

    def _not_started(self, ended: Finished) -> Finished:
        """A command that bubblewrap never ran: the sandbox is full of processes, or it is broken."""
        said = ended.output + ended.errors
        if b"Resource temporarily unavailable" in said:
            words = b"the sandbox's limit of processes is reached\n"
            return Finished(NO_FOLDER, words, words, 0, ended.seconds, timed_out=False)
        text = said.decode("utf-8", "replace").strip()[-500:] or f"status {ended.exit_code}"
        raise SandboxLostError(f"{self._name} did not start the command: {text}")

    def _start(self, argv: list[str], command: Command | None, report: int, *, apart: bool = False) -> Start:
        if self._closed:
            raise SandboxLostError(f"{self._name} is closed")
        machine, place, limits = self._backend.machine(), self._place, rlimits(self._profile)
        enter = _ENTER.format(
            entrances=" ".join(f"'{path}'" for path in place.group.entrances),
            core=limits["core"],
            nofile=limits["nofile"],
            blocks=-(-limits["fsize"] // 512),
            pid=os.getpid(),
            user=place.namespaces.user,
            mount=place.namespaces.mount,
            filter=machine.filter,
            report=report,
        )
        environment = environment_of(self._profile, command or _NOTHING)
        shell, flag, script, *words = argv
        return Start(
            [
                *("/bin/sh", "-c", enter, "sh", *dropped(place.uid)),
                *("nsenter", "--user=/proc/self/fd/3", "--mount=/proc/self/fd/4", "--preserve-credentials", "--"),
                *("bwrap", "--seccomp", "5", "--json-status-fd", "6"),
                *bwrap_arguments(self._profile, machine.root, held={INSIDE: WORK}, environment=environment),
                *("--", shell, flag, _FORGET + script, *words),
            ],
            {"PATH": PATH},
            errors_apart=apart,
        )


class BwrapBackend:
    """Makes sandboxes with bubblewrap, for root or for a user with a control group of its own."""

    def __init__(self, config: SandboxConfig, owner: Owner) -> None:
        self._config = config
        self._owner = owner
        self._machine: Machine | None = None
        self._proved: SelfTest | None = None
        self._next = secrets.randbelow(AGENT_UIDS)

    def machine(self) -> Machine:
        """What all sandboxes share, found once. Raises SandboxUnavailableError with the mend."""
        if self._machine is None:
            missing = [name for name in _PROGRAMS if shutil.which(name, path=PATH) is None]
            if missing:
                raise SandboxUnavailableError(
                    f"{', '.join(missing)} not found; mend: apt-get install bubblewrap util-linux tar coreutils"
                )
            self._machine = Machine(tuple(_system_root()), _filter_descriptor(), find_parent(self._config.cgroup))
        return self._machine

    async def self_test(self) -> SelfTest:
        """As the protocol says. What was proved once is answered again."""
        if self._proved is not None:
            return self._proved
        self.machine()
        uid = "one uid per sandbox" if os.geteuid() == 0 else f"uid {os.geteuid()} for all sandboxes"
        version = await _version()
        parent = self.machine().parent
        detail = {"cgroup": f"v{2 if parent.unified else 1} {parent.folders[0]}", "uid": uid}
        try:
            test = await prove(self, "bwrap", version, detail)
        except SandboxUnavailableError:
            raise
        except SandboxError as error:
            raise SandboxUnavailableError(f"{version} does not work here: {error}") from error
        self._proved = insist(test, "as root run scripts/prepare-sandbox, or use the Docker backend")
        return self._proved

    @asynccontextmanager
    async def open(
        self, spec: SandboxSpec, workspace: AsyncIterator[bytes] | None = None
    ) -> AsyncIterator[BwrapSandbox]:
        """As the protocol says."""
        machine, profile, name, uid = self.machine(), profile_of(spec), self._owner.new_name(), self._uid()
        namespaces = await make_namespaces(profile, uid)
        try:
            group = machine.parent.child(name, profile)
        except BaseException:
            namespaces.close()
            raise
        sandbox = BwrapSandbox(self, name, spec, Place(namespaces, group, uid))
        try:
            if workspace is not None:
                await sandbox.fill(workspace)
            yield sandbox
        finally:
            await sandbox.close()

    async def sweep(self) -> int:
        """As the protocol says. Empty groups of other owners' dead processes go too, uncounted."""
        children = self.machine().parent.children()
        left = [group for name, group in children.items() if self._owner.left_behind(name)]
        empty = [group for name, group in children.items() if orphaned(name) and not group.processes()]
        for group in empty:
            await group.remove()
        return sum([await group.remove() for group in left])

    def _uid(self) -> int:
        if os.geteuid() != 0:
            return os.geteuid()
        self._next = (self._next + 1) % AGENT_UIDS
        return AGENT_UID + self._next


@contextlib.contextmanager
def _report() -> Iterator[tuple[int, int]]:
    """A pipe on which bubblewrap tells how the command ended; what the command printed could not be trusted with it."""
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    try:
        yield reader, writer
    finally:
        os.close(reader)
        os.close(writer)


def _told(reader: int) -> int | None:
    """The exit code that bubblewrap reported; None where it never started the command or was killed."""
    with contextlib.suppress(BlockingIOError, ValueError):
        for line in os.read(reader, 65536).splitlines():
            told = json.loads(line)
            if "exit-code" in told:
                return int(told["exit-code"])
    return None


def _filter_descriptor() -> int:
    descriptor = os.memfd_create("agent-swarm-seccomp", os.MFD_CLOEXEC)
    os.write(descriptor, compile_filter())
    return descriptor


def _system_root() -> list[str]:
    """The host's programs and libraries, read-only, and nothing else of the host."""
    arguments = ["--ro-bind", "/usr", "/usr"]
    for name in ("bin", "sbin", "lib", "lib32", "lib64", "libx32"):
        path = Path("/") / name
        if path.is_symlink():
            arguments += ["--symlink", str(path.readlink()), str(path)]
        elif path.is_dir():
            arguments += ["--ro-bind", str(path), str(path)]
    for name in FILES:
        arguments += ["--ro-bind", f"{PLACE}/{name}", f"/etc/{name}"]
    shared = [Path("/etc") / name for name in _SHARED_ETC] + sorted(Path("/etc").glob("python3*"))
    for path in shared:
        arguments += ["--ro-bind-try", str(path), str(path)]
    return arguments


async def _version() -> str:
    ended = await run_process(Start(["bwrap", "--version"], {"PATH": PATH}), timeout=10, output=1024)
    return ended.output.decode("utf-8", "replace").strip() or "bubblewrap"
