"""Agents that know nothing of the pool work through the gateway, told OPENAI_BASE_URL and nothing else.

Each is installed, unmodified, in a virtual environment of its own under the project's cache; one that cannot be had is
skipped with the reason. The model is a pretend server that follows a script; the agents' edits are real.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import venv
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import openai
import platformdirs
import pytest

from pool.config import EndpointConfig, GatewayConfig, PoolConfig
from pool.gateway.service import Service
from pool.gateway.serving import listening
from pool.pretend.script import Recorded, Scripted
from pool.router import Pool
from pool.testing import PretendServer, call, pretend_vllm
from swarm.agents import MINI_SWE_AGENT
from swarm.transcripts import atif, foreign
from swarm.transcripts.shape import Step

pytestmark = [pytest.mark.clients, pytest.mark.timeout(1500)]

AGENTS = {
    "mini": MINI_SWE_AGENT,
    "aider": ("aider-chat==0.86.2",),
    "llm": ("llm==0.36",),
    "anthropic": ("anthropic==2.14.0",),
}
TIER = "gpt-4o-mini"  # a name that every client knows; here it is a tier
BUGGY, MENDED = "def add(a, b):\n    return a - b\n", "def add(a, b):\n    return a + b\n"


def cache() -> Path:
    """The project's cache."""
    told = os.environ.get("AGENT_SWARM_CACHE")
    if told:
        return Path(told)
    return Path("/var/cache/agent-swarm") if os.geteuid() == 0 else platformdirs.user_cache_path("agent-swarm")


def installed(command: str) -> Path:
    """The agent's command. Skips where it cannot be installed here."""
    home, wanted = cache() / "clients" / command, "\n".join(AGENTS[command])
    mark = home / ".installed"
    if not mark.is_file() or mark.read_text() != wanted:
        venv.create(home, with_pip=True, clear=True)
        pip = [home / "bin" / "python", "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-compile"]
        for words in AGENTS[command]:
            done = subprocess.run([*pip, *words.split()], capture_output=True, text=True, timeout=1200, check=False)
            if done.returncode:
                pytest.skip(f"blocked: {words} cannot be installed: {done.stderr.strip().splitlines()[-1]}")
        mark.write_text(wanted)
    return home / "bin" / command


@asynccontextmanager
async def behind(script: Callable[[Recorded], Scripted | None]) -> AsyncIterator[tuple[str, PretendServer]]:
    """The gateway's base URL, in front of a pretend server that follows a script."""
    async with pretend_vllm(script, window=100_000) as server:
        endpoint = EndpointConfig(name="a", url=server.url, tier=TIER)
        config = PoolConfig(endpoints=(endpoint,), gateway=GatewayConfig(port=0, drain_notice=0.0))
        async with Pool(config) as pool, listening(Service.of(pool, {})) as here:
            await pool.ready(TIER)
            yield f"http://127.0.0.1:{here.port}/v1", server


