"""Listening and stopping: limits against hostile clients, readiness, draining, the two doors."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import stat
from contextlib import AsyncExitStack
from pathlib import Path

import httpx
import pytest

from pool.config import PoolConfig
from pool.errors import PoolConfigError
from pool.gateway.keys import hashed
from pool.gateway.service import Service
from pool.gateway.serving import Place, listening
from pool.router import Pool
from pool.testing import Slow, error, paced, pretend_vllm
from tests.pool.gateway.conftest import HELLO, House, Open

pytestmark = pytest.mark.slow


ANNA = {"name": "anna", "sha256": hashed("sk-anna")}


async def said(port: int, *parts: bytes, pause: float = 0.0) -> bytes:
    """All that the gateway answers to these bytes until it closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for part in parts:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(pause)
        async with asyncio.timeout(5):
            return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.transport.abort()


async def listed(house: House) -> set[str]:
    """Names in the list of models."""
    return {card["id"] for card in (await house.client.get("/v1/models")).json()["data"]}


async def test_models_are_those_of_healthy_endpoints(gateway: Open) -> None:
    """vllm-project/router#135."""
    async with pretend_vllm(model="m-a") as one, pretend_vllm(model="m-b") as two, gateway(one, two) as house:
        await two.stop()
        while "m-b" in await listed(house):  # noqa: ASYNC110  seen from outside
            await asyncio.sleep(0.02)
        assert await listed(house) == {"small", "m-a", "auto"}
        assert (await house.client.get("/v1/models/m-a")).json()["max_model_len"] == 8192
        assert (await house.client.get("/v1/models/m-b")).status_code == 404


async def test_health_is_about_somebody_being_there(gateway: Open) -> None:
    async with pretend_vllm() as server, gateway(server) as house:
        assert (await house.client.get("/health")).status_code == 200
        await server.stop()
        while (await house.client.get("/health")).status_code != 503:  # noqa: ASYNC110  seen from outside
            await asyncio.sleep(0.02)


async def test_draining_is_not_ready_first_and_finishes_what_runs(gateway: Open) -> None:
    """sgl-project/sglang#39016: a server closed before its readiness went false."""
    async with pretend_vllm(lambda _: Slow(0.6, "done")) as server, gateway(server, drain_notice=0.4) as house:
        running = asyncio.create_task(house.chat())
        await asyncio.sleep(0.1)
        leaving = asyncio.create_task(house.here.drain())
        await asyncio.sleep(0.1)
        health = await house.client.get("/health")
        assert (health.status_code, health.json()["status"]) == (503, "draining")
        late = await house.chat()  # still answered while balancers find out
        assert late.status_code == 200
        assert (await running).json()["choices"][0]["message"]["content"] == "done"
        await leaving
        with pytest.raises(httpx.ConnectError):
            await house.client.get("/health")


async def test_a_second_signal_cuts_the_draining_short(gateway: Open) -> None:
    async with pretend_vllm(lambda _: paced("word " * 500, 0.05)) as server, gateway(server, drain_timeout=30) as house:
        running = asyncio.create_task(house.chat({"stream": True}))
        await asyncio.sleep(0.2)
        began = asyncio.get_running_loop().time()
        leaving = asyncio.create_task(house.here.drain())
        await asyncio.sleep(0.1)
        house.here.cut()
        await leaving
        assert asyncio.get_running_loop().time() - began < 2
        told = (await running).text
        assert told.count("word") > 1
        assert "the gateway was stopped" in told.split("data: ")[-2]
        assert told.endswith("data: [DONE]\n\n")


