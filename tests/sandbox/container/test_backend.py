"""Docker sandboxes of any image, on a far engine too; what they leave, and what a dead process left."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import shutil
import sys
import tarfile
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import docker
import pytest

from sandbox.base import Sandbox
from sandbox.config import SandboxConfig
from sandbox.container.backend import ContainerBackend
from sandbox.container.cell import ExecLine
from sandbox.container.making import MACHINE_LABEL, OWNER_LABEL
from sandbox.errors import SandboxLostError, SandboxPathError, SandboxUnavailableError
from sandbox.owner import Owner, owner_of
from sandbox.types import MIB, Command, LeftBehind, Limits, SandboxSpec

pytestmark = pytest.mark.docker

SPEC = SandboxSpec(limits=Limits(memory=128 * MIB, processes=48, disk=16 * MIB, output=8192, wall=30))
STATIC = Path(shutil.which("docker-init") or "/usr/bin/tini-static").resolve()  # what every engine brings along: static


@pytest.fixture
async def backend(tmp_path: Path) -> AsyncIterator[ContainerBackend]:
    backend = ContainerBackend(SandboxConfig(), owner_of(tmp_path))
    yield backend
    await backend.close()


@pytest.fixture
def stranger() -> AsyncIterator[str]:
    """An image made from nothing but a static program, that asks for all an image can ask for."""
    client = docker.from_env()
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        tar.add(STATIC, "static")
        for name, data in (("file", b"only this\n"), ("etc/ld.so.preload", b"/evil.so\n")):
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    changes = [
        'ENTRYPOINT ["/static", "--help"]',
        "VOLUME /data",
        "VOLUME /work",
        "HEALTHCHECK --interval=1s CMD /static --version",
        f'LABEL {OWNER_LABEL}="0123456789" {MACHINE_LABEL}="x" agent-swarm.spec="not json"',
        "ENV LD_PRELOAD=/evil.so LC_ALL=evil GCONV_PATH=/evil PATH=/nowhere PYTHONHOME=/nowhere",
        "USER 0",
        "WORKDIR /data",
    ]
    name = f"agent-swarm-test/stranger:{os.getpid()}"
    repository, tag = name.split(":")
    client.api.import_image_from_data(layer.getvalue(), repository=repository, tag=tag, changes=changes)
    yield name
    client.images.remove(name, force=True)
    client.close()


def ours(client: docker.DockerClient, owner: Owner) -> list[Any]:
    return client.containers.list(all=True, filters={"label": f"{OWNER_LABEL}={owner.tag}"})


async def test_an_image_without_anything_holds_a_whole_sandbox(
    backend: ContainerBackend, stranger: str, tmp_path: Path
) -> None:
    client = docker.from_env()
    before = {volume.name for volume in client.volumes.list()}
    async with backend.open(SPEC.model_copy(update={"image": stranger})) as box:
        assert (await box.run(Command(argv=("/static", "--version")))).text.startswith("tini version")
        assert (await box.run(Command(argv=("/bin/sh", "-c", "true")))).exit_code == 127
        await box.write("deep/file", bytes(range(256)))
        assert await box.read("deep/file") == bytes(range(256))
        async with box.fork() as other:
            assert await other.read("deep/file") == bytes(range(256))
        [state] = [c.attrs for c in ours(client, owner_of(tmp_path)) if c.name == box.name]
        assert state["Config"]["Entrypoint"][0].startswith("/.swarm/usr/")
        assert "Health" not in state["State"]
        assert state["Config"]["Labels"][MACHINE_LABEL] != "x"
        assert state["HostConfig"]["ReadonlyRootfs"]
        variables = dict(pair.split("=", 1) for pair in state["Config"]["Env"])
        assert {variables[name] for name in ("LD_PRELOAD", "LC_ALL", "GCONV_PATH", "PYTHONHOME")} == {""}
        preloaded = await box.run(Command(argv=(*PYTHON, "print(open('/etc/ld.so.preload').read() or 'nothing')")))
        assert preloaded.text == "nothing\n"
        places = {mount["Destination"]: mount for mount in state["Mounts"]}
        assert places["/data"]["Type"] == "tmpfs"
        assert not places["/.swarm/usr"]["RW"]
        assert not [mount for mount in state["Mounts"] if mount["RW"] and mount["Type"] != "tmpfs"]
        top = client.api.top(box.name, "-e -o pid,uid")["Processes"]
        assert "0" not in {row[1] for row in top}
        async with box.quiet():  # all is killed with the borrowed shell, and the borrowed python starts again
            assert len(client.api.top(box.name, "-e -o pid,uid")["Processes"]) == 2
        assert await box.read("deep/file") == bytes(range(256))
    made = {volume.name for volume in client.volumes.list()} - before
    assert all(name.startswith("agent-swarm-runtime-") for name in made)
    client.close()


PYTHON = (
    "/.swarm/usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2",
    *("--library-path", "/.swarm/usr/lib/x86_64-linux-gnu", "--argv0", "/.swarm/usr/bin/python3"),
    *("/.swarm/usr/bin/python3", "-I", "-S", "-c"),
)


async def test_the_borrowed_programs_are_shared_and_made_anew_when_half_made(
    backend: ContainerBackend, stranger: str, tmp_path: Path
) -> None:
    spec = SPEC.model_copy(update={"image": stranger})
    client = docker.from_env()
    base = client.images.get(SandboxConfig().image).id
    name = f"agent-swarm-runtime-{base.removeprefix('sha256:')[:20]}"
    async with backend.open(spec) as one:
        writing = await one.run(Command(argv=(*PYTHON, "open('/.swarm/usr/x', 'w')")))
        assert "Read-only file system" in writing.text or "Permission denied" in writing.text
        created = client.volumes.get(name).attrs["CreatedAt"]
        others = [ContainerBackend(SandboxConfig(), owner_of(tmp_path / str(n))) for n in range(2)]
        for other in others:
            async with other.open(spec) as two:
                await two.write("x", b"1")
            assert await other.sweep() == 0
            await other.close()
        assert client.volumes.get(name).attrs["CreatedAt"] == created
    client.containers.get(name).remove()  # as someone's tidying up, or a crash while it was filled
    client.volumes.get(name).remove()
    client.volumes.create(name)
    fresh = ContainerBackend(SandboxConfig(), owner_of(tmp_path))
    async with fresh.open(spec) as box:
        await box.write("x", b"1")
    await fresh.close()
    assert client.containers.get(name).status == "created"
    client.close()


async def test_an_image_that_is_not_there_is_never_fetched(backend: ContainerBackend, tmp_path: Path) -> None:
    with pytest.raises(SandboxUnavailableError, match=r"no image example\.invalid/x:1; mend: docker pull"):
        async with backend.open(SPEC.model_copy(update={"image": "example.invalid/x:1"})):
            pass
    lacking = ContainerBackend(SandboxConfig(image="agent-swarm/none:1"), owner_of(tmp_path))
    with pytest.raises(SandboxUnavailableError, match=r"no image agent-swarm/none:1; mend: scripts/build-image"):
        await lacking.self_test()
    await lacking.close()
    unknown = ContainerBackend(SandboxConfig(runtime="nonesuch"), owner_of(tmp_path))
    with pytest.raises(SandboxUnavailableError, match=r"no runtime nonesuch, only .*runc.*; mend: "):
        await unknown.self_test()
    await unknown.close()


_GREEDY = """
import ctypes, fcntl, os, time
libc = ctypes.CDLL(None)
count = 0
while libc.inotify_init1(0) >= 0:
    count += 1
