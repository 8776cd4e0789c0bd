"""A process that runs one durable flow and may be killed in it: python engine_child.py FOLDER RUN [HANG]."""

import asyncio
import sys
from pathlib import Path

from swarm.engine import DbosEngine

PHASES = ("prepare", "work", "check", "deliver")


async def main(folder: Path, run: str, hang: str) -> None:
    engine = DbosEngine(folder / "engine.db")

    def note(line: str) -> None:
        with (folder / "log").open("a") as log:
            log.write(line + "\n")

    async def flow(name: str) -> str:
        values = []
        for phase in PHASES:

            async def act(phase: str = phase) -> str:
                note(f"begin {phase}")
                if phase == hang:
                    await asyncio.sleep(60)
                note(f"end {phase}")
                return phase.upper()

            values.append(await engine.phase(phase, act))
            if hang == f"after {phase}":
                note(hang)
                await asyncio.sleep(60)
        return f"{name}: {' '.join(values)}"

    left = await engine.recover(flow)
    note(f"left {' '.join(left)}")
    ended = await engine.run(run)
    note(f"{ended.how} {ended.value}")
    await engine.close()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], sys.argv[3] if len(sys.argv) > 3 else ""))
