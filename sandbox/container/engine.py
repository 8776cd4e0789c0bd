"""The Docker engine: the only file that imports docker. Its blocking calls run in threads, its errors become ours.

Longer than most, since whatever touches the SDK is here. Nothing is ever pulled but by `pull_image`.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import docker
import docker.errors
import docker.types
import requests

from sandbox.container.remote import Way
from sandbox.errors import SandboxError, SandboxLostError, SandboxUnavailableError
from sandbox.rules.profile import CPU_PERIOD
from sandbox.types import Frozen

QUICK, USUAL, SLOW = 12, 60, 1800  # seconds of silence after which a call is given up
_LINES = 20  # of a failed build that are told
_READ = 1 << 20
_LONGEST = 4096  # characters of one piece of its output
_BUILD_MEMORY = 4 << 30  # bytes for each step of a build
_BUILD_SECONDS = 3600

_Result = TypeVar("_Result")


class Held(Frozen):
    """A container that the engine has, running or not."""

    name: str
    id: str
    labels: dict[str, str]
    created: float
    living: bool


class Image(Frozen):
    """What an image brings along that matters to a sandbox."""

    id: str
    env: dict[str, str]
    volumes: tuple[str, ...]


class Engine:
    """One engine, reached on a `Way`. Every method raises SandboxLostError where the engine does not answer."""

    def __init__(self, way: Way) -> None:
        self._way = way
        self._clients: dict[int, tuple[str, docker.DockerClient]] = {}
        self._making = threading.Lock()
        self._closed = False
        # Killing must never wait behind making, so it has threads of its own.
        self._usual = ThreadPoolExecutor(16, "engine")
        self._quick = ThreadPoolExecutor(8, "engine-quick")

    @property
    def told(self) -> str:
        """Where it is, in words."""
        return self._way.told

    @property
    def local(self) -> bool:
        """Whether it shares this machine's files and processes."""
        return self._way.local

    async def close(self) -> None:
        """Let go of connections, threads and the way."""
        self._closed = True
        for pool in (self._usual, self._quick):
            pool.shutdown(wait=False, cancel_futures=True)
        for _, client in self._clients.values():
            client.close()
        self._clients.clear()
        await self._way.close()

    async def version(self) -> dict[str, Any]:
        """The engine's own words about itself and its parts."""
        return dict(await self._call(lambda client: client.version()))

    async def info(self) -> dict[str, Any]:
        """What it can do: runtimes, limits, security options."""
        return dict(await self._call(lambda client: client.info()))

    # Containers

    async def create(self, name: str, image: str, hold: Sequence[str], settings: Mapping[str, Any]) -> str:
        """Make and start a container held open by ``hold``, whatever the image would start; its id.

        Raises SandboxUnavailableError where the image is not there, SandboxError where the engine refuses.
        """
        words = dict(settings)
        limits = words.pop("ulimits", {})
        mounts = [_mount(mount) for mount in words.pop("mounts", ())]

        def act(client: docker.DockerClient) -> str:
            made = client.containers.create(
                image,
                [],
                name=name,
                entrypoint=list(hold),
                healthcheck={"test": ["NONE"]},  # an image's own would run beside the agent, and outlive its commands
                log_config=docker.types.LogConfig(type="none"),
                ulimits=[docker.types.Ulimit(name=key, soft=value, hard=value) for key, value in limits.items()],
                mounts=mounts,
                **words,
            )
            made.start()
            return str(made.id)

        return await self._call(act, name)

    async def make(self, name: str, image: str, labels: Mapping[str, str], volume: str, target: str) -> None:
        """Make a container that is never started, so that a fresh ``volume`` takes over the image's ``target``."""

        def act(client: docker.DockerClient) -> None:
            mount = docker.types.Mount(target, volume, type="volume")
            client.containers.create(
                image, ["-"], name=name, labels=dict(labels), mounts=[mount], network_mode="none", read_only=True
            )

        await self._call(act, name, SLOW)

    async def start_exec(
        self, name: str, argv: Sequence[str], user: str, environment: Mapping[str, str]
    ) -> socket.socket:
        """The raw stream of a new process. It must keep silent until it is spoken to: what the engine sends on before
        its answer is parsed, the SDK loses."""

        def act(client: docker.DockerClient) -> socket.socket:
            api = client.api
            made = api.exec_create(name, list(argv), stdin=True, user=user, environment=dict(environment))
            connection = api.exec_start(made["Id"], socket=True)
            raw = socket.socket(fileno=socket.dup(connection.fileno()))
            connection._response.close()  # noqa: SLF001 - the SDK ties the HTTP connection to it; ours is a duplicate
            return raw

        starting = asyncio.ensure_future(self._call(act, name))
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            starting.add_done_callback(_hang_up)
            raise

    async def ask(self, name: str, argv: Sequence[str], user: str, folder: str) -> tuple[int | None, bytes]:
        """Run something short to its end: exit code and output. Not for what an agent could stop."""

        def act(client: docker.DockerClient) -> tuple[int | None, bytes]:
            made = client.api.exec_create(name, list(argv), user=user, workdir=folder)
            said = client.api.exec_start(made["Id"])
            return client.api.exec_inspect(made["Id"])["ExitCode"], bytes(said)

        return await self._call(act, name, QUICK)

    async def shoot(self, name: str, argv: Sequence[str], user: str) -> None:
        """Start something without waiting for it: an agent that stops every process would make us wait for ever."""

        def act(client: docker.DockerClient) -> None:
            made = client.api.exec_create(name, list(argv), user=user)
            client.api.exec_start(made["Id"], detach=True)

        await self._call(act, name, QUICK)

    async def processes(self, name: str) -> dict[int, int]:
        """Process ids in a container and whose they are, both as the engine's machine counts them."""

        def act(client: docker.DockerClient) -> dict[int, int]:
            listed = client.api.top(name, "-e -o pid,uid")
            pid, uid = listed["Titles"].index("PID"), listed["Titles"].index("UID")
            return {int(row[pid]): int(row[uid]) for row in listed["Processes"]}

        return await self._call(act, name, QUICK)

    async def first_process(self, name: str) -> int:
        """The process id of a container's first process, as the engine's machine counts it; 0 where it has ended."""
        return await self._call(lambda client: int(client.api.inspect_container(name)["State"]["Pid"]), name, QUICK)

    async def allow(self, name: str, quota: int) -> None:
        """Set the CPU quota, microseconds per period, of a running container."""
        await self._call(
            lambda client: client.api.update_container(name, cpu_period=CPU_PERIOD, cpu_quota=quota), name, QUICK
        )

    async def kill(self, name: str) -> None:
        """End all there is in a container, its keeper included."""
        await self._call(lambda client: client.api.kill(name), name, QUICK)

    async def remove(self, name: str) -> None:
        """Remove a container and its nameless volumes; one that is gone already is well gone."""

        def act(client: docker.DockerClient) -> None:
            with contextlib.suppress(docker.errors.NotFound):
                client.api.remove_container(name, force=True, v=True)

        await self._call(act, name)

    async def containers(self, label: str) -> list[Held]:
        """All containers that have a label (or ``label=value``), running or not."""
        found = await self._call(lambda client: client.api.containers(all=True, filters={"label": label}))
        return [
            Held(
                name=str(entry["Names"][0]).lstrip("/"),
                id=entry["Id"],
                labels=entry["Labels"] or {},
                created=float(entry["Created"]),
                living=entry["State"] in {"running", "paused"},
            )
            for entry in found
            if entry["Names"]
        ]

    # Volumes

    async def volumes(self, label: str) -> dict[str, dict[str, str]]:
        """Names of the volumes that have a label, with their labels."""
        found = await self._call(lambda client: client.api.volumes(filters={"label": label})["Volumes"])
        return {str(entry["Name"]): entry["Labels"] or {} for entry in found or []}

    async def create_volume(self, name: str, labels: Mapping[str, str]) -> None:
        """Make a volume; one of that name that is there stays."""
        await self._call(lambda client: client.api.create_volume(name, labels=dict(labels)), name)

    async def remove_volume(self, name: str) -> None:
        """Remove a volume. Raises SandboxLostError where it is gone already or in use."""
        await self._call(lambda client: client.api.remove_volume(name), name)

    # Images

    async def image(self, name: str) -> Image | None:
        """An image that is there, by name or id."""

        def act(client: docker.DockerClient) -> Image | None:
            try:
                found = client.api.inspect_image(name)
            except docker.errors.NotFound:
                return None
            held = found.get("Config") or {}
            env = dict(pair.split("=", 1) for pair in held.get("Env") or [] if "=" in pair)
            return Image(id=found["Id"], env=env, volumes=tuple(held.get("Volumes") or ()))

        return await self._call(act)

    async def image_id(self, name: str) -> str | None:
        """Id of an image that is there; None where it is not."""
        found = await self.image(name)
        return found.id if found else None

    async def image_env(self, name: str) -> dict[str, str]:
        """The variables that an image sets. Raises SandboxUnavailableError where it is not there."""
        found = await self.image(name)
        if found is None:
            raise SandboxUnavailableError(f"the Docker engine has no image {name}; mend: docker pull {name}")
        return found.env

    async def pull_image(self, name: str) -> str:
        """Fetch an image from its registry; its id. Only ever on a person's order. Raises SandboxError."""
        return await self._call(lambda client: str(client.images.pull(name, tag=_tag(name)).id), pace=SLOW)

    async def load_image(self, archive: Path) -> str:
        """Take an image from an archive as ``docker save`` makes it; its id. Raises SandboxError."""

        def act(client: docker.DockerClient) -> str:
            with archive.open("rb") as file:
                names = _loaded(client.api.load_image(file))
            if len(names) != 1:
                raise SandboxError(f"{archive} holds {len(names)} images; mend: docker save one image")
            return str(client.api.inspect_image(names.pop())["Id"])

        return await self._call(act, pace=SLOW)

    async def build_image(self, context: Path, dockerfile: str, args: Mapping[str, str], network: str) -> str:
        """Build an image from a tar file; its id. Raises SandboxError with its last lines.

        Newer parents are not asked for; one that the engine has not got it would fetch, so look for it first.
        """

        def act(client: docker.DockerClient) -> str:
            with context.open("rb") as file:
                steps = client.api.build(
                    fileobj=file,
                    custom_context=True,
                    dockerfile=dockerfile,
                    buildargs=dict(args),
                    network_mode=network,
                    container_limits={"memory": _BUILD_MEMORY, "memswap": _BUILD_MEMORY},
                    rm=True,
                    forcerm=True,
                    pull=False,
                    decode=True,
                )
                with contextlib.closing(steps):
                    return _built(steps, time.monotonic() + _BUILD_SECONDS)

        return await self._call(act, pace=SLOW)

    async def export_image(self, name: str, target: Path, most: int) -> None:
        """An image's whole root file system as a tar, from a container that is never started. Raises SandboxError.

        So does one of more than ``most`` bytes: files with holes are small in the engine, and come with every zero.
        """

        def act(client: docker.DockerClient) -> None:
            made = client.api.create_container(
                name, ["-"], host_config=client.api.create_host_config(network_mode="none")
            )
            try:
                with target.open("wb") as file, contextlib.closing(client.api.export(made["Id"], _READ)) as stream:
                    for chunk in stream:
                        if file.tell() + len(chunk) > most:
                            raise SandboxError(f"the file system of the image {name} is larger than {most} bytes")
                        file.write(chunk)
            finally:
                client.api.remove_container(made["Id"], force=True, v=True)

        await self._call(act, pace=SLOW)

    # The one way in

    async def _call(self, act: Callable[[docker.DockerClient], _Result], name: str = "", pace: int = USUAL) -> _Result:
        if self._closed:
            raise SandboxLostError(
                f"the Docker engine at {self._way.told} was let go of; {name or 'it'} is out of reach"
            )
        path = await self._way.path()
        pool = self._quick if pace == QUICK else self._usual

        def work() -> _Result:
            with _translated(name):
                return act(self._client(path, pace))

        try:
            return await asyncio.get_running_loop().run_in_executor(pool, work)
        except (docker.errors.DockerException, requests.exceptions.RequestException, OSError) as error:
            reason = await self._way.why() or str(error)
            raise SandboxLostError(f"the Docker engine at {self._way.told} does not answer: {reason}") from error

    def _client(self, path: str, pace: int) -> docker.DockerClient:
        with self._making:
            known, client = self._clients.get(pace, ("", None))
            if client is None or known != path:
                if client is not None:
                    client.close()
                client = docker.DockerClient(base_url=f"unix://{path}", timeout=pace, max_pool_size=32)
                self._clients[pace] = (path, client)
            return client