@pytest.mark.parametrize("model", ["small", "auto", "vote"])
async def test_what_outlasts_the_draining_is_told_so(
    gateway: Open, model: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A stream ends with an error event, a whole answer is a 503; the words may not break the other's off."""
    pool = {"virtual": {"vote": {"kind": "vote", "tiers": ["small"]}}}
    slow = pretend_vllm(lambda _: paced("word " * 500, 0.05))
    async with slow as server, gateway(server, drain_timeout=0.2, pool=pool) as house:
        asked = [asyncio.create_task(house.chat({"model": model, "stream": stream})) for stream in (True, False)]
        await asyncio.sleep(0.4)
        await house.here.drain()
        streamed, whole = [await one for one in asked]
        assert "the gateway was stopped" in streamed.text
        assert (whole.status_code, whole.json()["error"]["code"]) == (503, "gateway_stopped")
        assert whole.headers["retry-after"] == "1"  # another gateway may serve it
        assert "requests that were cut off: 2" in caplog.text


async def test_a_body_that_is_awaited_is_cut_short_with_a_503(gateway: Open) -> None:
    async with gateway(drain_timeout=0.1, body_timeout=30) as house:
        head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000\r\n\r\n{"
        waiting = asyncio.create_task(said(house.here.port, head))
        await asyncio.sleep(0.2)
        await house.here.drain()
        assert b" 503 " in (await waiting).splitlines()[0]


async def test_nothing_is_said_of_connections_that_rest(gateway: Open, caplog: pytest.LogCaptureFixture) -> None:
    async with gateway(drain_timeout=0.2) as house:
        await house.client.get("/health")
        house.here.cut()
        await house.here.drain()
    assert "cut off" not in caplog.text


async def test_the_socket_of_the_gateway_that_took_over_stays(gateway: Open, tmp_path: Path) -> None:
    path = tmp_path / "pool.sock"
    slow = pretend_vllm(lambda _: paced("word " * 500, 0.05))
    async with slow as server, AsyncExitStack() as old:
        first = await old.enter_async_context(gateway(server, socket=str(path), drain_timeout=0.6))
        running = asyncio.create_task(first.chat({"stream": True}))
        await asyncio.sleep(0.2)
        leaving = asyncio.create_task(first.here.drain())
        await asyncio.sleep(0.1)
        async with gateway(server, socket=str(path)), local(path) as client:
            await leaving
            await running
            await old.aclose()
            assert (await client.get("/admin/status")).status_code == 200
        assert not path.exists()


def test_a_socket_that_somebody_else_bound_meanwhile_is_not_removed(tmp_path: Path) -> None:
    """Also where the file system gives it the same inode."""
    path = tmp_path / "pool.sock"
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(path))
        place = Place.taken(path)
    path.unlink()
    with socket.socket(socket.AF_UNIX) as two:
        two.bind(str(path))
        place.leave()
        assert path.exists()
        Place.taken(path).leave()
        assert not path.exists()
        place.leave()  # nothing there: no error


async def test_a_head_that_trickles_in_is_cut_off(gateway: Open) -> None:
    async with gateway(header_timeout=0.3) as house:
        assert await said(house.here.port, b"POST /v1/chat/comp") == b""
        assert await said(house.here.port, b"GET /health HTTP/1.1\r\n", *[b"x: y\r\n"] * 8, pause=0.08) == b""
        assert await said(house.here.port) == b""


async def test_the_next_head_on_a_kept_connection_may_not_trickle_either(gateway: Open) -> None:
    async with gateway(header_timeout=0.3, keep_alive=30) as house:
        whole = b"GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n"
        began = asyncio.get_running_loop().time()
        answer = await said(house.here.port, whole, b"GET /hea", pause=0.1)
        assert answer.startswith(b"HTTP/1.1 200")
        assert asyncio.get_running_loop().time() - began < 2


async def test_a_body_that_trickles_in_gets_408(gateway: Open) -> None:
    async with gateway(body_timeout=0.3) as house:
        head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000\r\n\r\n{"
        answer = await said(house.here.port, head)
        assert b" 408 " in answer.splitlines()[0]


@pytest.mark.parametrize("chunks", [[b"x-long: " + b"a" * 5000 + b"\r\n"], [b"x-%d: y\r\n" % n for n in range(600)]])
async def test_a_head_that_is_too_long_gets_431(gateway: Open, chunks: list[bytes]) -> None:
    async with gateway(max_header=4096) as house:
        head = b"GET /health HTTP/1.1\r\nhost: localhost\r\n"
        assert b" 431 " in (await said(house.here.port, head + b"".join(chunks) + b"\r\n")).splitlines()[0]
        late = await said(house.here.port, head, *chunks, b"\r\n")  # may be lost: the rest of the head is not read
        assert late == b"" or b" 431 " in late.splitlines()[0]


async def test_a_head_without_an_end_cannot_fill_the_memory(gateway: Open) -> None:
    async with gateway(max_header=4096, header_timeout=5) as house:
        answer = await said(house.here.port, b"GET /health HTTP/1.1\r\nx-endless: ", *[b"a" * 1000] * 20, pause=0.005)
        assert answer == b"" or b" 431 " in answer.splitlines()[0]


@pytest.mark.parametrize("how", ["content-length: 5000\r\n", "transfer-encoding: chunked\r\n"])
async def test_a_body_that_is_too_long_gets_413(gateway: Open, how: str) -> None:
    async with gateway(max_body=1024) as house:
        head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\n{how}\r\n".encode()
        chunk = b"%x\r\n%s\r\n" % (2000, b"a" * 2000)
        answer = await said(house.here.port, head + (chunk if "chunked" in how else b"a" * 5000))
        assert b" 413 " in answer.splitlines()[0]
        assert json.loads(answer.split(b"\r\n\r\n")[1])["error"]["code"] == "body_too_large"


@pytest.mark.parametrize(
    "junk",
    [
        b"\x16\x03\x01\x02\x00\x01\x00",
        b"GET\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: -1\r\n\r\n",
    ],
)
async def test_what_is_not_http_gets_400_and_harms_nobody(gateway: Open, junk: bytes) -> None:
    async with gateway() as house:
        answer = await said(house.here.port, junk)
        assert answer == b"" or b" 400 " in answer.splitlines()[0]
        assert (await house.client.get("/metrics")).status_code == 200


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 404),
        ("GET", "/v1/chat/completions", 405),
        ("DELETE", "/v1/models", 405),
        ("GET", "/admin/status", 404),
        ("GET", "/%2e%2e/admin/status", 404),
        ("POST", "/admin/endpoints", 404),
    ],
)
async def test_other_routes_are_refused_in_openais_shape(gateway: Open, method: str, path: str, status: int) -> None:
    async with gateway() as house:
        answer = await house.client.request(method, path)
        assert answer.status_code == status
        assert answer.json()["error"]["message"]