pipes = []
try:
    while len(pipes) < 200:
        pipes.append(os.pipe())
        fcntl.fcntl(pipes[-1][1], 1031, 1 << 20)
except OSError:
    pass
print(count, flush=True)
open("/work/full", "w").close()
time.sleep(60)
"""
_MODEST = """
import ctypes, fcntl, os
print(ctypes.CDLL(None).inotify_init1(0) >= 0, fcntl.fcntl(os.pipe()[1], 1032) >= 65536)
"""


async def test_what_the_kernel_bounds_per_user_cannot_be_used_up_for_others(backend: ContainerBackend) -> None:
    if (await backend.ready())["users"] != "the machine's own":
        pytest.skip("the kernel counts inotify for whoever made a user namespace: the engine")
    async with backend.open(SPEC) as greedy, backend.open(SPEC) as modest:
        hoarding = asyncio.create_task(greedy.run(Command(argv=("python3", "-c", _GREEDY))))
        async with asyncio.timeout(30):
            while not await exists(greedy, "full"):  # noqa: ASYNC110 - it is in there
                await asyncio.sleep(0.1)
        assert (await modest.run(Command(argv=("python3", "-c", _MODEST)))).text == "True True\n"
        hoarding.cancel()
        await asyncio.gather(hoarding, return_exceptions=True)


async def exists(box: Sandbox, path: str) -> bool:
    with contextlib.suppress(SandboxPathError):
        await box.read(path)
        return True
    return False


async def test_whatever_its_uid_an_agent_has_a_name_and_a_home(backend: ContainerBackend) -> None:
    code = "import getpass, os, pwd; p = pwd.getpwuid(os.getuid()); print(getpass.getuser(), p.pw_name, p.pw_dir)"
    program = f"""
        whoami; id -un; id -gn; echo ~ "$HOME"; env -u USER -u LOGNAME -u HOME python3 -c '{code}'
        git init -q r && cd r && echo x >f && git add f && git status --short
        git -c user.name=a -c user.email=a@b commit -qm one && git log --format=%s; id -u"""
    seen = set()
    async with backend.open(SPEC) as one, backend.open(SPEC) as two:
        for box in (one, two):
            *lines, uid = (await box.run(Command(argv=("sh", "-c", program)))).text.splitlines()
            assert lines == [
                *("agent", "agent", "agent", "/home/agent /home/agent", "agent agent /home/agent"),
                *("A  f", "one"),
            ]
            seen.add(uid)
    assert len(seen) == 2


async def test_a_cancelled_opening_leaves_no_container(backend: ContainerBackend, tmp_path: Path) -> None:
    await backend.ready()
    client = docker.from_env()

    async def opened() -> None:
        async with backend.open(SPEC):
            await asyncio.sleep(60)

    for delay in (0.0, 0.02, 0.1, 0.2, 0.4):
        task = asyncio.create_task(opened())
        await asyncio.sleep(delay)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
    await backend.close()
    assert ours(client, owner_of(tmp_path)) == []
    client.close()


async def test_what_is_mounted_is_read_only_and_never_from_here_on_a_far_engine(tmp_path: Path) -> None:
    shown = tmp_path / "shown"
    shown.mkdir()
    (shown / "tool").write_text("useful")
    config = SandboxConfig(mounts={"/opt/tools": str(shown)})
    backend = ContainerBackend(config, owner_of(tmp_path))
    async with backend.open(SPEC) as box:
        outcome = await box.run(
            Command(argv=("sh", "-c", "cat /opt/tools/tool; : >/opt/tools/new; rm /opt/tools/tool"))
        )
        assert outcome.text.startswith("useful")
        assert outcome.exit_code != 0
    await backend.close()
    assert [path.name for path in shown.iterdir()] == ["tool"]


MAKER = """
import asyncio, sys
from pathlib import Path
from sandbox.base import Sandbox
from sandbox.config import SandboxConfig
from sandbox.container.backend import ContainerBackend
from sandbox.owner import owner_of
from sandbox.types import Command, SandboxSpec

