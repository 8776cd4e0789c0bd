"""Talk to a daemon from a program: how it stands, the newest tasks, and what happens from now on.

python examples/client.py /run/agent-swarm/swarm.sock
python examples/client.py https://swarm.example:7420 TOKEN_FILE [CA.pem]

`show` is all that a program needs which has no event loop of its own: `asyncio.run` around one function.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import aclosing
from pathlib import Path

from swarm.answers import TaskFilter
from swarm.client import DaemonClient
from swarm.errors import SwarmError

MOVES = 3  # that are waited for
SECONDS = 5.0  # that they are waited for at most


def client_of(words: list[str]) -> DaemonClient:
    """The daemon of this machine, behind its socket, or of another one, with a token and its authority."""
    if "://" not in words[0]:
        return DaemonClient(Path(words[0]))
    token = Path(words[1]).read_text(encoding="ascii").strip()
    return DaemonClient(words[0], token=token, ca=Path(words[2]) if len(words) > 2 else None)


async def show(daemon: DaemonClient) -> None:
    """Print how it stands, then the next moves of any task. Raises SwarmError with its mend."""
    async with daemon:
        status = await daemon.status()
        print(f"daemon {status.health.version}, {len(status.running)} of {status.workers} workers busy")
        for host in status.hosts:
            print(f"host {host.name}: {len(host.tasks)} of {host.slots} busy")
        page = await daemon.page(TaskFilter(), limit=5)
        for view in page.items:
            print(view.task.id, view.state.value, view.task.request.repository, view.pull_request or "")
        await moves(daemon)


async def moves(daemon: DaemonClient) -> None:
    """The next few moves of any task. Which position a stream is at, each Change says: keep it to go on from there."""
    seen = 0
    try:
        async with asyncio.timeout(SECONDS), aclosing(daemon.changes()) as changes:
            async for change in changes:
                print(f"{change.position} {change.task}: {change.before or 'new'} -> {change.state.value}")
                seen += 1
                if seen == MOVES:
                    return
    except TimeoutError:
        print(f"nothing more in {SECONDS:.0f} s")


def main(words: list[str]) -> int:
    """Run it; the exit code."""
    if not words:
        print(__doc__)
        return 2
    try:
        asyncio.run(show(client_of(words)))
    except OSError as error:
        print(
            f"{error.filename}: {error.strerror}\n  mend: name the token's file, and the authority's", file=sys.stderr
        )
        return 1
    except SwarmError as error:
        print(f"{error}\n  mend: {error.mend}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