async def test_keys_are_asked_for_where_there_are_some(gateway: Open) -> None:
    async with pretend_vllm() as server, gateway(server, keys=[ANNA]) as house:
        for headers in ({}, {"authorization": "Bearer wrong"}):
            answer = await house.chat(**headers)
            assert answer.status_code == 401
            assert answer.json()["error"]["type"] == "authentication_error"
            assert (await house.client.get("/v1/models", headers=headers)).status_code == 401
        assert not server.requests
        assert (await house.chat(authorization="Bearer sk-anna")).status_code == 200


async def test_a_spent_budget_is_a_429_that_says_when(gateway: Open) -> None:
    async with pretend_vllm() as server, gateway(server, keys=[ANNA | {"tokens_per_minute": 300}]) as house:
        auth = {"authorization": "Bearer sk-anna"}
        statuses = [await house.chat({"max_tokens": 250}, **auth) for _ in range(3)]
        assert statuses[0].status_code == 200
        spent = await house.chat({"max_tokens": 100_000}, **auth)
        assert spent.status_code == 429
        assert int(spent.headers["retry-after"]) >= 1
        assert spent.json()["error"]["type"] == "rate_limit_error"


async def test_requests_at_a_time_are_bounded_by_key(gateway: Open) -> None:
    async with (
        pretend_vllm(lambda _: Slow(0.3, "ok")) as server,
        gateway(server, keys=[ANNA | {"concurrent": 2}]) as house,
    ):
        auth = {"authorization": "Bearer sk-anna"}
        answers = await asyncio.gather(*(house.chat(**auth) for _ in range(5)))
        assert sorted(answer.status_code for answer in answers) == [200, 200, 429, 429, 429]
        assert (await house.chat(**auth)).status_code == 200


async def test_no_key_is_in_metrics_status_or_errors(gateway: Open, tmp_path: Path) -> None:
    path = tmp_path / "admin.sock"
    auth = {"authorization": "Bearer sk-anna", "x-request-deadline": "1"}
    joined = {"name": "secret", "url": "http://127.0.0.1:9", "api_key": "sk-upstream", "tier": "other"}
    async with (
        pretend_vllm() as server,
        gateway(server, keys=[ANNA], socket=str(path)) as house,
        local(path) as admin,
    ):
        assert (await admin.post("/admin/endpoints", json=joined)).status_code == 200
        await house.chat(**auth)
        shown = [
            (await house.client.get("/metrics")).text,
            (await admin.get("/admin/status")).text,
            (await house.chat({"model": "other"}, **auth)).text,
        ]
        assert not [text for text in shown if "sk-" in text or ANNA["sha256"] in text]


def local(path: Path) -> httpx.AsyncClient:
    """A client of the unix socket."""
    return httpx.AsyncClient(base_url="http://gateway", transport=httpx.AsyncHTTPTransport(uds=str(path)), timeout=10)


async def test_the_unix_socket_is_its_owners_and_serves_both_doors(gateway: Open, tmp_path: Path) -> None:
    path = tmp_path / "gateway.sock"
    async with pretend_vllm() as server, gateway(server, socket=str(path)) as house:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        async with local(path) as client:
            answer = await client.post("/v1/chat/completions", json=HELLO)
            assert answer.json()["choices"][0]["message"]["content"] == "ok"
            explained = (await client.get(f"/admin/explain/{answer.headers['x-request-id']}")).json()
            assert explained["decision"]["endpoint"] == "a"
            assert (await client.get("/admin/explain/nothing")).status_code == 404
            refused = await client.post("/v1/chat/completions", json=HELLO | {"model": "nobody"})
            told = (await client.get(f"/admin/explain/{refused.headers['x-request-id']}")).json()["error"]["message"]
            assert "it ended with 404 there is no model 'nobody'" in told
            status = (await client.get("/admin/status")).json()
            assert [one["name"] for one in status["endpoints"]] == ["a"]
            assert status["ready"] is True
        assert house.here.connections < 5
    assert not path.exists()


