"""Agents that speak Anthropic's Messages API work through the gateway, told ANTHROPIC_BASE_URL and nothing else.

Each is installed, unmodified, under the project's cache; one that cannot be had is skipped with the reason. The model
is a pretend server that follows a script; the tools that the agents run are real.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
from pathlib import Path

import pytest

from pool.pretend.script import Recorded, Scripted
from pool.testing import call
from tests.acceptance.test_clients import TIER, behind, cache, installed, project, run, sessions

pytestmark = [pytest.mark.clients, pytest.mark.timeout(1500)]

CLAUDE = "@anthropic-ai/claude-code@2.1.197"
SDK = """
import anthropic, json, sys
client = anthropic.Anthropic(max_retries=0)
tool = {"name": "read", "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}}}
asked = {"model": sys.argv[1], "max_tokens": 64, "messages": [{"role": "user", "content": "hi"}]}
with client.messages.stream(**asked, tools=[tool]) as stream:
    kinds = [event.type for event in stream]
    first = stream.get_final_message()
result = {"type": "tool_result", "tool_use_id": first.content[-1].id, "content": "what is in it"}
turns = [*asked["messages"], {"role": "assistant", "content": first.content}, {"role": "user", "content": [result]}]
second = client.messages.create(**asked | {"messages": turns}, tools=[tool])
counted = client.messages.count_tokens(model=sys.argv[1], messages=asked["messages"], tools=[tool]).input_tokens
try:
    client.messages.create(**asked | {"model": "nobody"})
except anthropic.NotFoundError as error:
    wrong = error.body["error"]["type"]
names = [model.id for model in client.models.list()]
print(json.dumps([first.to_dict(), second.to_dict(), kinds, counted, wrong, names]))
"""


def claude() -> Path:
    """Claude Code's command. Skips where it cannot be installed here."""
    home, npm = cache() / "clients" / "claude-code", shutil.which("npm")
    mark = home / ".installed"
    if not mark.is_file() or mark.read_text() != CLAUDE:
        if npm is None:
            pytest.skip("blocked: Claude Code needs npm, which is not here")
        home.mkdir(parents=True, exist_ok=True)
        words = [npm, "install", "--no-audit", "--no-fund", "--loglevel=error", "--prefix", str(home), CLAUDE]
        done = subprocess.run(words, capture_output=True, text=True, timeout=600, check=False)
        if done.returncode:
            pytest.skip(f"blocked: {CLAUDE} cannot be installed: {done.stderr.strip()[-300:]}")
        mark.write_text(CLAUDE)
    return home / "node_modules" / ".bin" / "claude"


def environ(url: str) -> dict[str, str]:
    """What a client of this API is told; everything else that it would ask the internet for is off."""
    return {
        "ANTHROPIC_BASE_URL": url.removesuffix("/v1"),
        "ANTHROPIC_API_KEY": "sk-of-the-client",
        "ANTHROPIC_MODEL": TIER,
        "ANTHROPIC_SMALL_FAST_MODEL": TIER,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "DISABLE_TELEMETRY": "1",
    }


def reading_first(recorded: Recorded) -> Scripted | None:
    """Calls the first tool, then says what came of it."""
    last = recorded.body["messages"][-1]
    if last["role"] == "tool":
        return f"It says: {last['content']}"
    return call("read", path="calc.py").model_copy(update={"content": "I look.", "reasoning": "hm"})


async def test_anthropics_sdk_streams_calls_tools_and_counts(tmp_path: Path) -> None:
    python = (await asyncio.to_thread(installed, "anthropic")).parent / "python"
    async with behind(reading_first) as (url, server):
        printed = await run(python, "-c", SDK, TIER, url=url, folder=project(tmp_path), **environ(url))
    first, second, kinds, counted, wrong, names = json.loads(printed)
    assert [block["type"] for block in first["content"]] == ["thinking", "text", "tool_use"]
    assert (first["content"][-1]["input"], first["stop_reason"]) == ({"path": "calc.py"}, "tool_use")
    assert second["content"][0]["text"] == "It says: what is in it"
    assert (kinds[0], kinds[-1]) == ("message_start", "message_stop")
    assert (counted > 0, wrong) == (True, "not_found_error")
    assert TIER in names
    assert len(sessions(server)) == 1


async def test_claude_code_runs_a_command_and_says_what_came_of_it(tmp_path: Path) -> None:
    command, folder = await asyncio.to_thread(claude), project(tmp_path)

    def script(recorded: Recorded) -> Scripted | None:
        last = recorded.body["messages"][-1]
        if last["role"] == "tool":
            return f"It says: {last['content']}"
        if any(tool["function"]["name"] == "Bash" for tool in recorded.body.get("tools", ())):
            return call("Bash", command="echo $((6 * 7))", description="Multiply")
        return "a title"

    async with behind(script) as (url, server):
        words = ("-p", "What is 6 times 7?", "--allowedTools", "Bash(echo:*)", "--output-format", "json")
        told = json.loads(await run(command, *words, url=url, folder=folder, **environ(url)))
        assert (told["is_error"], told["result"]) == (False, "It says: 42")
        turns = [one for one in server.requests if one.body.get("tools")]
        assert len({one.headers["x-session-id"] for one in turns}) == 1
        assert told["usage"]["cache_read_input_tokens"] > 1000, "the second turn found the first one's prefix"
