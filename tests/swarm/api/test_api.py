"""The api and its client over a real unix socket, on a running coordinator."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from swarm import acceptance
from swarm.api import streams
from swarm.api.application import application
from swarm.api.desk import Desk
from swarm.client import DaemonClient
from swarm.config import BrokerAddress, DaemonConfig, RepositoryConfig, Settings
from swarm.errors import DaemonError, TaskError
from swarm.serving import http_server
from swarm.shown import BrokerView, DaemonHealth, DaemonStatus
from swarm.store.rows import Plan
from swarm.types import TaskRequest, TaskState, TaskView
from tests.swarm.api.conftest import LONG

pytestmark = pytest.mark.slow

HEALTH = DaemonHealth(version="1", pid=os.getpid(), uid=os.getuid(), started=0.0)


@asynccontextmanager
async def served(bench: Any, path: Path | None = None) -> AsyncIterator[tuple[DaemonClient, Desk]]:
    """The bench's coordinator behind the api, and a client of it."""
    path = path or bench.folder / "d.sock"
    settings = Settings.model_validate(
        {
            "daemon": DaemonConfig(state=bench.folder, socket=path),
            "broker": BrokerAddress(socket=bench.broker.socket),
            "pool": {"endpoints": [{"name": "a", "url": "http://127.0.0.1:1", "tier": "small"}]},
            "repositories": {"demo": RepositoryConfig(test_command="true")},
        }
    )

    async def plan(request: TaskRequest) -> Plan:
        return acceptance.plan(request, settings, ())

    async def diff(view: TaskView) -> str:
        sealed = await bench.workspace.sealed_at(view.attempts[-1].salvage) if view.attempts else None
        return await bench.workspace.diff(sealed.base, sealed.tree) if sealed else ""

    async def status() -> DaemonStatus:
        broker = BrokerView(socket="b", reachable=True)
        return DaemonStatus(health=HEALTH, workers=2, counts=await bench.store.counts(), broker=broker)

    async with bench.open() as coordinator:
        desk = Desk(bench.store, coordinator, plan, diff, lambda: HEALTH, status)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(path))
            listener.listen()
            server = http_server(application(desk))
            serving = asyncio.create_task(server.serve(sockets=[listener]))
            try:
                async with DaemonClient(path) as client:
                    yield client, desk
            finally:
                desk.closing.set()
                server.should_exit = True
                await serving
                await asyncio.to_thread(path.unlink, missing_ok=True)


def wanted(bench: Any, name: str, **more: Any) -> TaskRequest:
    grant = bench.broker.grant(name)
    values = {
        "repository": "demo",
        "instructions": "fix",
        "capability": grant.capability,
        "base_commit": grant.base_commit,
    }
    return TaskRequest.model_validate(values | {"task": name} | more)


async def raw(bench: Any, method: str, path: str, **more: Any) -> httpx.Response:
    transport = httpx.AsyncHTTPTransport(uds=str(bench.folder / "d.sock"))
    async with httpx.AsyncClient(transport=transport, base_url="http://swarm", timeout=LONG) as http:
        json = {"content-type": "application/json"} if "content" in more else {}
        return await http.request(method, path, headers=json | more.pop("headers", {}), **more)


async def test_a_task_is_submitted_followed_and_shown(bench: Any, name: str) -> None:
    async with served(bench) as (client, _):
        assert await client.health() == HEALTH
        view = await client.submit(wanted(bench, name))
        assert view.state in {TaskState.QUEUED, TaskState.RUNNING}
        steps = [step async for step in client.follow(name)]
        assert steps[-1].data["to"] == "delivered"
        assert tuple(steps) == await client.steps(name)
        assert await client.steps(name, after=steps[-2].seq) == (steps[-1],)
        assert (await client.task(name[:-1])).state is TaskState.DELIVERED
        assert [one.task.id for one in await client.tasks()] == [name]
        assert await client.tasks(TaskState.QUEUED) == ()
        assert "+    return max(low, min(x, high))" in await client.diff(name)
        assert (await client.status()).counts == {TaskState.DELIVERED: 1}


async def test_the_same_request_again_answers_200_and_not_201(bench: Any, name: str) -> None:
    async with served(bench):
        body = wanted(bench, name, idempotency_key=name).model_dump_json()
        first = await raw(bench, "POST", "/v1/tasks", content=body)
        second = await raw(bench, "POST", "/v1/tasks", content=body)
        assert (first.status_code, second.status_code) == (201, 200)
        assert first.json()["task"] == second.json()["task"]
        await bench.until(name)
    assert bench.broker.pulls(name) == 1


async def test_a_stream_is_taken_up_after_the_last_event_seen(bench: Any, fixing: Any, name: str) -> None:
    gate = asyncio.Event()
    bench.strategies["auto"] = fixing(gate=gate)
    async with served(bench) as (client, _):
        await client.submit(wanted(bench, name))
        await bench.until_step(name, "salvage")
        seen = []
        async with aclosing(client.follow(name)) as steps:
            async for step in steps:
                seen.append(step.seq)
                if step.kind == "salvage":
                    break
        gate.set()
        rest = [step.seq async for step in client.follow(name, after=seen[-1])]
    assert seen + rest == list(range(1, seen[-1] + len(rest) + 1))
    assert rest