async def main():
    backend = ContainerBackend(SandboxConfig(), owner_of(Path(sys.argv[1])))
    spec = SandboxSpec(labels={"task": "t-1", "kind": "work"}, env={"SECRET": "canary"})
    async with backend.open(spec) as one, backend.open(spec) as two:
        for box in (one, two):
            await box.write("work.txt", b"unsaved " + box.name.encode())
        print(one.name, two.name, flush=True)
        await one.run(Command(argv=("sleep", "600")))

asyncio.run(main())
"""


async def orphans(state: Path) -> list[str]:
    """Two sandboxes whose process was killed, one with a command running."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", MAKER, str(state), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    names = (await process.stdout.readline()).decode().split()
    await asyncio.sleep(0.3)
    process.kill()
    await process.communicate()
    return names


async def test_orphans_are_told_rescued_and_removed_and_those_that_cannot_be_saved_stay(tmp_path: Path) -> None:
    names = await orphans(tmp_path)
    assert len(names) == 2
    backend = ContainerBackend(SandboxConfig(), owner_of(tmp_path))
    elsewhere = ContainerBackend(SandboxConfig(), owner_of(tmp_path / "another"))
    left = await backend.left_behind()
    mine = [one for one in left if one.name in names]
    assert [(one.labels, one.living, one.ours) for one in mine] == [({"task": "t-1", "kind": "work"}, True, True)] * 2
    assert [one.created for one in left] == sorted(one.created for one in left)
    assert abs(mine[0].created - time.time()) < 60
    seen = {one.name: one for one in await elsewhere.left_behind()}
    assert not seen[names[0]].ours
    assert await elsewhere.sweep() == 0
    saved: dict[str, bytes] = {}

    async def rescue(left: LeftBehind, stream: AsyncIterator[bytes]) -> None:
        data = b"".join([piece async for piece in stream])
        if left.name == names[1]:
            raise OSError("no room to save it")
        with tarfile.open(fileobj=io.BytesIO(data)) as tar:
            saved[left.name] = tar.extractfile("./work.txt").read()

    assert await backend.sweep(rescue) == 1
    assert saved == {names[0]: b"unsaved " + names[0].encode()}
    assert [one.name for one in await backend.left_behind() if one.ours] == [names[1]]
    assert await backend.sweep(only=["no-such-name"]) == 0
    assert await elsewhere.sweep(only=[names[1]]) == 1
    assert [one.name for one in await backend.left_behind() if one.ours] == []
    for each in (backend, elsewhere):
        await each.close()


