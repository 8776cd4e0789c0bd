"""Sandboxes as Docker containers: the only file that imports docker. Its blocking calls run in threads.

A container is held open by a process of another uid; commands come in as engine execs, one at a time. After each one,
every process of the agent's uid is killed, and the engine is asked whether that is so: a container in which anything
survives is thrown away. Their streams are read from the raw socket, which needs a unix socket or plain TCP. It is
longer than most because whatever touches the SDK is here.
"""

from __future__ import annotations

import asyncio
import contextlib
import platform
import socket
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, TypeVar

import docker
import docker.constants
import docker.errors
import docker.types
import docker.utils
import requests

from sandbox.config import SandboxConfig
from sandbox.container.frames import Said, after_go, first_of, frames, listen, once, reported, send, without_report
from sandbox.errors import SandboxError, SandboxLostError, SandboxUnavailableError
from sandbox.line.inside import pack_argv, read_argv, refuse, run_argv, unpack_argv, write_argv
from sandbox.owner import Owner
from sandbox.probe import insist, prove
from sandbox.process import HeadTail
from sandbox.rules.calls import ARCHITECTURES
from sandbox.rules.docker import docker_settings
from sandbox.rules.profile import AGENT_UID, CPU_PERIOD, KEEPER_UID, environment_of, profile_of, rlimits, time_limit
from sandbox.types import Command, Outcome, SandboxSpec, SelfTest

OWNER_LABEL = "agent-swarm.owner"
_API_TIMEOUT = 60
_GRACE = 5.0
_PATIENCE = 12.0  # seconds that killing all processes of an agent may take before its container goes
_HASTE = 4  # times the CPU quota while killing: a throttled fork bomb holds the kernel's locks and starves the killer
_NOTHING = Command(argv=("-",))

# The line read first keeps output from arriving before the engine's answer is parsed, where the SDK would lose it. The
# shell's kill needs no process of its own, so it works in a container that is full.
_SUPERVISE = (
    'read -r go; "$@" {merge}; code=$?; kill -9 -1 2>/dev/null; '
    "for f in /sys/fs/cgroup/memory/memory.oom_control /sys/fs/cgroup/memory.events; do "
    '[ -r "$f" ] && while read -r key value; do '
    '[ "$key" = oom_kill ] && echo "agent-swarm oom_kill $value" >&2; done <"$f"; done; exit "$code"'
)
_SWEEP = ["/bin/sh", "-c", "kill -9 -1 2>/dev/null; exit 0"]
_HOLD = ["sleep", "infinity"]

_Result = TypeVar("_Result")