@contextlib.contextmanager
def _translated(name: str) -> Iterator[None]:
    """What an engine that answers may say, as our errors."""
    try:
        yield
    except docker.errors.ImageNotFound as error:
        mend = "mend: scripts/build-image for the project's own, docker pull or docker load for another"
        raise SandboxUnavailableError(
            f"the Docker engine has not got the image ({error.explanation}); {mend}"
        ) from error
    except docker.errors.NotFound as error:
        raise SandboxLostError(f"{name or 'it'} is gone: {error.explanation}") from error
    except docker.errors.APIError as error:
        if error.status_code == 409:
            raise SandboxLostError(f"{name or 'it'} is gone or in use: {error.explanation}") from error
        raise SandboxError(f"the Docker engine refused: {error.explanation or error}") from error


def _hang_up(starting: asyncio.Future[socket.socket]) -> None:
    """Nobody waits for this stream any more; its process sees the end of its input."""
    if not starting.cancelled() and starting.exception() is None:
        starting.result().close()


def _mount(words: Mapping[str, Any]) -> docker.types.Mount:
    """A bind shows no file system that is mounted further down: a read-only one would leave those writable."""
    mount = docker.types.Mount(**words)
    if words["type"] == "bind":
        mount.setdefault("BindOptions", {})["NonRecursive"] = True
    return mount


