"""What one command costs in an open sandbox, beside an engine exec and beside other systems on the same commands.

    python -m benchmarks.sandbox_exec [--quick]

The same list of commands (half of them `true`, the rest what agents type) goes, one after the other, through: a plain
process of this machine, our backends, `docker exec` typed into a shell, an exec through the engine's own socket with
the SDK, SWE-ReX's server and mini-swe-agent's Docker environment. ms_per_command is the median of `true` on bubblewrap;
ratio_docker_exec is `true` on our Docker backend over the same through the SDK. The last line is one JSON object. Exits
with 1 where that ratio is over a fifth.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
from pathlib import Path

import docker

from benchmarks.sandbox_stage import IMAGE, SPEC, backends, p50, p95, ran, spent
from sandbox.base import Sandbox
from sandbox.types import Command

WANTED = 0.2
TYPED = (
    "ls -la /etc",
    "cat /etc/passwd | head -20",
    "grep -rn root /etc/passwd /etc/group | tail -1",
    "sed -n 1,20p /etc/passwd",
    "find /usr/share/zoneinfo /usr/lib/tmpfiles.d -name '*.conf' 2>/dev/null | wc -l",
    "python3 -c 'print(6 * 7)'",
)
PEERS = {"swe-rex": ("swe-rex", "aiohttp"), "mini-swe-agent": ("mini-swe-agent",)}


def commands(rounds: int) -> list[str]:
    """Half `true`, half typed."""
    return [line for _ in range(rounds) for typed in TYPED for line in ("true", typed)]


async def ours(box: Sandbox, lines: list[str]) -> list[float]:
    """Milliseconds of each command."""
    return [await spent(lambda line=line: box.run(Command(argv=("/bin/sh", "-c", line)))) for line in lines]


async def typed_exec(name: str, lines: list[str]) -> list[float]:
    """The same with `docker exec`."""
    return [await ran(["docker", "exec", "-w", "/tmp", name, "/bin/sh", "-c", line]) for line in lines]  # noqa: S108


async def sdk_exec(container: docker.models.containers.Container, lines: list[str]) -> list[float]:
    """The same through the engine's socket."""
    return [
        await spent(lambda line=line: asyncio.to_thread(container.exec_run, ["/bin/sh", "-c", line], workdir="/tmp"))  # noqa: S108
        for line in lines
    ]


async def with_docker(lines: list[str]) -> dict[str, list[float]]:
    """Both kinds of exec in one plain container."""
    engine = docker.from_env()
    try:
        container = await asyncio.to_thread(
            engine.containers.run, IMAGE, ["sleep", "600"], detach=True, network_mode="none", init=True
        )
        try:
            return {"docker exec": await typed_exec(container.id, lines), "SDK exec": await sdk_exec(container, lines)}
        finally:
            await asyncio.to_thread(container.remove, force=True)
    finally:
        engine.close()


async def peer(name: str, lines: list[str]) -> list[float] | None:
    """Another system's times; None, and told, where it cannot be installed or does not run here."""
    home = Path(os.environ.get("AGENT_SWARM_CACHE", "/var/cache/agent-swarm")) / "clients" / name
    try:
        if not (home / "bin" / "python").exists():
            await ran([sys.executable, "-m", "venv", str(home)])
        await ran([str(home / "bin" / "pip"), "install", "-q", *PEERS[name]])
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "commands.json"
            file.write_text(json.dumps(lines))
            process = await asyncio.create_subprocess_exec(
                *(
                    str(home / "bin" / "python"),
                    str(Path(__file__).with_name("sandbox_peers.py")),
                    name,
                    str(file),
                    IMAGE,
                ),
                env=os.environ | {"MSWEA_GLOBAL_CONFIG_DIR": folder, "MSWEA_SILENT_STARTUP": "1"},
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
            said, errors = await process.communicate()
        return [float(value) for value in json.loads(said.splitlines()[-1])]
    except Exception as error:  # noqa: BLE001 - a peer that does not run is told, not a failure of ours
        words = errors.decode("utf-8", "replace").strip()[-200:] if "errors" in locals() else str(error)
        print(f"{name} did not run: {words}")
        return None


async def measure(rounds: int) -> dict[str, list[float]]:
    """All contenders on the same list."""
    lines = commands(rounds)
    times = {"plain process": [await ran(["/bin/sh", "-c", line]) for line in ["true"] * rounds * 2]}
    async with backends() as found:
        for kind, backend in found.items():
            async with backend.open(SPEC) as box:
                await ours(box, lines[:4])
                times[f"ours, {kind}"] = await ours(box, lines)
        if "docker" in found:
            times |= await with_docker(lines)
    for name in PEERS:
        if name == "swe-rex" or "docker" in found:
            told = await peer(name, lines)
            if told:
                times[name] = told
    return times


def summary(times: dict[str, list[float]]) -> dict[str, float | bool]:
    """The figures by their names; every second command is `true`."""
    nothing = {name: p50(values[::2]) for name, values in times.items()}
    figures: dict[str, float | bool] = {f"ms {name}": value for name, value in nothing.items()}
    if "ours, bwrap" in nothing:
        figures["ms_per_command"] = nothing["ours, bwrap"]
    if "ours, docker" in nothing:
        figures["ratio_docker_exec"] = round(nothing["ours, docker"] / nothing["SDK exec"], 3)
    figures["met"] = bool(figures.get("ratio_docker_exec", 0.0) <= WANTED) and len(nothing) > 1
    return figures


async def main() -> int:
    """Run all and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="under a minute")
    times = await measure(3 if parser.parse_args().quick else 20)
    for name, values in times.items():
        typed = f"{p50(values[1::2]):8.1f}" if name != "plain process" else "       -"
        print(f"{name:16} `true` p50 {p50(values[::2]):8.1f} ms  p95 {p95(values[::2]):8.1f}   typed p50 {typed} ms")
    figures = summary(times)
    print(json.dumps(figures))
    return 0 if figures["met"] else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
