"""Engines elsewhere: over ssh and over TLS, both real; every failure names the host, the reason and the mend."""

from __future__ import annotations

import asyncio
import contextlib
import re
import shutil
import socket as sockets
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from sandbox.container.engine import Engine
from sandbox.container.remote import way_to
from sandbox.container.ssh import SshForward
from sandbox.errors import SandboxLostError


def free_port() -> int:
    with sockets.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def closed_to_others(path: str) -> Path:
    """The folder of a socket that no other user can reach."""
    socket = Path(path)
    assert socket.is_socket()
    assert socket.parent.stat().st_mode & 0o777 == 0o700
    return socket.parent


def lives(pid: str) -> bool:
    return Path(f"/proc/{pid}").exists()


@asynccontextmanager
async def engine_at(environment: Mapping[str, str]) -> AsyncIterator[Engine]:
    engine = Engine(way_to(environment))
    try:
        yield engine
    finally:
        await engine.close()


async def refused(environment: Mapping[str, str]) -> str:
    async with engine_at(environment) as engine:
        with pytest.raises(SandboxLostError) as caught:
            await engine.version()
    said = str(caught.value)
    assert environment["DOCKER_HOST"] in said
    assert "mend: " in said
    assert "Traceback" not in said
    return said


@pytest.mark.docker
@pytest.mark.root
async def test_an_engine_over_ssh_answers_on_a_socket_of_this_user_alone(far_machine) -> None:
    async with engine_at(far_machine.environment) as engine:
        assert (await engine.version())["Version"]
        assert not engine.local
        folder = closed_to_others(await engine._way.path())
    assert not folder.exists()


@pytest.mark.docker
@pytest.mark.root
async def test_a_broken_ssh_is_opened_again_and_ends_with_the_engine(far_machine) -> None:
    async with engine_at(far_machine.environment) as engine:
        await engine.version()
        way = engine._way
        assert isinstance(way, SshForward)
        first = way._process
        assert first is not None
        first.kill()
        await first.wait()
        assert (await engine.version())["Version"]
        second = way._process
        assert second is not None
        assert second.pid != first.pid
        assert second.returncode is None
    assert second.returncode is not None


@pytest.mark.docker
@pytest.mark.root
async def test_whoever_is_cancelled_while_the_way_opens_leaves_it_shut_and_the_next_opens_it(far_machine) -> None:
    async with engine_at(far_machine.environment) as engine:
        for delay in (0.0, 0.02, 0.05, 0.1):
            waiting = asyncio.create_task(engine.version())
            await asyncio.sleep(delay)
            waiting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await waiting
        assert (await engine.version())["Version"]
    with pytest.raises(SandboxLostError, match="was let go of"):
        await engine.version()


HOLDER = """
import asyncio, os
from sandbox.container.engine import Engine
from sandbox.container.remote import way_to

async def main():
    engine = Engine(way_to(dict(os.environ)))
    await engine.version()
    print(engine._way._process.pid, await engine._way.path(), flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


@pytest.mark.docker
@pytest.mark.root
async def test_the_way_to_a_far_engine_does_not_outlive_a_killed_process(far_machine) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", HOLDER, env=far_machine.environment, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    pid, path = (await process.stdout.readline()).decode().split()
    assert lives(pid)
    process.kill()
    await process.communicate()
    for _ in range(100):
        if not lives(pid):
            break
        await asyncio.sleep(0.05)
    assert not lives(pid)
    shutil.rmtree(Path(path).parent)


@pytest.mark.docker
@pytest.mark.root
@pytest.mark.parametrize(
    ("client", "words"),
    [
        ({"key": "stranger"}, "Permission denied.*mend: no key of this user is let in"),
        ({"known": "no_hosts"}, "Host key verification failed.*mend: its host key is not known here"),
        ({"known": "wrong_hosts"}, "mend: its host key"),
    ],
)
async def test_ssh_without_trust_on_either_side_is_refused(far_machine, client: dict[str, str], words: str) -> None:
    far_machine.client(**client)
    assert re.search(words, await refused(far_machine.environment))


@pytest.mark.docker
@pytest.mark.root
async def test_a_far_engine_that_is_not_there_is_told_apart(far_machine, tmp_path: Path) -> None:
    closed = far_machine.environment | {"DOCKER_HOST": f"ssh://root@127.0.0.1:{free_port()}"}
    assert "no ssh server listens there" in await refused(closed)
    nowhere = far_machine.environment | {"DOCKER_HOST": f"ssh://root@127.0.0.1:{far_machine.port}{tmp_path}/none.sock"}
    assert "the engine's socket is not there" in await refused(nowhere)
    nameless = far_machine.environment | {"DOCKER_HOST": "ssh://no-such-host.invalid"}
    assert "mend: " in await refused(nameless)


@pytest.mark.docker
@pytest.mark.root
async def test_mutual_tls_carries_everything_and_checks_both_sides(certified) -> None:
    async with engine_at(certified.environment()) as engine:
        assert (await engine.version())["Version"]
        assert not engine.local
        folder = closed_to_others(await engine._way.path())
        assert await engine.image_id("agent-swarm/none:1") is None
        many = await asyncio.gather(*(engine.info() for _ in range(20)))
        assert len({info["ID"] for info in many}) == 1
    assert not folder.exists()
    for folder, words in (
        ("stranger", "TLS failed .*trust the authority"),
        ("distrustful", "certificate is not trusted"),
        ("missing", "needs .*ca.pem, which cannot be read"),
    ):
        assert re.search(words, await refused(certified.environment(folder))), folder
    named = certified.environment(host="localhost")  # the certificate is for 127.0.0.1
    assert "must name localhost" in await refused(named)
    plain = {"DOCKER_HOST": f"tcp://127.0.0.1:{certified.port}"}
    async with engine_at(plain) as engine:
        with pytest.raises(Exception, match=r"HTTP request to an HTTPS server|does not answer"):
            await engine.version()


async def test_where_nothing_listens_the_reason_and_the_mend_are_told(tmp_path: Path) -> None:
    tls = {"DOCKER_HOST": f"tcp://127.0.0.1:{free_port()}"}
    said = await refused(tls)
    assert "of 127.0.0.1: connection refused; mend: is its engine up?" in said
    assert "Connect call" not in said
    unix = {"DOCKER_HOST": f"unix://{tmp_path}/none.sock"}
    async with engine_at(unix) as engine:
        with pytest.raises(
            SandboxLostError, match=r"no Docker engine listens at .*none\.sock .*in a checkout, as root"
        ):
            await engine.version()
