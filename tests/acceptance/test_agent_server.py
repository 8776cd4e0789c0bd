"""A real vLLM with tools and thinking, started by `swarm pool up`, beside a real llama.cpp: what is seen of them, and
what an agent gets through the gateway. The tests are in order: the last one ends the server."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from house import CHECKOUT
from pool.config import EndpointConfig, PoolConfig
from pool.kv_listener import KvListener
from pool.placement.blocks import token_chain
from pool.router import Pool
from pool.types import ChatRequest, Message
from stack import weights
from tests.vllm_server import free_port

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(1800)]

LOOK: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "look",
        "description": "Look at a file.",
        "parameters": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
    },
}
ASKED: dict[str, Any] = {
    "model": "agents",
    "messages": [{"role": "user", "content": "Look at the file a.py"}],
    "tools": [LOOK],
    "max_tokens": 64,
    "temperature": 0,
    "extra_body": {"chat_template_kwargs": {"enable_thinking": False}},
}
SUM = "Think step by step: how much is 17 + 25?"
SETTINGS = """
[daemon]
state = "s"
socket = "{folder}/d.sock"
[broker]
socket = "{folder}/b.sock"
[pool.gateway]
port = {port}
socket = "{folder}/g.sock"
[pool.embedded]
enabled = true
weights = "{weights}"
tier = "small"
[[pool.endpoints]]
name = "vllm"
url = "{url}"
tier = "agents"
scheduling = "priority"
"""


@dataclass(frozen=True)
class Started:
    """The vLLM as `swarm pool up` tells it, with the process that holds it."""

    process: subprocess.Popen[str]
    told: dict[str, Any]

    @property
    def endpoint(self) -> EndpointConfig:
        names = ("name", "url", "scheduling", "kv_events", "kv_replay")
        return EndpointConfig(tier="agents", **{name: self.told[name] for name in names})


@dataclass(frozen=True)
class Front:
    """A gateway before both servers."""

    folder: Path
    url: str

    def swarm(self, *words: str) -> Any:
        """What a command of the pool prints as JSON."""
        ran = subprocess.run(
            [sys.executable, "-m", "swarm", "pool", *words, "--json"], cwd=self.folder, env=environment(self.folder),
            capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return json.loads(ran.stdout)

    def client(self) -> openai.OpenAI:
        """OpenAI's own client."""
        return openai.OpenAI(base_url=f"{self.url}/v1", api_key="any", max_retries=0, timeout=600)


def environment(folder: Path) -> dict[str, str]:
    """Nothing of the caller's own settings."""
    homes = {name: str(folder) for name in ("HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME")}
    return {"PATH": os.environ["PATH"], "PYTHONPATH": str(CHECKOUT), "LC_ALL": "C.UTF-8", **homes}


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """One whose sockets have addresses short enough for the kernel."""
    with tempfile.TemporaryDirectory(prefix="agents-") as made:
        yield Path(made)


@pytest.fixture(scope="module")
def vllm(request: pytest.FixtureRequest, vllm_home: Path, agent_model: Path, folder: Path) -> Iterator[Started]:
    """The profile finds the tool parser in the model's folder by itself."""
    if any("vllm_url" in getattr(item, "fixturenames", ()) for item in request.session.items):
        request.getfixturevalue("vllm_started")  # others will want it: let it start beside this one
    words = [
        sys.executable, "-m", "swarm", "pool", "up", "cpu", "--python", str(vllm_home / "venv/bin/python"), "--model",
        str(agent_model), "--window", "4096", "--host-memory", "1", "--reasoning-parser", "qwen3", "--port",
        str(free_port()), "--log", str(folder), "--json",
    ]  # fmt: skip
    env = environment(folder) | {"VLLM_CPU_OMP_THREADS_BIND": os.environ.get("VLLM_CPU_OMP_THREADS_BIND", "0")}
    with (
        (folder / "up.err").open("w") as err,
        subprocess.Popen(words, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=err, text=True) as process,
    ):
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line, (folder / "up.err").read_text()
            yield Started(process, json.loads(line))
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(90)


@pytest.fixture(scope="module")
def front(vllm: Started, folder: Path) -> Iterator[Front]:
    """A gateway before the vLLM and the embedded model."""
    port = free_port()
    text = SETTINGS.format(folder=folder, port=port, weights=weights(), url=vllm.told["url"])
    (folder / "swarm.toml").write_text(text)
    words = [sys.executable, "-m", "swarm", "pool", "serve"]
    with (
        (folder / "gateway.log").open("w") as log,
        subprocess.Popen(words, cwd=folder, env=environment(folder), stdout=log, stderr=log) as process,
    ):
        try:
            until = time.monotonic() + 120
            while not (folder / "g.sock").exists():
                assert process.poll() is None, (folder / "gateway.log").read_text()
                assert time.monotonic() < until, (folder / "gateway.log").read_text()
                time.sleep(0.2)
            yield Front(folder, f"http://127.0.0.1:{port}")
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(60)


def test_status_shows_what_each_of_the_two_was_seen_to_do(front: Front) -> None:
    until = time.monotonic() + 600
    while True:
        assert time.monotonic() < until, (front.folder / "gateway.log").read_text()
        seen = {one["name"]: one for one in front.swarm("status")["endpoints"]}
        if not any("not tried" in trait["evidence"] for one in seen.values() for trait in one["traits"].values()):
            break
        time.sleep(2)
    ours, llama = seen["vllm"], seen["embedded"]
    assert (ours["kind"], llama["kind"]) == ("vllm", "llamacpp")
    assert {name: trait["verdict"] for name, trait in ours["traits"].items()} == dict.fromkeys(ours["traits"], "yes")
    assert ours["traits"]["reasoning"]["evidence"] == "the thinking came apart, in reasoning"  # its name since 0.12
    assert llama["traits"]["tools"]["verdict"] == "no"
    assert llama["traits"]["forced_tools"]["verdict"] == "no"


