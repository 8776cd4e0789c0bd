"""The door over TCP, attacked: without a token, with a wrong one, by a web page, slowly, and beyond every bound."""

from __future__ import annotations

import asyncio
import dataclasses
import getpass
import json
import logging
import math
import resource
import ssl
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from swarm import serving, tokens
from swarm.answers import TaskFilter
from swarm.api import guard
from swarm.api.guard import needed
from swarm.client import DaemonClient
from swarm.config_door import TcpConfig, TokenConfig, tcp_misfits
from swarm.errors import ConfigError, DaemonError, TaskError, TaskNotFoundError
from swarm.serving import listening_tcp
from swarm.store.rows import Plan
from swarm.types import TaskRequest
from tests.swarm.api.conftest import LONG, PLAIN, House, plan, request

pytestmark = pytest.mark.slow


def bearer(secret: str) -> dict[str, str]:
    return {"authorization": f"Bearer {secret}"}


async def ask(where: str, method: str = "GET", path: str = "/v1/health", **more: Any) -> httpx.Response:
    async with httpx.AsyncClient(base_url=f"http://{where}", trust_env=False, timeout=LONG) as http:
        return await http.request(method, path, **more)


def told(answer: httpx.Response, status: int) -> dict[str, str]:
    """The Failure of a refusal, which has all three parts and no traceback."""
    assert answer.status_code == status, answer.text
    body = answer.json()
    assert set(body) == {"what", "why", "mend"}
    assert all(body.values()), body
    assert "Traceback" not in answer.text
    return dict(body)


async def test_a_client_over_tls_does_all_that_one_on_the_socket_does(house: House, authority: Any) -> None:
    secret = house.token("ci")
    async with (
        house.open(authority.tcp) as where,
        DaemonClient(f"https://{where}", token=secret, ca=authority.ca) as client,
    ):
        made = await client.submit(request(task="one", idempotency_key="k"))
        assert made.user == "ci"
        assert (await client.task("one")).task.id == "one"
        assert (await client.page(TaskFilter(user="ci"))).items[0].task.id == "one"
        assert (await client.cancel("one")).state == "cancelled"


async def test_a_certificate_of_an_unknown_authority_is_not_trusted(house: House, authority: Any) -> None:
    async with house.open(authority.tcp) as where, DaemonClient(f"https://{where}", token="t") as client:
        with pytest.raises(DaemonError, match="not to be trusted") as error:
            await client.health()
        assert "ca" in error.value.mend


async def test_old_tls_is_refused(house: House, authority: Any) -> None:
    async with house.open(authority.tcp) as where:
        context = ssl.create_default_context(cafile=authority.ca)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        host, port = where.split(":")
        reader, writer = await asyncio.open_connection(host, int(port), ssl=context)
        assert writer.get_extra_info("ssl_object").version() in {"TLSv1.2", "TLSv1.3"}
        writer.close()
        del reader


async def test_nobody_gets_in_without_a_known_token(house: House) -> None:
    house.token("ci")
    async with house.open(PLAIN) as where:
        for headers in (
            {},
            {"authorization": "Bearer"},
            bearer("wrong"),
            bearer("x" * 5000),
            {"authorization": "Basic eDp5"},
        ):
            answer = await ask(where, headers=headers)
            told(answer, 401)
            assert answer.headers["www-authenticate"] == "Bearer"
        for path in ("/v1/openapi.json", "/v1/events", "/v1/tasks", "/nothing"):
            told(await ask(where, path=path), 401)


async def test_a_revoked_token_is_out_at_its_next_request(house: House) -> None:
    secret = house.token("ci")
    async with house.open(PLAIN) as where:
        assert (await ask(where, headers=bearer(secret))).status_code == 200
        tokens.revoke(house.folder / "tokens.json", "ci")
        told(await ask(where, headers=bearer(secret)), 401)
        other = house.token("cd")
        assert (await ask(where, headers=bearer(other))).status_code == 200


async def test_a_damaged_file_of_tokens_lets_nobody_in(house: House) -> None:
    secret = house.token("ci")
    (house.folder / "tokens.json").write_text("[{]")
    async with house.open(PLAIN) as where:
        told(await ask(where, headers=bearer(secret)), 401)


def test_the_file_holds_hashes_alone_and_is_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    secret, kept = tokens.made("ci", "viewer", 5)
    tokens.add(path, kept)
    assert secret not in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600
    assert tokens.read(path) == (kept,)
    with pytest.raises(ConfigError, match="ci already"):
        tokens.add(path, kept)
    with pytest.raises(TaskNotFoundError, match="no token cd"):
        tokens.revoke(path, "cd")
    with pytest.raises(ConfigError, match="that name"):
        tokens.made("a\nb", "viewer", 5)