async def test_a_follower_outlives_a_restart_of_the_daemon(bench: Any, fixing: Any, name: str) -> None:
    gate = asyncio.Event()
    strategy = bench.strategies["auto"] = fixing(gate=gate)
    seen: list[int] = []

    async def follow() -> None:
        async with DaemonClient(bench.folder / "d.sock") as client:
            async for step in client.follow(name):  # one by one: what was seen counts, not what came in the end
                seen.append(step.seq)  # noqa: PERF401

    async with served(bench) as (client, _):
        await client.submit(wanted(bench, name))
        following = asyncio.create_task(follow())
        await bench.until_step(name, "salvage")
        await asyncio.sleep(0.2)
    strategy.gate = None
    async with served(bench):
        await asyncio.wait_for(following, 20)
    assert seen == list(range(1, len(seen) + 1))


async def test_a_quiet_stream_beats(bench: Any, fixing: Any, name: str) -> None:
    bench.strategies["auto"] = fixing(gate=asyncio.Event())
    before, streams.HEARTBEAT = streams.HEARTBEAT, 0.1
    try:
        async with served(bench) as (client, _):
            await client.submit(wanted(bench, name))
            await bench.until_step(name, "salvage")
            transport = httpx.AsyncHTTPTransport(uds=str(bench.folder / "d.sock"))
            async with (
                asyncio.timeout(10),
                httpx.AsyncClient(transport=transport, base_url="http://swarm", timeout=LONG) as http,
                http.stream("GET", f"/v1/tasks/{name}/events") as stream,
                aclosing(stream.aiter_lines()) as lines,
            ):
                while (await anext(lines)) != ": still here":
                    pass
    finally:
        streams.HEARTBEAT = before


async def test_an_open_stream_does_not_hold_up_the_end(bench: Any, fixing: Any, name: str) -> None:
    bench.strategies["auto"] = fixing(gate=asyncio.Event())
    async with served(bench) as (client, desk):
        await client.submit(wanted(bench, name))
        stream = client.follow(name)
        await anext(stream)
        started = time.monotonic()
        desk.closing.set()
    assert time.monotonic() - started < 6
    await stream.aclose()


async def test_cancel_and_retry_over_the_wire(bench: Any, fixing: Any, name: str) -> None:
    bench.strategies["auto"] = fixing(gate=asyncio.Event())
    async with served(bench) as (client, _):
        await client.submit(wanted(bench, name))
        await bench.until_step(name, "salvage")
        with pytest.raises(TaskError, match="cannot") as told:
            await client.retry(name)
        assert told.value.mend
        assert (await client.cancel(name)).state is TaskState.CANCELLED
        assert "+    return max(low, min(x, high))" in await client.diff(name)
        bench.strategies["auto"] = fixing()
        assert (await client.retry(name)).state in {TaskState.QUEUED, TaskState.RUNNING}
        assert (await bench.until(name)).state is TaskState.DELIVERED


WRONG = [
    ({"repository": "nope"}, "no repository"),
    ({"strategy": "nope"}, "no strategy"),
    ({"tier": "nope"}, "no endpoint"),
    ({"capability": ""}, "no capability"),
]
REFUSED = [
    ("POST", "/v1/tasks", b"{not json", 422),
    ("POST", "/v1/tasks", b'{"repository": "demo"}', 422),
    ("POST", "/v1/tasks", b'{"repository":"demo","instructions":"x","speed":9}', 422),
    ("POST", "/v1/tasks", b'{"repository":"demo","instructions":"' + b"x" * 1_100_000 + b'"}', 413),
    ("GET", "/v1/tasks?state=nope", b"", 422),
    ("GET", "/v1/tasks?limit=many", b"", 422),
    ("GET", "/v1/tasks/none", b"", 404),
    ("GET", "/v1/tasks/none/events", b"", 404),
    ("GET", "/v1/tasks/none/diff", b"", 404),
    ("POST", "/v1/tasks/none/cancel", b"", 404),
    ("POST", "/v1/tasks/none/retry", b"", 404),
    ("GET", "/v1/nothing", b"", 404),
    ("DELETE", "/v1/tasks", b"", 405),
]


async def test_a_request_that_can_only_fail_is_told_what_why_and_mend(bench: Any, name: str) -> None:
    async with served(bench) as (client, _):
        good = wanted(bench, name)
        for wrong, words in WRONG:
            with pytest.raises(TaskError, match=words) as told:
                await client.submit(good.model_copy(update=wrong))
            assert told.value.mend
        assert await client.tasks() == ()


async def test_every_refusal_has_what_why_and_mend(bench: Any) -> None:
    async with served(bench):
        for method, path, body, status in REFUSED:
            answer = await raw(bench, method, path, content=body)
            assert answer.status_code == status, (path, answer.text)
            assert set(answer.json()) == {"what", "why", "mend"}
            assert all(answer.json().values()), (path, answer.text)
            assert "Traceback" not in answer.text


async def test_a_missing_daemon_is_told_with_its_socket_and_a_mend(tmp_path: Path) -> None:
    async with DaemonClient(tmp_path / "none.sock") as client:
        for attempt in (client.health(), client.tasks(), anext(client.follow("t"))):
            with pytest.raises(DaemonError, match=r"none\.sock") as told:
                await attempt
            assert "swarm daemon" in told.value.mend


async def test_a_daemon_that_breaks_is_no_fault_of_the_task(bench: Any, name: str) -> None:
    async with served(bench) as (client, _):
        await bench.store._do(lambda connection: connection.exec_driver_sql("DROP TABLE attempts"))
        with pytest.raises(DaemonError, match="database failed"):
            await client.task("x") if await client.submit(wanted(bench, name)) else None
