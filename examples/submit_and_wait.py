"""Hand in a task from a program, follow it, and end with 0 only when it became a pull request.

python examples/submit_and_wait.py swarm.toml sample "Make the failing test pass"
"""

from __future__ import annotations

import asyncio
import os
import secrets
import sys
from contextlib import aclosing
from pathlib import Path

from swarm.client import DaemonClient
from swarm.config_file import load
from swarm.delivery import BrokerClient
from swarm.errors import SwarmError
from swarm.types import TaskRequest, TaskState, TaskView


async def submit_and_wait(config: Path, repository: str, instructions: str) -> TaskView:
    """The task once it is final. Raises SwarmError with its mend."""
    settings = load(config, os.environ).settings
    name = f"t{secrets.token_hex(4)}"
    async with BrokerClient(settings.broker.people) as broker:
        # A person's right: the broker looks at who calls, and the daemon could not get this for itself.
        grant = await broker.grant_task(repository, None, name)
    request = TaskRequest(
        repository=repository,
        instructions=instructions,
        task=name,
        base=grant.base,
        base_commit=grant.base_commit,
        capability=grant.capability,
    )
    async with DaemonClient(settings.daemon.socket) as daemon:
        await daemon.submit(request)
        async with aclosing(daemon.follow(name)) as steps:
            async for step in steps:
                print(step.kind, step.data)
        return await daemon.task(name)


def main() -> int:
    """Run it; the exit code."""
    if len(sys.argv) != 4:
        print(__doc__)
        return 2
    try:
        task = asyncio.run(submit_and_wait(Path(sys.argv[1]), sys.argv[2], sys.argv[3]))
    except SwarmError as error:
        print(f"{error}\n  mend: {error.mend}", file=sys.stderr)
        return 1
    print(task.task.id, task.state.value, task.reason, task.pull_request or "")
    return 0 if task.state is TaskState.DELIVERED else 1


if __name__ == "__main__":
    sys.exit(main())