@pytest.mark.parametrize(
    ("choice", "end"),
    [("auto", "tool_calls"), ("required", "tool_calls"), ({"type": "function", "function": {"name": "look"}}, "stop")],
)
def test_tool_call_of_its_parser_arrives_whole(front: Front, choice: Any, end: str) -> None:
    (said,) = front.client().chat.completions.create(**ASKED, tool_choice=choice).choices
    assert said.finish_reason == end
    (call,) = said.message.tool_calls
    assert call.function.name == "look"
    assert isinstance(json.loads(call.function.arguments)["path"], str)


def test_tool_call_in_pieces_is_the_same_one(front: Front) -> None:
    name, arguments, ends = "", "", []
    for piece in front.client().chat.completions.create(**ASKED, tool_choice="auto", stream=True):
        for one in piece.choices:
            ends += [one.finish_reason] if one.finish_reason else []
            for call in one.delta.tool_calls or ():
                name += call.function.name or ""
                arguments += call.function.arguments or ""
    assert (name, ends) == ("look", ["tool_calls"])
    assert isinstance(json.loads(arguments)["path"], str)


def test_thinking_arrives_apart_in_one_body_and_in_pieces(front: Front) -> None:
    """vllm-project/vllm#27752: `reasoning_content` became `reasoning`; #38488: under the wrong name it is lost."""
    asked: dict[str, Any] = {
        "model": "agents", "messages": [{"role": "user", "content": SUM}], "max_tokens": 32, "temperature": 0,
        "extra_body": {"thinking_token_budget": 16},
    }  # fmt: skip
    client = front.client()
    whole = client.chat.completions.create(**asked).choices[0].message.model_dump()
    deltas = [
        one.delta.model_dump()
        for piece in client.chat.completions.create(**asked, stream=True)
        for one in piece.choices
    ]
    assert whole["reasoning"] == "".join(delta.get("reasoning") or "" for delta in deltas) != ""
    assert whole["content"] == "".join(delta.get("content") or "" for delta in deltas)
    assert "think>" not in whole["reasoning"] + (whole["content"] or "")


def test_decision_on_a_request_is_explained_afterwards(front: Front) -> None:
    asked = {name: value for name, value in ASKED.items() if name != "tools"} | {"max_tokens": 1}
    with front.client().chat.completions.with_streaming_response.create(**asked, stream=True) as answer:
        assert list(answer.iter_lines())[-2:] == ["data: [DONE]", ""]
    told = front.swarm("explain", answer.headers["x-request-id"])
    assert told["endpoint"] == "vllm"
    assert [row["endpoint"] for row in told["rows"] if not row["left_out"]] == ["vllm"]
    assert told["actual_ttft"] > 0


async def test_our_own_agents_read_the_thinking(vllm: Started) -> None:
    async with Pool(PoolConfig(endpoints=(vllm.endpoint,), canaries=False)) as pool:
        said = (Message(role="user", content=SUM),)
        reply = await pool.chat(
            ChatRequest(tier="agents", session="s", messages=said, max_tokens=12, temperature=0, deadline=300)
        )
    assert reply.choices[0].reasoning
    assert not reply.choices[0].content


async def test_view_of_its_kv_events_foretells_the_cached_tokens_also_for_who_comes_late(vllm: Started) -> None:
    prompt = "The pool keeps each session where its blocks are. " * 60
    model = vllm.told["model"]
    base = vllm.told["url"].removesuffix("/v1")
    async with httpx.AsyncClient(base_url=base, timeout=300) as client:

        async def ask(text: str) -> int:
            body = {"model": model, "prompt": text, "max_tokens": 2}
            answer = (await client.post("/v1/completions", json=body)).json()
            return int(answer["usage"]["prompt_tokens_details"]["cached_tokens"])

        async def ids(text: str) -> list[int]:
            answer = await client.post("/tokenize", json={"model": model, "prompt": text})
            return list(answer.json()["tokens"])

        assert await ask(prompt) == 0
        listener = KvListener(vllm.endpoint)
        async with listener.running(), asyncio.timeout(600):
            while not listener.view.hit(token_chain(await ids(prompt), listener.view.block_tokens or 1)):  # noqa: ASYNC110
                await asyncio.sleep(0.1)  # a view tells nobody when it changes
            size = listener.view.block_tokens
            assert size is not None
            assert listener.view.whole
            for text in (prompt, prompt + "And then it goes on. " * 40):
                foretold = listener.view.hit(token_chain(await ids(text), size)) * size
                assert foretold == await ask(text) > 400
            other = "Something else altogether. " * 80
            assert listener.view.hit(token_chain(await ids(other), size)) == 0
            await ask(other)
            while not listener.view.hit(token_chain(await ids(other), size)):  # noqa: ASYNC110
                await asyncio.sleep(0.1)


def test_ctrl_c_ends_it_and_frees_its_port(vllm: Started) -> None:
    port = httpx.URL(vllm.told["url"]).port
    assert port is not None
    vllm.process.send_signal(signal.SIGINT)
    assert vllm.process.wait(90) == 0
    with socket.create_server(("127.0.0.1", port)):
        pass