class ContainerSandbox:
    """One container. Commands wait for one another, since killing what a command left means killing all there is."""

    def __init__(self, backend: ContainerBackend, name: str, spec: SandboxSpec) -> None:
        self._backend = backend
        self._name = name
        self._spec = spec
        self._profile = profile_of(spec)
        self._turn = asyncio.Lock()
        self._kills = 0
        self._lost = False

    @property
    def name(self) -> str:
        """Name of the container."""
        return self._name

    async def run(self, command: Command) -> Outcome:
        """As the protocol says."""
        argv, began = run_argv(command), time.monotonic()
        limit = time_limit(self._profile, command)
        async with self._turn:
            began, before = time.monotonic(), self._kills
            said = await self._exec(argv, command, limit, self._profile.output)
            seconds = time.monotonic() - began
            starved = self._kills > before and said.code != 0 and not said.timed_out
        output, cut = said.output.result()
        return Outcome(
            exit_code=137 if said.timed_out or said.code is None else said.code,
            output=output,
            seconds=seconds,
            timed_out=said.timed_out,
            out_of_memory=starved,
            cut=cut,
        )

    async def read(self, path: str, limit: int = 1_000_000) -> bytes:
        """As the protocol says."""
        async with self._turn:
            said = await self._exec(read_argv(path, limit), _NOTHING, self._profile.wall, 2 * limit + 2, apart=True)
        refuse(path, said.code or 0, without_report(said))
        return said.output.result()[0]

    async def write(self, path: str, data: bytes, *, executable: bool = False) -> None:
        """As the protocol says."""
        argv, command = write_argv(path, executable=executable), _NOTHING.model_copy(update={"stdin": data})
        async with self._turn:
            said = await self._exec(argv, command, self._profile.wall, 65536, apart=True)
        refuse(path, said.code or 0, without_report(said))

    async def export(self) -> AsyncGenerator[bytes, None]:
        """As the protocol says."""
        async with self._turn, self._stream(pack_argv(), _NOTHING, apart=True) as (identity, raw):
            said, seen = Said(HeadTail(2)), 0
            await send(raw, once(b"\n"))
            pieces, until = frames(raw), time.monotonic() + self._profile.wall
            while piece := await self._in_time(pieces, until):
                kind, data = piece
                if kind == 2:
                    said.errors.add(data)
                    continue
                seen += len(data)
                if seen > self._profile.export_limit:
                    raise SandboxError(f"{self._name} cannot be exported: more than {self._profile.export_limit} bytes")
                yield data
            await self._end(identity, said)
            if said.code:
                words = without_report(said).decode("utf-8", "replace").strip()[-500:]
                raise SandboxError(f"{self._name} cannot be exported: tar ended with status {said.code}: {words}")

    async def _in_time(self, pieces: AsyncIterator[tuple[int, bytes]], until: float) -> tuple[int, bytes] | None:
        try:
            return await asyncio.wait_for(anext(pieces, None), max(0.01, until - time.monotonic()))
        except TimeoutError as error:
            raise SandboxError(f"{self._name} cannot be exported: it took longer than the wall limit") from error

    def fork(self) -> AbstractAsyncContextManager[ContainerSandbox]:
        """As the protocol says."""
        return self._backend.open(self._spec, self.export())

    async def fill(self, workspace: AsyncIterator[bytes]) -> None:
        """Unpack a tar stream into the workspace. Raises SandboxError."""
        async with self._turn:
            said = await self._exec(unpack_argv(), _NOTHING, self._profile.wall, 65536, stdin=workspace)
        if said.code or said.timed_out:
            words = said.output.result()[0].decode("utf-8", "replace").strip()[-500:]
            raise SandboxError(f"the workspace of {self._name} cannot be filled: tar ended with {said.code}: {words}")

    async def _exec(
        self,
        argv: list[str],
        command: Command,
        limit: float,
        output: int,
        *,
        apart: bool = False,
        stdin: AsyncIterator[bytes] | None = None,
    ) -> Said:
        """Run to the end, or kill at ``limit`` seconds; nothing of it is left either way. Raises SandboxLostError."""
        said = Said(HeadTail(output))
        async with self._stream(argv, command, apart=apart) as (identity, raw):
            feeding = asyncio.create_task(send(raw, after_go(stdin or once(command.stdin))))
            listening = asyncio.create_task(listen(raw, said))
            try:
                await first_of(listening, feeding, limit)
                if not listening.done():
                    said.timed_out = True
                    await self._sweep(at_least=1)
                    await asyncio.wait([listening], timeout=_GRACE)
            finally:
                for task in (feeding, listening):
                    task.cancel()
                await asyncio.gather(feeding, listening, return_exceptions=True)
            await self._end(identity, said)
        return said

    @asynccontextmanager
    async def _stream(
        self, argv: list[str], command: Command, *, apart: bool
    ) -> AsyncIterator[tuple[str, socket.socket]]:
        """An exec that waits for its first line, and the socket on which it speaks. Cancelled, it is killed."""
        if self._lost:
            raise SandboxLostError(f"the container {self._name} is gone")
        script = _SUPERVISE.format(merge="" if apart else "2>&1")
        identity, raw = await self._backend.call(
            lambda api, name: _start_exec(
                api, name, ["/bin/sh", "-c", script, "sh", *argv], environment_of(self._profile, command)
            ),
            self._name,
        )
        ended = False
        try:
            yield identity, raw
            ended = True
        finally:
            raw.close()
            if not ended:
                with contextlib.suppress(SandboxError):
                    await asyncio.shield(self._sweep(at_least=1))

    async def _end(self, identity: str, said: Said) -> None:
        """Learn how an exec ended, and make sure that it left nothing."""
        state = await self._backend.call(lambda api, _: api.exec_inspect(identity), self._name)
        for _ in range(50):
            if not state["Running"]:
                break
            await asyncio.sleep(0.05)
            state = await self._backend.call(lambda api, _: api.exec_inspect(identity), self._name)
        said.code = state["ExitCode"]
        kills = reported(said)
        if kills is None and not said.timed_out:
            output = said.output.result()[0]
            if output.startswith(b"OCI runtime exec failed"):
                await self._sweep(at_least=1)
                raise SandboxLostError(f"{self._name} did not start the command: {output.decode('utf-8', 'replace')}")
        self._kills = kills if kills is not None else self._kills
        await self._sweep()

    async def _sweep(self, at_least: int = 0) -> None:
        """Kill everything of the agent's until the engine says that nothing is left, else give up the container."""
        until, attempt = time.monotonic() + (0.0 if self._lost else _PATIENCE), 0
        hasty = at_least > 0 and not self._lost
        try:
            if hasty:
                await self._allow(self._profile.cpu_quota * _HASTE)
            while time.monotonic() < until:
                if attempt >= at_least and not await self._backend.call(_agent_processes, self._name, quick=True):
                    if hasty:
                        await self._allow(self._profile.cpu_quota)
                    return
                await self._backend.call(_kill_all, self._name, quick=True)
                await asyncio.sleep(min(0.02 * attempt, 0.2))
                attempt += 1
        except SandboxError:
            pass  # the engine cannot get in: an agent stops whatever it starts there
        self._lost = True
        with contextlib.suppress(SandboxError):
            await self._backend.call(lambda api, name: api.kill(name), self._name)
        raise SandboxLostError(f"processes in {self._name} could not be killed, so the container was thrown away")

    async def _allow(self, quota: int) -> None:
        """Set the CPU quota in microseconds per period, where the engine lets it be set on a running container."""
        with contextlib.suppress(SandboxError):
            await self._backend.call(
                lambda api, name: api.update_container(name, cpu_period=CPU_PERIOD, cpu_quota=quota),
                self._name,
                quick=True,
            )