async def run(command: Path, *arguments: str, url: str, folder: Path, **environ: str) -> str:
    """Run an agent in a folder with a home of its own; all that it printed. Fails where it does."""
    home = folder.parent / "home"
    home.mkdir(exist_ok=True)
    told = {
        "PATH": f"{command.parent}:/usr/local/bin:/usr/bin:/bin",
        "HOME": str(home),
        "OPENAI_BASE_URL": url,
        "OPENAI_API_KEY": "sk-of-the-client",
        "TERM": "dumb",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # else it asks the internet for prices first
        **environ,
    }
    process = await asyncio.create_subprocess_exec(
        command,
        *arguments,
        cwd=folder,
        env=told,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(240):
            printed = (await process.communicate())[0].decode(errors="replace")
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, printed[-4000:]
    return printed


def project(tmp_path: Path) -> Path:
    """A git repository with a faulty program."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "calc.py").write_text(BUGGY)
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org"]
    for words in (["init", "-q"], ["add", "calc.py"], ["commit", "-q", "-m", "Begin"]):
        subprocess.run([*git, *words], cwd=folder, check=True)
    return folder


def commits(folder: Path) -> int:
    """How many commits a repository has."""
    log = subprocess.run(["git", "log", "--oneline"], cwd=folder, capture_output=True, text=True, check=True)
    return len(log.stdout.splitlines())


def sessions(server: PretendServer) -> set[str]:
    """The sessions that the server was told."""
    return {recorded.headers["x-session-id"] for recorded in server.requests}


async def test_openais_sdk_chats_streams_and_calls_tools() -> None:
    tool: dict[str, Any] = {
        "type": "function",
        "function": {"name": "read", "parameters": {"type": "object", "properties": {"path": {"type": "string"}}}},
    }

    def script(recorded: Recorded) -> Scripted | None:
        return call("read", path="calc.py") if recorded.body.get("tools") else "one two three"

    async with behind(script) as (url, _), openai.AsyncOpenAI(base_url=url, api_key="sk-x") as client:
        ask: dict[str, Any] = {"model": TIER, "messages": [{"role": "user", "content": "hi"}]}
        assert TIER in [model.id async for model in client.models.list()]
        assert (await client.chat.completions.create(**ask)).choices[0].message.content == "one two three"
        pieces = [piece async for piece in await client.chat.completions.create(**ask, stream=True)]
        assert "".join(p.choices[0].delta.content or "" for p in pieces) == "one two three"
        async with client.chat.completions.stream(**ask, tools=[tool]) as stream:
            final = await stream.get_final_completion()
        calls = final.choices[0].message.tool_calls
        assert calls
        assert calls[0].function.arguments == '{"path": "calc.py"}'
        assert (await client.responses.create(model=TIER, input="hi")).output_text == "one two three"


async def test_mini_swe_agent_mends_a_file(tmp_path: Path) -> None:
    command, folder = await asyncio.to_thread(installed, "mini"), project(tmp_path)
    steps = iter(
        (
            "sed -i 's/a - b/a + b/' calc.py && cat calc.py",
            "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT",
        )
    )

    def script(recorded: Recorded) -> Scripted | None:
        return call("bash", command=next(steps)) if recorded.body.get("tools") else None

    async with behind(script) as (url, server):
        await run(
            command,
            *("-m", f"openai/{TIER}", "-t", "Mend add in calc.py.", "-y", "--exit-immediately"),
            *("-o", str(tmp_path / "trajectory.json")),
            url=url,
            folder=folder,
            MSWEA_CONFIGURED="true",
            MSWEA_COST_TRACKING="ignore_errors",
            MSWEA_SILENT_STARTUP="1",
        )
        assert (folder / "calc.py").read_text() == MENDED
        assert len(server.requests) == 2
        assert len(sessions(server)) == 1
        assert all("authorization" not in recorded.headers for recorded in server.requests)
    told = foreign.read((tmp_path / "trajectory.json").read_bytes())
    first, _ = (step for step in told.steps if step.source == "agent")
    assert (told.header.origin, told.header.agent.version) == ("mini-swe-agent", "2.4.6")
    assert "sed -i" in first.tool_calls[0].arguments["command"]
    assert first.observation is not None
    assert first.observation.results[0].source_call_id == first.tool_calls[0].tool_call_id
    assert "return a + b" in first.observation.results[0].content
    assert first.metrics is not None
    assert told.end is not None
    assert (told.end.ending, told.end.total_prompt_tokens) == ("Submitted", sum(map(_prompt, told.steps)))
    assert atif.transcript_of(atif.document(told)) == told


def _prompt(step: Step) -> int:
    return (step.metrics.prompt_tokens or 0) if step.metrics else 0


EDIT = f"""I mend the sign.

calc.py
```python
<<<<<<< SEARCH
{BUGGY}=======
{MENDED}>>>>>>> REPLACE
```
"""


async def test_aider_applies_an_edit_and_commits_it(tmp_path: Path) -> None:
    command, folder = await asyncio.to_thread(installed, "aider"), project(tmp_path)

    def script(recorded: Recorded) -> Scripted | None:
        return EDIT if "SEARCH/REPLACE" in recorded.prompt else "fix: add adds"

    async with behind(script) as (url, server):
        await run(
            command,
            *("--model", f"openai/{TIER}", "--message", "Mend add.", "--yes-always", "--edit-format", "diff"),
            *("--no-check-update", "--no-show-model-warnings", "--analytics-disable", "--no-gitignore", "calc.py"),
            url=url,
            folder=folder,
            GIT_AUTHOR_NAME="t",
            GIT_AUTHOR_EMAIL="t@example.org",
            GIT_COMMITTER_NAME="t",
            GIT_COMMITTER_EMAIL="t@example.org",
        )
        assert (folder / "calc.py").read_text() == MENDED
        assert commits(folder) == 2
        assert any(recorded.body.get("stream") for recorded in server.requests)


SAVE = "def save(text: str) -> str:\n    open('calc.py', 'w').write(text)\n    return 'saved'\n"


async def test_llm_calls_a_tool_that_writes_the_file(tmp_path: Path) -> None:
    command, folder = await asyncio.to_thread(installed, "llm"), project(tmp_path)

    def script(recorded: Recorded) -> Scripted | None:
        done = any(message["role"] == "tool" for message in recorded.body["messages"])
        return "It is mended." if done else call("save", text=MENDED)

    async with behind(script) as (url, server):
        printed = await run(
            command, "-m", TIER, "--functions", SAVE, "Mend add.", url=url, folder=folder, LLM_USER_PATH=str(tmp_path)
        )
        assert (folder / "calc.py").read_text() == MENDED
        assert "It is mended." in printed
        assert len(sessions(server)) == 1
