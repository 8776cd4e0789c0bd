"""Odd requests at the gateway's door: each gets a right answer, or a refusal in OpenAI's form that helps."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from pool.gateway.keys import hashed
from pool.gateway.paths import unknown
from pool.testing import paced, pretend_vllm
from tests.pool.gateway.conftest import HELLO, House, Open

CHAT = "/v1/chat/completions"
BOM = b"\xef\xbb\xbf"


async def raw(house: House, *parts: bytes, pause: float = 0.0) -> bytes:
    """What comes back for these bytes until the gateway closes; it is asked to, unless a part says otherwise."""
    reader, writer = await asyncio.open_connection("127.0.0.1", house.here.port)
    for part in parts:
        writer.write(part)
        await asyncio.sleep(pause)
    async with asyncio.timeout(5):
        answer = await reader.read()
    writer.close()
    return answer


def head(method: str, path: str, *lines: str, version: str = "1.1") -> bytes:
    told = (f"{method} {path} HTTP/{version}", "host: localhost", "connection: close", *lines)
    return "\r\n".join((*told, "", "")).encode()


def body_of(answer: bytes) -> bytes:
    return answer.partition(b"\r\n\r\n")[2]


def in_form(error: dict[str, Any]) -> None:
    assert set(error["error"]) == {"message", "type", "param", "code"}


async def test_what_is_not_served_is_a_404_that_names_what_is(gateway: Open) -> None:
    async with pretend_vllm() as server, gateway(server) as house:
        for path in ("/v1/embeddings", "/v1/audio/transcriptions", "/v1/images/generations", "/", "/favicon.ico"):
            answer = await house.client.post(path, json=HELLO)
            in_form(answer.json())
            error = answer.json()["error"]
            assert (answer.status_code, error["code"]) == (404, "no_such_route")
            assert f"POST {CHAT}" in error["message"]
            assert "GET /v1/models" in error["message"]


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/chat/completions", "/v1/chat/completions meant"),
        ("/v1/v1/chat/completions", "/v1/chat/completions meant"),
        ("/v1/health", "/health meant"),
        ("/v1/embeddings", "embeddings are not placed by this gateway"),
        ("/admin/status", "unix socket"),
    ],
)
def test_a_path_that_somebody_may_have_mistaken_says_which_one_is_meant(path: str, words: str) -> None:
    routes = {CHAT: "POST", "/v1/models": "GET", "/health": "GET"}
    assert words in unknown(path, routes).message
    assert len(unknown(path * 1000, routes).message) < 500


async def test_a_slash_at_the_end_changes_nothing(gateway: Open) -> None:
    async with pretend_vllm() as server, gateway(server) as house:
        assert (await house.client.post(CHAT + "/", json=HELLO)).status_code == 200
        for path in ("/v1/models/", "/v1/models/small/", "/health/"):
            assert (await house.client.get(path)).status_code == 200


async def test_a_model_is_looked_up_by_its_name_and_an_unknown_one_lists_those_there_are(gateway: Open) -> None:
    async with pretend_vllm(model="org/m-1") as server, gateway(server) as house:
        card = (await house.client.get("/v1/models/org/m-1")).json()
        assert (card["id"], card["max_model_len"], card["tiers"]) == ("org/m-1", 8192, ["small"])
        assert (await house.client.get("/v1/models/org%2Fm-1")).json() == card
        for answer in (await house.client.get("/v1/models/nobody"), await house.chat({"model": "nobody"})):
            error = answer.json()["error"]
            assert (answer.status_code, error["code"], error["param"]) == (404, "model_not_found", "model")
            assert "small, " in error["message"]
            assert "org/m-1" in error["message"]


async def test_a_method_that_is_none_is_told_which_ones_are(gateway: Open) -> None:
    """RFC 9110, 15.5.6: a 405 names what is allowed."""
    async with pretend_vllm() as server, gateway(server) as house:
        for method, path, allowed in (
            ("GET", CHAT, "POST, OPTIONS"),
            ("HEAD", CHAT, "POST, OPTIONS"),
            ("DELETE", "/v1/models", "GET, HEAD, OPTIONS"),
            ("PUT", "/v1/models/small", "GET, HEAD, OPTIONS"),
        ):
            answer = await house.client.request(method, path)
            assert (answer.status_code, answer.headers["allow"]) == (405, allowed)
            if method != "HEAD":
                in_form(answer.json())


async def test_a_head_has_the_length_of_the_answer_and_no_body(gateway: Open) -> None:
    async with pretend_vllm() as server, gateway(server) as house:
        answer = await raw(house, head("HEAD", "/v1/models"))
        whole = (await house.client.get("/v1/models")).content
        assert answer.startswith(b"HTTP/1.1 200")
        assert b"content-length: %d\r\n" % len(whole) in answer.lower()
        assert body_of(answer) == b""


async def test_options_names_the_methods_and_lets_no_other_origin_in(gateway: Open) -> None:
    async with pretend_vllm() as server, gateway(server, keys=[{"name": "a", "sha256": hashed("k")}]) as house:
        asks = {"origin": "https://evil.example", "access-control-request-method": "POST"}
        answer = await house.client.options(CHAT, headers=asks)
        assert (answer.status_code, answer.content, answer.headers["allow"]) == (200, b"", "POST, OPTIONS")
        got = await house.chat(authorization="Bearer k", origin="https://evil.example")
        for one in (answer, got, await house.client.get("/v1/models", headers=asks)):
            assert not [name for name in one.headers if name.startswith("access-control")]


async def test_whatever_a_client_accepts_it_gets_what_it_asked_for(gateway: Open) -> None:
    odd = ("text/html", "*/*;q=0", "application/xml, ;;,", "text/event-stream", "", "\u00e9".encode())
    async with pretend_vllm() as server, gateway(server) as house:
        for accept in odd:
            answer = await house.client.post(CHAT, json=HELLO, headers={"accept": accept})
            assert answer.headers["content-type"] == "application/json"
            assert answer.json()["choices"][0]["message"]["content"] == "ok"


async def test_a_client_of_http_1_0_gets_answers_that_it_can_read(gateway: Open) -> None:
    """RFC 9112, 6.1: no transfer coding in an answer to HTTP/1.0, whose stream ends with its connection."""
    async with pretend_vllm(lambda _: paced("one two three", 0.01)) as server, gateway(server) as house:
        for stream in (False, True):
            body = json.dumps(HELLO | {"stream": stream}).encode()
            lines = ("content-type: application/json", f"content-length: {len(body)}")
            answer = await raw(house, head("POST", CHAT, *lines, version="1.0") + body)
            top, _, rest = answer.partition(b"\r\n\r\n")
            assert b" 200" in top.split(b"\r\n")[0]
            assert b"transfer-encoding" not in top.lower()
            if stream:
                assert rest.startswith(b"data: {")
                assert rest.endswith(b"data: [DONE]\n\n")
            else:
                assert json.loads(rest)["choices"][0]["message"]["content"] == "one two three"


async def test_an_upload_in_chunks_is_read_whole_and_one_that_waits_is_told_to_go_on(gateway: Open) -> None:
    async with pretend_vllm() as server, gateway(server) as house:
        body = json.dumps(HELLO).encode()
        chunks = [b"%x\r\n%b\r\n" % (len(part), part) for part in (body[:10], body[10:])]
        lines = ("content-type: application/json", "transfer-encoding: chunked")
        answer = await raw(house, head("POST", CHAT, *lines), *chunks, b"0\r\n\r\n", pause=0.01)
        assert answer.startswith(b"HTTP/1.1 200")
        waits = ("content-type: application/json", f"content-length: {len(body)}", "expect: 100-continue")
        reader, writer = await asyncio.open_connection("127.0.0.1", house.here.port)
        writer.write(head("POST", CHAT, *waits))
        async with asyncio.timeout(5):
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100 ")
            writer.write(body)
            assert (await reader.read()).startswith(b"HTTP/1.1 200")
        writer.close()


async def test_json_is_read_with_a_byte_order_mark_and_bytes_that_are_none_are_refused_in_the_right_form(
    gateway: Open,
) -> None:
    wrong = (b'{"model": "small", "messages": [{"role": "user", "content": "\xff\xfe"}]}', b"", BOM, b"[]", b"nul")
    async with pretend_vllm() as server, gateway(server) as house:
        for body in wrong:
            answer = await house.client.post(CHAT, content=body)
            assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_json")
            in_form(answer.json())
        assert not server.requests
        assert (await house.client.post(CHAT, content=BOM + json.dumps(HELLO).encode())).status_code == 200


async def test_of_two_equal_keys_gateway_and_server_read_the_same_one(gateway: Open) -> None:
    """A gateway that read the first and sent both would budget one request and have another one served."""
    async with pretend_vllm() as server, gateway(server) as house:
        twice = b'{"model": "nobody", "model": "small", "max_tokens": 9999999, "max_tokens": 5, '
        twice += b'"messages": [{"role": "user", "content": "hi"}]}'
        answer = await house.client.post(CHAT, content=twice)
        assert answer.status_code == 200
        assert server.requests[-1].body["max_tokens"] == 5