class ContainerBackend:
    """Makes containers on the engine that DOCKER_HOST names."""

    def __init__(self, config: SandboxConfig, owner: Owner) -> None:
        self._config = config
        self._owner = owner
        self._clients: dict[bool, docker.DockerClient] = {}
        self._proved: SelfTest | None = None

    async def call(
        self, act: Callable[[docker.APIClient, str], _Result], name: str = "", *, quick: bool = False
    ) -> _Result:
        """One blocking call in a thread; ``quick`` ones give up after `_PATIENCE` seconds.

        Raises SandboxLostError for a container that is gone and an engine that does not answer, else SandboxError.
        """
        try:
            return await asyncio.to_thread(lambda: act(self._engine(quick=quick).api, name))
        except docker.errors.NotFound as error:
            raise SandboxLostError(f"the container {name} is gone: {error.explanation}") from error
        except docker.errors.APIError as error:
            if error.status_code == 409:
                raise SandboxLostError(f"the container {name} is gone: {error.explanation}") from error
            raise SandboxError(f"the Docker engine refused: {error.explanation or error}") from error
        except (docker.errors.DockerException, requests.exceptions.RequestException, OSError) as error:
            raise SandboxLostError(f"the Docker engine does not answer: {error}") from error

    async def ready(self) -> dict[str, str]:
        """Engine version and image id. Raises SandboxUnavailableError where the engine or the image is missing."""
        try:
            version = await asyncio.to_thread(lambda: self._engine().version())
        except (docker.errors.DockerException, requests.exceptions.RequestException, OSError) as error:
            raise SandboxUnavailableError(
                f'no Docker engine answers ({error}); mend: as root, eval "$(scripts/start-docker)", or set DOCKER_HOST'
            ) from error
        try:
            image = await asyncio.to_thread(lambda: self._engine().images.get(self._config.image).id)
        except docker.errors.ImageNotFound as error:
            raise SandboxUnavailableError(
                f"the Docker engine has no image {self._config.image}; mend: scripts/build-image"
            ) from error
        return {"version": f"docker {version['Version']}", "image": str(image), "api": version["ApiVersion"]}

    async def self_test(self) -> SelfTest:
        """As the protocol says. What was proved once is answered again, while engine and image are there."""
        detail = await self.ready()
        if self._proved is not None:
            return self._proved
        try:
            test = await prove(self, "docker", detail.pop("version"), detail)
        except SandboxUnavailableError:
            raise
        except SandboxError as error:
            raise SandboxUnavailableError(f"containers do not work here: {error}") from error
        self._proved = insist(test, "look at the engine's version and control groups, or use bubblewrap")
        return self._proved

    @asynccontextmanager
    async def open(
        self, spec: SandboxSpec, workspace: AsyncIterator[bytes] | None = None
    ) -> AsyncIterator[ContainerSandbox]:
        """As the protocol says. Raises SandboxUnavailableError for an image that is not there: nothing is pulled."""
        name = self._owner.new_name()
        sandbox = ContainerSandbox(self, name, spec)
        try:
            await self._create(name, spec)
            if workspace is not None:
                await sandbox.fill(workspace)
            yield sandbox
        finally:
            await asyncio.shield(self._remove(name))

    async def sweep(self) -> int:
        """As the protocol says."""
        mine = {"label": f"{OWNER_LABEL}={self._owner.tag}"}
        found = await self.call(lambda api, _: api.containers(all=True, filters=mine))
        names = [str(entry["Names"][0]).lstrip("/") for entry in found]
        left = [name for name in names if self._owner.left_behind(name)]
        for name in left:
            await self._remove(name)
        return len(left)

    async def _create(self, name: str, spec: SandboxSpec) -> None:
        if platform.machine() not in ARCHITECTURES:
            raise SandboxUnavailableError(f"no system call filter for {platform.machine()}; use x86_64 or aarch64")
        profile, image = profile_of(spec), spec.image or self._config.image
        settings = docker_settings(profile, platform.machine()) | {
            "labels": {OWNER_LABEL: self._owner.tag},
            "log_config": docker.types.LogConfig(type="none"),
            "ulimits": [docker.types.Ulimit(name=n, soft=v, hard=v) for n, v in rlimits(profile).items()],
        }
        if self._config.runtime:
            settings["runtime"] = self._config.runtime
        try:
            await asyncio.to_thread(
                lambda: self._engine().containers.create(image, _HOLD, name=name, **settings).start()
            )
        except docker.errors.ImageNotFound as error:
            raise SandboxUnavailableError(f"there is no image {image}; mend: scripts/build-image") from error
        except docker.errors.APIError as error:
            raise SandboxError(f"the Docker engine made no container: {error.explanation or error}") from error
        except (docker.errors.DockerException, requests.exceptions.RequestException, OSError) as error:
            raise SandboxLostError(f"the Docker engine does not answer: {error}") from error

    async def _remove(self, name: str) -> None:
        with contextlib.suppress(SandboxLostError):  # gone already
            await self.call(lambda api, name: api.remove_container(name, force=True, v=True), name)

    def _engine(self, *, quick: bool = False) -> docker.DockerClient:
        if quick not in self._clients:
            _knock()
            client = docker.from_env(timeout=_PATIENCE if quick else _API_TIMEOUT)
            if client.api.base_url.startswith("https"):
                raise docker.errors.DockerException("a TLS connection cannot carry commands; use a unix socket")
            self._clients[quick] = client
        return self._clients[quick]