async def test_a_viewer_looks_and_a_submitter_moves_its_own(house: House) -> None:
    viewer, submitter = house.token("eye", "viewer"), house.token("hand", "submitter")
    await house.task("foreign", user="ann")
    async with house.open(PLAIN) as where:
        assert (await ask(where, path="/v1/tasks", headers=bearer(viewer))).status_code == 200
        body = request(task="mine").model_dump_json()
        more: dict[str, Any] = {"content": body, "method": "POST", "path": "/v1/tasks"}
        as_json = {"content-type": "application/json"}
        assert "viewer" in told(await ask(where, headers=bearer(viewer) | as_json, **more), 403)["why"]
        assert (await ask(where, headers=bearer(submitter) | as_json, **more)).status_code == 201
        for verb in ("cancel", "pause", "resume", "retry"):
            path = f"/v1/tasks/foreign/{verb}"
            assert "ann" in told(await ask(where, "POST", path, headers=bearer(submitter)), 403)["why"]
        assert (await ask(where, "POST", "/v1/tasks/mine/cancel", headers=bearer(submitter))).json()["user"] == "hand"
        told(await ask(where, "POST", "/v1/pool/endpoints", headers=bearer(submitter) | as_json, content="{}"), 403)


def test_what_is_not_named_takes_an_operator() -> None:
    assert needed("GET", "/v1/anything") == "viewer"
    assert needed("POST", "/v1/tasks/x/cancel") == "submitter"
    for path in ("/v1/schedules", "/v1/tasksx", "/v1/pool/endpoints", "/v2/tasks"):
        assert needed("POST", path) == "operator"
    assert needed("DELETE", "/v1/pool/endpoints/a") == "operator"


async def test_too_many_requests_of_one_token_wait_and_another_token_does_not(house: House) -> None:
    slow, other = house.token("slow", per_minute=2), house.token("other")
    async with house.open(PLAIN) as where:
        answers = [await ask(where, headers=bearer(slow)) for _ in range(3)]
        assert [answer.status_code for answer in answers] == [200, 200, 429]
        told(answers[2], 429)
        assert 1 <= int(answers[2].headers["retry-after"]) <= 31
        assert (await ask(where, headers=bearer(other))).status_code == 200


async def test_no_web_page_drives_it_though_it_has_a_token(house: House) -> None:
    """CVE-2025-49596 (MCP Inspector) and its kin: a page makes the browser of a developer call a local server."""
    secret = house.token("ci")
    async with house.open(PLAIN) as where:
        for header in ({"origin": "https://evil.example"}, {"origin": "null"}, {"sec-fetch-site": "cross-site"}):
            told(await ask(where, headers=bearer(secret) | header), 403)
            told(await house.raw("GET", "/v1/health", headers=header), 403)
        answer = await ask(where, "OPTIONS", headers={"origin": "https://evil.example"})
        assert not [name for name in answer.headers if name.startswith("access-control")]


async def test_a_name_that_is_bound_to_it_by_a_stranger_is_none_of_its_own(house: House) -> None:
    """DNS rebinding: the page's own name leads to 127.0.0.1 after it was loaded."""
    secret = house.token("ci")
    async with house.open(PLAIN) as where:
        told(await ask(where, headers=bearer(secret) | {"host": "evil.example"}), 421)
        for host in ("swarm.example:7420", "localhost:1", "[::1]:7420", where):
            assert (await ask(where, headers=bearer(secret) | {"host": host})).status_code == 200


async def test_a_body_beyond_the_bound_is_cut_off_whether_it_says_so_or_not(house: House) -> None:
    secret = house.token("ci")

    async def endless() -> Any:
        while True:
            yield b"x" * 65_536

    async with house.open(PLAIN) as where:
        large = b"x" * (guard.BODY_LIMIT + 1)
        headers = bearer(secret) | {"content-type": "application/json"}
        told(await ask(where, "POST", "/v1/tasks", headers=headers, content=large), 413)
        with suppress(httpx.TransportError):  # who never ends may be cut off before the answer is read
            told(await ask(where, "POST", "/v1/tasks", headers=headers, content=endless()), 413)
        assert (await ask(where, headers=bearer(secret))).status_code == 200