def _tag(name: str) -> str | None:
    """The SDK pulls every tag there is unless it is told one."""
    return None if ":" in name.rpartition("/")[2] or "@" in name else "latest"


def _built(steps: Iterator[dict[str, Any]], until: float) -> str:
    """The id of what was built. A stream is read to its end, since the SDK would leave the connection open.

    But for one that goes on after ``until``, by the monotonic clock: the engine ends a build that nobody listens to.
    """
    lines: list[str] = []
    made = error = ""
    for step in steps:
        error = error or str(step.get("error", "")).strip()
        made = str((step.get("aux") or {}).get("ID", made))
        lines = [*lines, *str(step.get("stream", ""))[-_LONGEST:].rstrip().splitlines()][-_LINES:]
        if time.monotonic() > until:
            error = f"it was not done after {_BUILD_SECONDS} s"
            break
    if error or not made:
        words = "\n".join([*lines, error or "the engine named no image"])
        raise SandboxError(f"the image could not be built:\n{words}")
    return made


def _loaded(steps: Iterator[dict[str, Any]]) -> set[str]:
    """Names or ids of what was loaded; the stream is read to its end."""
    names: set[str] = set()
    error = ""
    for step in steps:
        error = error or str(step.get("error", "")).strip()
        said = str(step.get("stream", ""))
        if said.startswith("Loaded image"):
            names.add(said.partition(": ")[2].strip())
    if error:
        raise SandboxError(f"the image could not be loaded: {error}")
    return names