def _knock() -> None:
    """Connect once by hand: where no engine listens, the SDK would leave its socket open. Raises DockerException."""
    host = docker.utils.kwargs_from_env().get("base_url", docker.constants.DEFAULT_UNIX_SOCKET)
    _, unix, path = host.partition("unix://")
    if unix:
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(_PATIENCE)
            try:
                probe.connect(path)
            except OSError as error:
                raise docker.errors.DockerException(f"{path}: {error.strerror or error}") from error


def _start_exec(
    api: docker.APIClient, name: str, argv: list[str], environment: dict[str, str]
) -> tuple[str, socket.socket]:
    made = api.exec_create(name, argv, stdin=True, user=f"{AGENT_UID}:{AGENT_UID}", environment=environment)
    connection = api.exec_start(made["Id"], socket=True)
    raw = socket.socket(fileno=socket.dup(connection.fileno()))
    raw.settimeout(0)
    connection._response.close()  # noqa: SLF001 - the SDK ties the HTTP connection to it; ours is a duplicate
    return str(made["Id"]), raw


def _kill_all(api: docker.APIClient, name: str) -> None:
    made = api.exec_create(name, _SWEEP, user=f"{AGENT_UID}:{AGENT_UID}")
    api.exec_start(made["Id"], detach=True)  # an agent that stops every process would make us wait for ever


def _agent_processes(api: docker.APIClient, name: str) -> int:
    """How many processes there are beside the two that hold the container open, as the engine counts them."""
    listed: dict[str, Any] = api.top(name, "-e -o pid,uid")
    user = listed["Titles"].index("UID")
    return sum(1 for row in listed["Processes"] if int(row[user]) != KEEPER_UID)