async def test_a_slow_head_a_slow_body_and_a_silent_connection_are_ended(house: House) -> None:
    """Slowloris (2009): a byte now and then keeps a connection, and thousands of them the server."""
    secret = house.token("ci")
    before = serving.HEAD_SECONDS, guard.BODY_SECONDS
    serving.HEAD_SECONDS = guard.BODY_SECONDS = 0.3
    try:
        async with house.open(PLAIN) as where:
            head = f"POST /v1/tasks HTTP/1.1\r\nhost: {where}\r\nauthorization: Bearer {secret}\r\n"
            kept = f"GET /v1/health HTTP/1.1\r\nhost: {where}\r\nauthorization: Bearer {secret}\r\n\r\n"
            for begin in ("", "GET /v1/he", head, head + "content-length: 50\r\n\r\n{", kept + "GET /v1/he"):
                assert await dripped(where, begin), begin
    finally:
        serving.HEAD_SECONDS, guard.BODY_SECONDS = before


async def dripped(where: str, begin: str) -> bool:
    """Whether the server hangs up on who sends a beginning and then a byte now and then."""
    host, port = where.split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(begin.encode())
    started = time.monotonic()
    try:
        while time.monotonic() - started < LONG:
            try:
                if await asyncio.wait_for(reader.read(65_536), 0.05) == b"":
                    return True
            except TimeoutError:
                writer.write(b"a" if begin else b"")
    except ConnectionError:
        return True
    finally:
        writer.transport.abort()
    return False


async def test_what_is_no_http_is_refused_like_all_else(house: House) -> None:
    async with house.open(PLAIN) as where:
        host, port = where.split(":")
        for words in (
            b"nonsense\r\n\r\n",
            b"GET / HTTP/1.1\r\n" + b"a: " + b"x" * 70_000,
            b"\x16\x03\x01\x02\x00\r\n\r\n",
        ):
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(words)
            answer = await asyncio.wait_for(reader.read(), LONG)
            writer.close()
            assert answer.startswith(b"HTTP/1.1 400")
            assert set(json.loads(answer.partition(b"\r\n\r\n")[2])) == {"what", "why", "mend"}


async def test_one_listener_holds_only_so_many_connections(house: House) -> None:
    before, serving.CONNECTIONS = serving.CONNECTIONS, 3
    try:
        async with house.open(PLAIN) as where:
            host, port = where.split(":")
            pairs = [await asyncio.open_connection(host, int(port)) for _ in range(5)]
            await asyncio.sleep(0.1)
            ended = 0
            for reader, writer in pairs:
                try:
                    ended += await asyncio.wait_for(reader.read(1), 0.05) == b""
                except ConnectionError:
                    ended += 1
                except TimeoutError:
                    pass
                writer.close()
            assert ended == 2
    finally:
        serving.CONNECTIONS = before


async def test_a_user_of_the_socket_is_named_by_the_kernel_and_not_by_a_header(house: House) -> None:
    async with house.client():
        headers = {"content-type": "application/json", "x-forwarded-user": "mallory"} | bearer("whatever")
        answer = await house.raw("POST", "/v1/tasks", content=request(task="a").model_dump_json(), headers=headers)
        assert answer.json()["user"] == getpass.getuser()


@pytest.mark.parametrize(
    ("tcp", "words"),
    [
        ({"address": "0.0.0.0:7420"}, "certificate"),
        ({"address": "0.0.0.0:7420", "plain": True}, "others reach"),
        ({"address": "127.0.0.1:7420"}, "certificate"),
        ({"address": "nowhere"}, "HOST:PORT"),
        ({"address": "127.0.0.1:1", "plain": True, "hosts": ["https://a:1"]}, "without a scheme"),
        ({"address": "127.0.0.1:99999", "plain": True}, "HOST:PORT"),
        ({"address": "127.0.0.1:1", "certificate": "c"}, "belong together"),
        ({"address": "127.0.0.1:1", "certificate": "c", "key": "k", "plain": True}, "leave plain out"),
    ],
)
def test_settings_that_would_send_tokens_in_the_open_are_refused(tcp: dict[str, Any], words: str) -> None:
    (problem,) = tcp_misfits(TcpConfig.model_validate(tcp), ())
    assert words in problem.message


def test_two_tokens_of_one_name_are_refused() -> None:
    token = TokenConfig(name="a", sha256="0" * 64)
    assert len(list(tcp_misfits(None, (token, token)))) == 1
    assert list(tcp_misfits(PLAIN, (token,))) == []


