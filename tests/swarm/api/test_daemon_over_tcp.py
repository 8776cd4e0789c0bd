"""A daemon process called from elsewhere: TLS, a token that `swarm token` made, a task to its pull request, MCP."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from pool.testing import call, pretend_vllm
from swarm.client import DaemonClient
from swarm.errors import DaemonError
from swarm.types import TaskRequest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
CHILD = ROOT / "tests" / "swarm" / "daemon_child.py"
GOOD = "def clamp(x, low, high):\n    return max(low, min(x, high))\n"
FIX = [call("write", path="clamp.py", content=GOOD), call("finish", title="Fix clamp", summary="The bound was wrong.")]


@dataclass(frozen=True)
class Elsewhere:
    """A daemon's address on TCP, and its settings."""

    url: str
    config: Path

    async def swarm(self, *words: str) -> str:
        """What the real command prints."""
        command = [sys.executable, "-m", "swarm", "--config", str(self.config), *words]
        done = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdout=asyncio.subprocess.PIPE)
        out, _ = await asyncio.wait_for(done.communicate(), 60)
        assert done.returncode == 0, words
        return out.decode().strip()


@asynccontextmanager
async def running(folder: Path, broker: Any, model: str, authority: Any) -> AsyncIterator[Elsewhere]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    config = folder / "swarm.toml"
    config.write_text(
        f'[daemon]\nstate = "{folder}/state"\nsocket = "{folder}/d.sock"\ndrain_timeout = 1\n'
        f'[daemon.tcp]\naddress = "127.0.0.1:{port}"\n'
        f'certificate = "{authority.tcp.certificate}"\nkey = "{authority.tcp.key}"\n'
        f'[broker]\nsocket = "{broker.socket}"\n'
        f'[[pool.endpoints]]\nname = "a"\nurl = "{model}"\ntier = "small"\n'
        f"[repositories.demo]\ntest_command = '''{sys.executable} -m unittest -v'''\nstrategy = \"agent\"\n"
    )
    with (folder / "daemon.log").open("wb") as log:
        daemon = await asyncio.create_subprocess_exec(
            sys.executable, str(CHILD), str(config), stdout=log, stderr=log, env=os.environ | {"PYTHONPATH": str(ROOT)}
        )
    try:
        async with asyncio.timeout(60), DaemonClient(folder / "d.sock") as client:
            while True:
                assert daemon.returncode is None, (folder / "daemon.log").read_text()
                try:
                    await client.health()
                    break
                except DaemonError:
                    await asyncio.sleep(0.05)
        yield Elsewhere(f"https://127.0.0.1:{port}", config)
    finally:
        if daemon.returncode is None:
            daemon.terminate()
        await asyncio.wait_for(daemon.wait(), 30)


async def test_a_task_from_elsewhere_becomes_a_pull_request_and_another_agent_watches_it(
    tmp_path: Path, shared_broker: Any, authority: Any, name: str
) -> None:
    async with pretend_vllm(FIX) as model, running(tmp_path, shared_broker, model.url, authority) as there:
        token = await there.swarm("token", "add", "ci", "--role", "submitter")
        grant = await asyncio.to_thread(shared_broker.grant, name)
        wanted = TaskRequest(
            repository="demo",
            instructions="make clamp right",
            task=name,
            capability=grant.capability,
            base_commit=grant.base_commit,
        )
        async with DaemonClient(there.url, token=token, ca=authority.ca) as client:
            await client.submit(wanted)
            async with asyncio.timeout(90):
                kinds = [step.kind async for step in client.follow(name)]
            assert "receipt" in kinds
            view = await client.task(name)
            assert (view.state.value, view.user) == ("delivered", "ci")
            assert grant.capability not in view.model_dump_json()
            (tmp_path / "token").write_text(token)
            words = ["-m", "swarm", "--config", str(there.config), "mcp", "--url", there.url]
            words += ["--token-file", str(tmp_path / "token"), "--ca", str(authority.ca), "--look-only"]
            server = StdioServerParameters(command=sys.executable, args=words, cwd=ROOT, env=dict(os.environ))
            async with asyncio.timeout(60), Client(stdio_client(server)) as agent:
                told = await agent.call_tool("task_status", {"task": name})
                assert told.structured_content is not None
                assert told.structured_content["delivered"] is True
            await there.swarm("token", "revoke", "ci")
            with pytest.raises(DaemonError, match="does not know that token"):
                await client.health()
    assert shared_broker.pulls(name) == 1