async def test_a_sandbox_of_a_living_process_or_another_machine_is_no_orphan(
    backend: ContainerBackend, tmp_path: Path
) -> None:
    client = docker.from_env()
    owner = owner_of(tmp_path)
    async with backend.open(SPEC):
        assert await backend.sweep() == 0
        dead = Owner(owner.tag, 4_194_000, 1).new_name()
        labels = {OWNER_LABEL: owner.tag, MACHINE_LABEL: "of-another-machine"}
        made = client.containers.create(SandboxConfig().image, ["true"], name=dead, labels=labels, network_mode="none")
        assert dead not in {left.name for left in await backend.left_behind()}
        assert await backend.sweep() == 0
        made.remove()
    client.close()


async def line_to(backend: ContainerBackend, name: str, *argv: str) -> ExecLine:
    raw = await backend.engine.start_exec(name, argv, "70000", {})
    return ExecLine(name, *await asyncio.open_unix_connection(sock=raw, limit=65536))


async def flood(line: ExecLine) -> None:
    for _ in range(200):
        await line.send(bytes(MIB))


async def test_the_line_holds_back_both_sides(backend: ContainerBackend) -> None:
    async with backend.open(SPEC) as box:
        line = await line_to(backend, box.name, "sh", "-c", "read go; head -c 50000000 /dev/zero")
        before = len(await backend.engine.processes(box.name))
        await line.send(b"\n")
        await asyncio.sleep(1.5)
        assert len(await backend.engine.processes(box.name)) >= before  # it waits: nobody reads
        total = 0
        while data := await line.receive():
            assert len(data) <= 256 * 1024
            total += len(data)
        assert total == 50_000_000
        await line.close()
        line = await line_to(backend, box.name, "sleep", "60")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(flood(line), 2)
        await line.close()
        line = await line_to(backend, box.name, "/no/such/program")
        with pytest.raises(SandboxLostError, match="did not start"):
            await line.receive()
        await line.close()


async def whole(environment: Mapping[str, str], state: Path) -> None:
    """A sandbox on a far engine: commands, bulk both ways, a fork; a mount from here is refused."""
    backend = ContainerBackend(SandboxConfig(), owner_of(state), environment=environment)
    try:
        data = os.urandom(8 * MIB)
        async with backend.open(SPEC) as box:
            assert (await box.run(Command(argv=("cat",), stdin=b"hello"))).text == "hello"
            await box.write("big", data)
            assert await box.read("big", 9 * MIB) == data
            timed_out = await box.run(Command(argv=("sleep", "60"), timeout=0.5))
            assert timed_out.timed_out
            async with box.fork() as other:
                assert await other.read("big", 9 * MIB) == data
        assert not [left for left in await backend.left_behind() if left.ours]
    finally:
        await backend.close()
    mounting = ContainerBackend(
        SandboxConfig(mounts={"/opt/tools": str(state)}), owner_of(state), environment=environment
    )
    with pytest.raises(SandboxUnavailableError, match=r"folders of this machine, but the engine is at .*; mend: "):
        async with mounting.open(SPEC):
            pass
    await mounting.close()


@pytest.mark.root
async def test_a_sandbox_over_ssh_is_a_whole_one(far_machine, tmp_path: Path) -> None:
    await whole(far_machine.environment, tmp_path)


@pytest.mark.root
async def test_a_sandbox_over_tls_is_a_whole_one(furnished, tmp_path: Path) -> None:
    await whole(furnished.environment(), tmp_path)


@pytest.mark.root
async def test_a_runtime_that_never_answers_cannot_hold_the_self_test_up(furnished, tmp_path: Path) -> None:
    """As gVisor's kvm platform on a machine without a real one: it spins and says nothing."""
    environment = {"DOCKER_HOST": f"unix://{furnished.folder}/engine/docker.sock"}
    backend = ContainerBackend(
        SandboxConfig(runtime="stuck"), owner_of(tmp_path), environment=environment, patience=2.0
    )
    began = time.monotonic()
    with pytest.raises(SandboxUnavailableError, match=r"runtime stuck did not finish .* in 2 s; mend: another runtime"):
        await backend.self_test()
    assert time.monotonic() - began < 6
    for pid in (furnished.folder / "stuck.pids").read_text().split():
        os.kill(int(pid), 9)
    await backend.close()
