"""A process that runs durable flows and may be killed in it: python engine_child.py PLAN.JSON.

The plan: ``folder`` for the log and the files that it waits for, ``where`` the database is, ``who`` this is, ``runs``
to see through; ``host`` (default: who); ``adopt``: take them over first; ``hang``: a phase to stop in, or "after
PHASE", until the file ``go-WHO`` is there; ``die``: a phase to end the process in; ``owner``: a file that names whose
the runs are, asked as a lease is; ``begin``: a file to wait for before the runs are taken; ``slow``: seconds of each
phase; ``lives`` and ``together``: as in DbosEngine; ``guilty``: the one run that dies (default: any).
"""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

from swarm.config_database import Address
from swarm.engine import LIVES, TOGETHER, DbosEngine

PHASES = ("prepare", "work", "check", "deliver")


class Child:
    def __init__(self, plan: dict[str, Any]) -> None:
        self.plan = plan
        self.folder = Path(plan["folder"])
        where = plan["where"]
        place = Path(where) if isinstance(where, str) else Address(*where)
        counts = {"lives": plan.get("lives", LIVES), "together": plan.get("together", TOGETHER)}
        self.engine = DbosEngine(place, plan.get("host", plan["who"]), **counts)

    def note(self, line: str) -> None:
        log = os.open(self.folder / "log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(log, f"{self.plan['who']} {line}\n".encode())
        os.close(log)

    async def until(self, name: str) -> None:
        while not (self.folder / name).exists():  # noqa: ASYNC110 - another process makes it
            await asyncio.sleep(0.02)

    async def hang(self, at: str) -> None:
        if self.plan.get("hang") == at:
            self.note(f"hanging {at}")
            await self.until(f"go-{self.plan['who']}")

    async def ours(self, _: str) -> bool:
        return (self.folder / self.plan["owner"]).read_text() == self.plan["who"]

    async def flow(self, name: str) -> str:
        values = []
        for phase in PHASES:

            async def act(phase: str = phase) -> str:
                self.note(f"begin {name} {phase}")
                if self.plan.get("die") == phase and self.plan.get("guilty", name) == name:
                    os._exit(9)
                await asyncio.sleep(self.plan.get("slow", 0))
                await self.hang(phase)
                self.note(f"end {name} {phase}")
                return f"{phase} by {self.plan['who']}"

            values.append(await self.engine.phase(phase, act))
            await self.hang(f"after {phase}")
        return ", ".join(values)

    async def see(self, name: str) -> None:
        ended = await self.engine.run(name)
        self.note(f"{name} {ended.how}: {ended.value}")

    async def main(self) -> None:
        await self.engine.open(self.flow, self.ours if "owner" in self.plan else None)
        self.note("open")
        if "begin" in self.plan:
            await self.until(self.plan["begin"])
        if self.plan.get("adopt"):
            await self.engine.adopt(*self.plan["runs"])
            self.note("adopted")
        await asyncio.gather(*(self.see(name) for name in self.plan["runs"]))
        await self.engine.close()


if __name__ == "__main__":
    asyncio.run(Child(json.loads(Path(sys.argv[1]).read_text())).main())