def test_a_certificate_that_cannot_be_used_is_told_with_its_path(tmp_path: Path, authority: Any) -> None:
    wrong = tmp_path / "cert.pem"
    wrong.write_text("nonsense")
    for config in (
        authority.tcp.model_copy(update={"certificate": wrong}),
        authority.tcp.model_copy(update={"key": tmp_path / "none.pem"}),
    ):
        with pytest.raises(DaemonError, match="cannot be used") as error, listening_tcp(config):
            pass
        assert error.value.mend


def test_an_address_that_is_taken_is_told(authority: Any) -> None:
    with listening_tcp(PLAIN) as first:
        assert first is not None
        taken = PLAIN.model_copy(update={"address": f"127.0.0.1:{first[0].getsockname()[1]}"})
        with pytest.raises(DaemonError, match="cannot listen"), listening_tcp(taken):
            pass


def test_a_client_sends_its_token_to_no_other_machine_in_the_open() -> None:
    for url in ("http://swarm.example:1", "ftp://x", "https://user:pw@swarm.example", "https://"):
        with pytest.raises(ConfigError):
            DaemonClient(url, token="t")


async def test_a_redirect_is_not_followed_with_the_token(house: House) -> None:
    async def elsewhere(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 307 x\r\nlocation: http://127.0.0.1:9/\r\ncontent-length: 0\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(elsewhere, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        async with DaemonClient(f"http://127.0.0.1:{port}", token="t") as client:
            with pytest.raises(DaemonError, match="307"):
                await client.health()


def test_every_page_of_tokens_is_json(tmp_path: Path) -> None:
    for number in range(3):
        tokens.add(tmp_path / "t.json", tokens.made(f"n{number}", "viewer", 1)[1])
    assert len(json.loads((tmp_path / "t.json").read_text())) == 3


async def silent(where: str, count: int, within: float) -> int:
    """How many of so many connections, over which nothing is said, are cut in so many seconds."""
    host, port = where.split(":")
    pairs = [await asyncio.open_connection(host, int(port)) for _ in range(count)]
    await asyncio.sleep(within)
    ended = 0
    for reader, writer in pairs:
        try:
            ended += await asyncio.wait_for(reader.read(1), 0.05) == b""
        except ConnectionError:
            ended += 1
        except TimeoutError:
            pass
        writer.transport.abort()
    return ended


async def test_who_never_begins_tls_is_counted_and_cut_in_time(house: House, authority: Any) -> None:
    """A silent connect took a file of the daemon's for a minute, and was counted by nobody."""
    before = serving.CONNECTIONS, serving.HANDSHAKE_SECONDS
    serving.CONNECTIONS = 3
    try:
        async with house.open(authority.tcp) as where:
            assert await silent(where, 5, 0.1) == 2
            serving.HANDSHAKE_SECONDS = 0.2
        async with house.open(authority.tcp) as where:
            assert await silent(where, 3, 0.5) == 3
            async with DaemonClient(f"https://{where}", token=house.token("ci"), ca=authority.ca) as client:
                assert (await client.health()).version == "1"
    finally:
        serving.CONNECTIONS, serving.HANDSHAKE_SECONDS = before


def test_connections_leave_files_for_all_else() -> None:
    assert serving.room(1024) == 256
    assert serving.room(8) == serving.LEAST
    assert serving.room(1_000_000) == serving.room(resource.RLIM_INFINITY) == serving.CONNECTIONS


@pytest.mark.parametrize("host", ["[", "[::1]evil", "[::1", "x]", "localhost]"])
async def test_a_host_that_is_none_is_refused_before_any_token(
    house: House, caplog: pytest.LogCaptureFixture, host: str
) -> None:
    async with house.open(PLAIN) as where:
        told(await ask(where, headers={"host": host}), 421)
    assert "Traceback" not in caplog.text


async def said(where: str, words: str) -> bytes:
    """What is answered until the server hangs up."""
    host, port = where.split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(words.encode())
    try:
        return await asyncio.wait_for(reader.read(), LONG)
    finally:
        writer.transport.abort()


async def test_a_head_beyond_the_bound_and_one_with_two_ends_are_refused_and_the_connection_ends(house: House) -> None:
    """RFC 9112, 6.3: both framings in one request are how requests are smuggled."""
    head = f"POST /v1/tasks HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {house.token('ci')}\r\n"
    again = "GET /v1/health HTTP/1.1\r\nhost: localhost\r\n\r\n"
    many = "".join(f"x{number}: {'a' * 20}\r\n" for number in range(2500))
    async with house.open(PLAIN) as where:
        for words, status in (
            (f"{head}x: {'a' * 65_536}\r\n\r\n", 431),
            (f"{head}{many}\r\n", 431),
            (f"{head}content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n{again}", 400),
        ):
            answer = await said(where, words)
            assert answer.startswith(b"HTTP/1.1 %d" % status), answer[:200]
            assert answer.count(b"HTTP/1.1") == 1
            assert set(json.loads(answer.partition(b"\r\n\r\n")[2])) == {"what", "why", "mend"}


def test_what_anybody_can_have_logged_is_logged_so_often_and_the_rest_counted() -> None:
    now = [0.0]
    sparing = serving.Sparing(lambda: now[0])

    def record() -> logging.LogRecord:
        return logging.LogRecord("uvicorn.error", logging.WARNING, "", 0, "Invalid HTTP request received.", (), None)

    assert sum(bool(sparing.filter(record())) for _ in range(1000)) == serving.SAID
    now[0] = 61.0
    last = record()
    assert sparing.filter(last)
    assert "990 more like it" in last.getMessage()


HUGE = 10**30


@pytest.mark.parametrize(
    ("path", "headers"),
    [
        (f"/v1/tasks/one/steps?after={HUGE}", {}),
        (f"/v1/tasks/one/events?after={HUGE}", {}),
        ("/v1/tasks/one/events", {"last-event-id": str(HUGE)}),
        (f"/v1/events?after={HUGE}", {}),
        ("/v1/events", {"last-event-id": str(HUGE)}),
        ("/v1/tasks?since=nan", {}),
        ("/v1/tasks?since=inf", {}),
    ],
)
async def test_a_number_beyond_every_bound_is_refused_where_it_is_asked_with(
    house: House, path: str, headers: dict[str, str]
) -> None:
    await house.task("one")
    async with house.open(PLAIN) as where:
        told(await ask(where, path=path, headers=bearer(house.token("ci")) | headers), 422)


@pytest.mark.parametrize(
    ("path", "more"),
    [
        ("/v1/tasks", {"budget": {"wall": math.inf}}),
        ("/v1/tasks", {"budget": {"money": math.inf}}),
        ("/v1/tasks", {"budget": {"idle": math.nan}}),
        ("/v1/tasks", {"budget": {"tokens": HUGE}}),
        ("/v1/tasks", {"budget": {"rounds": HUGE}}),
        ("/v1/tasks", {"expires": math.inf}),
        ("/v1/tasks/one/fork", {"step": HUGE}),
        ("/v1/schedules", {"until": math.nan}),
        ("/v1/schedules", {"until": math.inf}),
        ("/v1/schedules", {"until": 1e300}),
        ("/v1/schedules", {"uses": HUGE}),
        ("/v1/schedules/tidy/resume", {"uses": HUGE}),
    ],
)
async def test_a_number_beyond_every_bound_is_refused_where_it_is_sent(
    house: House, path: str, more: dict[str, Any]
) -> None:
    body: dict[str, Any] = request().model_dump(mode="json", exclude_unset=True)
    if path.endswith("fork"):
        body = {"task": "two", "capability": "c"}
    elif path.endswith("resume"):
        body = {"capability": "c", "until": 1.0}
    elif path.endswith("schedules"):
        body = {"name": "tidy", "cron": "0 * * * *", "request": body}
    await house.task("one")
    headers = bearer(house.token("ci")) | {"content-type": "application/json"}
    async with house.open(PLAIN) as where:
        answer = await ask(where, "POST", path, content=json.dumps(body | more), headers=headers)
        assert next(iter(more)) in told(answer, 422)["why"]


async def test_a_fork_is_bound_by_the_operators_limits_as_a_task_is(house: House) -> None:
    async def bounded(wanted: TaskRequest) -> Plan:
        if wanted.budget and wanted.budget.tokens > 1000:
            raise TaskError("the budget names too much", "ask for less")
        return await plan(wanted)

    await house.task("one")
    house.desk = dataclasses.replace(house.desk, plan=bounded)
    headers = bearer(house.token("ci")) | {"content-type": "application/json"}
    body = {"task": "two", "capability": "c", "budget": {"tokens": 10**9}}
    async with house.open(PLAIN) as where:
        answer = await ask(where, "POST", "/v1/tasks/one/fork", content=json.dumps(body), headers=headers)
    assert "too much" in told(answer, 422)["why"]
