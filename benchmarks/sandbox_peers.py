"""Other systems' ways to run the same commands, each in its own virtual environment: run by `sandbox_exec`.

    python -m benchmarks.sandbox_peers swe-rex|mini-swe-agent COMMANDS.json IMAGE

Needs nothing of this project, so that the peer's Python can run the file. Prints one JSON object: milliseconds of each
command, all rounds. SWE-ReX is its own server process beside its client, spoken to over HTTP, without a container
around it: its Docker deployment publishes a port, which an engine without a bridge cannot, and would only add to it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any


def mini(commands: list[str], image: str) -> list[float]:
    """mini-swe-agent's Docker environment: one `docker exec` a command."""
    from minisweagent.environments.docker import DockerEnvironment  # noqa: PLC0415 - of the peer's own Python

    logging.disable(logging.CRITICAL)
    environment: Any = DockerEnvironment(
        image=image,
        cwd="/tmp",  # noqa: S108 - inside
        run_args=["--rm", "--network", "none"],
        interpreter=["bash", "-c"],
    )
    try:
        times = []
        for command in commands:
            began = time.perf_counter()
            environment.execute({"command": command})
            times.append((time.perf_counter() - began) * 1000)
        return times
    finally:
        subprocess.run(["docker", "rm", "-f", environment.container_id], check=False, capture_output=True)
        environment.container_id = None


async def swerex(commands: list[str]) -> list[float]:
    """SWE-ReX: a bash session behind its HTTP server."""
    from swerex.runtime.abstract import BashAction, CreateBashSessionRequest  # noqa: PLC0415 - of the peer's own Python
    from swerex.runtime.remote import RemoteRuntime  # noqa: PLC0415

    logging.disable(logging.CRITICAL)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    token = secrets.token_hex(16)
    server = await asyncio.create_subprocess_exec(
        str(Path(sys.executable).parent / "swerex-remote"),
        *("--host", "127.0.0.1", "--port", str(port), "--auth-token", token),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        runtime = RemoteRuntime(host="http://127.0.0.1", port=port, auth_token=token, timeout=60.0)
        await runtime.wait_until_alive(timeout=60.0)
        await runtime.create_session(CreateBashSessionRequest())
        times = []
        for command in commands:
            began = time.perf_counter()
            await runtime.run_in_session(BashAction(command=command, check="silent"))
            times.append((time.perf_counter() - began) * 1000)
        await runtime.close()
        return times
    finally:
        if server.returncode is None:
            server.kill()
        await server.wait()


def main() -> None:
    """Run one peer."""
    name, file, image = sys.argv[1:]
    commands = json.loads(Path(file).read_text())
    print(json.dumps(asyncio.run(swerex(commands)) if name == "swe-rex" else mini(commands, image)))


if __name__ == "__main__":
    main()
