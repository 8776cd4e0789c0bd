"""No address of a server leaves the gateway, in whatever message it stands."""

from __future__ import annotations

import json
import logging
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pool.config import EndpointConfig
from pool.gateway.veil import HIDDEN, hidden
from pool.testing import error, error_midway, pretend_vllm
from tests.pool.gateway.conftest import HELLO, Open

OWN = (
    "http://gpu7:8000",
    "http://vllm:8000/",
    "http://scheduler.prod.svc",
    "https://llm.example.com/v1",
    "http://[fd00::7]:80",
)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("nobody listens at http://10.0.0.3:8000 (refused)", "nobody listens at [address] (refused)"),
        ("host 10.0.0.3:8000 ssl:default", "host [address] ssl:default"),
        ("Connect call failed ('127.0.0.1', 44)", "Connect call failed [address]"),
        ("('::1', 8000, 0, 0) and [::1]:80 and fe80::1%eth0", "[address] and [address] and [address]"),
        ("to host gpu7:8000 ssl", "to host [address] ssl"),
        ("proxy ip-10-0-0-3.ec2.internal:8000", "proxy [address]"),
        ("node1.cluster.local refused", "[address] refused"),
        ("scheduler.prod.svc said", "[address] said"),
        ("llm.example.com said; https://llm.example.com/v1/x", "[address] said; [address]/x"),
        ("connect() to unix:/run/vllm/a.sock failed", "connect() to [address] failed"),
        ("cannot open /tmp/x/engine.sock: no", "cannot open [address]: no"),
        ("tcp://10.0.0.1:5557 and ipc:///tmp/x", "[address] and [address]"),
        ("localhost:8000, fd00::7", "[address], [address]"),
        ("host GPU7:8000 and LLM.Example.com", "host [address] and [address]"),
        ("via http%3A%2F%2F10.0.0.3%3A8000 or https:\\/\\/gpu7\\/v1", "via [address] or [address]"),
        ("ray://head:10001 or /tmp/x/engine.ipc, 10.0.0.3_8000", "[address] or [address], [address]_8000"),
        ("version 10.0.0.3, cuda 12.4.1.0:80", "version [address], cuda [address]"),
        ("node.0.example.com:8000 and 10.0.0.3.nip.io:8000", "[address] and [address]"),
    ],
)
def test_addresses_are_left_out(text: str, shown: str) -> None:
    assert hidden(text, OWN) == shown


@pytest.mark.parametrize(
    "text",
    [
        "This model's maximum context length is 4096 tokens. However, you requested 5000",
        "see https://docs.vllm.ai/en/latest/features/tool_calling.html",
        "vLLM 0.32.0 at 12:30:45, messages[1].content: 12:30",
        "std::string, x::y of vllm, 1.5:2 and a.b: c",
        "model org/name-1.5 of endpoint gpu7",
        "engine.py:123 raised, messages.0.content:123, model.layers.0.self_attn.weight:16, 0.33.1:12",
        "cuda 12.4.1.0 is needed, and NCCL version 2.21.5.1",
        "",
    ],
)
def test_what_is_no_address_stays(text: str) -> None:
    assert hidden(text, OWN) == text


@given(
    st.ip_addresses(), st.integers(1, 65535), st.sampled_from(["{}", "http://{}/v1", "<{}>", "'{}'", "({})", "at {}."])
)
def test_no_ip_address_is_ever_left(address: object, port: int, form: str) -> None:
    name = f"[{address}]" if ":" in str(address) else str(address)
    for text in (form.format(name), form.format(f"{name}:{port}")):
        assert str(address) not in hidden(text)


@given(st.text(max_size=300), st.lists(st.text(max_size=30), max_size=3))
def test_any_text_is_taken(text: str, urls: list[str]) -> None:
    assert isinstance(hidden(text, urls), str)


@pytest.mark.slow
async def test_a_client_sees_names_and_reasons_and_the_operator_addresses_as_well(
    gateway: Open, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    gone = EndpointConfig(name="gone", url=f"http://127.0.0.1:{port}", tier="dead")
    async with pretend_vllm() as server, gateway(server) as house:
        house.service.pool.add(gone)
        with caplog.at_level(logging.WARNING):
            for body in ({}, {"stream": True}):
                answer = await house.chat({"model": "dead"} | body)
                told = answer.json()["error"]
                assert (answer.status_code, told["code"]) == (503, "no_endpoint")
                assert "gone" in told["message"]
                for secret in ("127.0.0.1", str(port), "http://"):
                    assert secret not in answer.text
        assert f"http://127.0.0.1:{port}" in caplog.text
        (state,) = [one for one in house.service.pool.status() if one.name == "gone"]
        assert state.url == gone.url


async def test_what_a_server_says_of_others_reaches_no_client(gateway: Open) -> None:
    words = "upstream http://10.1.2.3:8000 (gpu-9.internal:80, unix:/run/vllm.sock) said no"
    status = 0
    async with pretend_vllm(lambda _: error(status, words)) as server, gateway(server, pool={"retries": 0}) as house:
        for status in (400, 404, 422, 500, 503):
            answer = await house.chat({"stream": status % 2 == 0})
            assert answer.status_code >= 400
            assert f"upstream {HIDDEN} (" in answer.json()["error"]["message"]
            for secret in ("10.1.2.3", "gpu-9", ".sock", str(server.port)):
                assert secret not in answer.text


async def test_an_error_inside_a_stream_names_no_address_either(gateway: Open) -> None:
    async with pretend_vllm(lambda _: error_midway("a b c d")) as server, gateway(server, pool={"retries": 0}) as house:
        tools = {"tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]}
        for path, body in (
            ("/v1/chat/completions", HELLO | tools),
            ("/v1/responses", {"model": "small", "input": "x"}),
        ):
            answer = await house.client.post(path, json=body | {"stream": True})
            assert "error" in answer.text
            assert "127.0.0.1" not in answer.text
            assert json.dumps(server.port) not in answer.text
