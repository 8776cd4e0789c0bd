"""A daemon with everything real but its sandbox, which isolates nothing: python daemon_child.py SWARM.TOML."""

import asyncio
import os
import sys
from functools import partial
from pathlib import Path

from sandbox.base import Exits
from sandbox.config import SandboxConfig
from sandbox.testing import ScriptedBackend
from swarm.config_file import load
from swarm.daemon import run_daemon
from swarm.errors import SwarmError
from swarm.wiring import house


async def scripted(_: SandboxConfig, *, state: Path, exits: Exits) -> ScriptedBackend:
    return ScriptedBackend(exits=exits)


def main() -> int:
    settings = load(Path(sys.argv[1]), os.environ).settings
    try:
        return asyncio.run(run_daemon(settings, open_house=partial(house, choose=scripted)))
    except SwarmError as error:
        sys.stderr.write(f"error: {error}\nmend: {error.mend}\n")
        return 3


if __name__ == "__main__":
    sys.exit(main())