async def test_endpoints_come_and_go_while_it_runs(gateway: Open, tmp_path: Path) -> None:
    path = tmp_path / "gateway.sock"
    async with (
        pretend_vllm() as one,
        pretend_vllm() as two,
        gateway(one, socket=str(path)) as house,
        local(path) as admin,
    ):
        added = {"name": "late", "url": two.url, "tier": "new"}
        assert (await admin.post("/admin/endpoints", json=added)).json() == {"endpoint": "late", "state": "joining"}
        assert (await admin.post("/admin/endpoints", json=added)).status_code == 409
        assert (await admin.post("/admin/endpoints", json={"name": "X!", "url": "ftp://x"})).status_code == 400
        assert (await admin.post("/admin/endpoints", content=b"{")).status_code == 400
        assert (await house.chat({"model": "new"})).headers["x-swarm-endpoint"] == "late"
        drained = await admin.post("/admin/endpoints/late/drain", params={"within": "2"})
        assert drained.json() == {"endpoint": "late", "state": "drained"}
        assert (await admin.post("/admin/endpoints/late/admit")).status_code == 200
        assert (await admin.delete("/admin/endpoints/late")).json()["state"] == "removed"
        assert (await admin.delete("/admin/endpoints/late")).status_code == 404
        assert (await admin.put("/admin/endpoints")).status_code == 404
        assert (await house.chat({"model": "new"})).status_code == 404


async def test_an_address_that_others_reach_is_refused_without_keys() -> None:
    config = PoolConfig.model_validate({"gateway": {"host": "0.0.0.0", "port": 0}})  # noqa: S104  refused
    async with Pool(config) as pool:
        with pytest.raises(PoolConfigError, match="keys"):
            async with listening(Service.of(pool, os.environ)):
                pass


async def test_a_port_or_socket_that_is_taken_is_told_with_the_mend(gateway: Open, tmp_path: Path) -> None:
    path = tmp_path / "s.sock"
    async with gateway(socket=str(path)) as house:
        for taken in ({"port": house.here.port}, {"port": 0, "socket": str(path)}):
            async with Pool(PoolConfig.model_validate({"gateway": taken})) as pool:
                with pytest.raises(
                    PoolConfigError, match=r": Address already in use; (end what holds it or )?take another"
                ):
                    async with listening(Service.of(pool, os.environ)):
                        pass
        assert (await house.client.get("/metrics")).status_code == 200
        assert path.exists()


async def test_a_socket_that_a_dead_gateway_left_is_taken_over(gateway: Open, tmp_path: Path) -> None:
    path = tmp_path / "s.sock"
    async with gateway(socket=str(path)):
        path.rename(tmp_path / "dead.sock")
    (tmp_path / "dead.sock").rename(path)
    async with gateway(socket=str(path)), local(path) as client:
        assert (await client.get("/metrics")).status_code == 200


async def test_what_failed_and_what_a_virtual_model_made_can_be_explained(gateway: Open, tmp_path: Path) -> None:
    path, vote = tmp_path / "gateway.sock", {"virtual": {"v": {"kind": "vote", "tiers": ["small"]}}, "retries": 0}
    async with (
        pretend_vllm(lambda r: error(500, "out of memory") if "fail" in str(r.body["messages"]) else "yes") as server,
        gateway(server, socket=str(path), pool=vote) as house,
        local(path) as client,
    ):

        async def why(**more: object) -> str:
            answer = await house.chat(dict(more))
            told = (await client.get(f"/admin/explain/{answer.headers['x-request-id']}")).json()
            return str(told["decision"]["reason"] if "decision" in told else told["error"]["message"])

        assert "ended" not in await why()
        assert "it ended with 200, made for v and told by a: " in await why(model="v")
        failed = await why(messages=[{"role": "user", "content": "fail"}])
        assert "; it ended with 502 " in failed
        assert "out of memory" in failed


async def test_every_answer_carries_an_id_of_its_own(gateway: Open) -> None:
    async with pretend_vllm() as server, gateway(server, keys=[ANNA]) as house:
        auth = {"authorization": "Bearer sk-anna"}
        answers = [
            await house.client.post("/v1/chat/completions", json=HELLO),
            await house.client.post("/v1/chat/completions", content=b"{", headers=auth),
            await house.client.post("/tokenize", json={"model": "small", "prompt": "x"}, headers=auth),
            await house.client.post("/v1/messages/count_tokens", json={}, headers=auth),
            await house.client.get("/v1/nothing", headers=auth),
        ]
        assert [answer.status_code for answer in answers] == [401, 400, 200, 400, 404]
        assert len({answer.headers["x-request-id"] for answer in answers}) == len(answers)
