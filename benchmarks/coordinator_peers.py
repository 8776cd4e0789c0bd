"""mini-swe-agent's batch runner at the coordinator's load: run by `coordinator_agents`.

    python -m benchmarks.coordinator_peers URL,URL,... THREADS PACE WINDOW

With arguments it needs nothing of this project, so that the peer's Python can run the file. What is run is the
runner's own `process_instance` in a pool of threads, as its command `mini-extra swebench` does it, with its SWE-bench
prompts and its model client (litellm): the command itself wants the instances from a data set. The environment is one
in memory that says forty lines for any command, as our paper sandbox does. The runner keeps trajectories in memory and
writes each when its instance ends; it has no queue, no budget over restarts and nothing to go on from after a crash.
"""

from __future__ import annotations

import concurrent.futures
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

CLIENT = "mini-swe-agent"
SENTINEL = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
PATIENCE = 240.0  # seconds until all threads are at work


class PaperEnvironment:
    """mini-swe-agent's protocol of an environment; nothing runs. Counts what it was asked."""

    runs = 0

    def __init__(self, **_: Any) -> None:
        self.config = None

    def execute(self, action: dict[str, Any], cwd: str = "", *, timeout: int | None = None) -> dict[str, Any]:  # noqa: ARG002
        """Forty lines, whatever is asked."""
        PaperEnvironment.runs += 1
        return {"output": f"what {action['command']} says\n" * 40, "returncode": 0, "exception_info": ""}

    def get_template_vars(self, **more: Any) -> dict[str, Any]:
        """What prompts may name of a machine."""
        return dict.fromkeys(("system", "release", "version", "machine"), "paper") | more

    def serialize(self) -> dict[str, Any]:
        """Nothing to tell."""
        return {}


def memory() -> float:
    """KiB of this process that are resident."""
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmRSS"))
    return float(line.split()[1])


def run(urls: list[str], threads: int, pace: float, window: float) -> dict[str, Any]:
    """Inside the peer's Python: its figures."""
    # All of the peer's own Python.
    from minisweagent.config import builtin_config_dir, get_config_from_spec  # noqa: PLC0415
    from minisweagent.run.benchmarks import swebench  # noqa: PLC0415
    from minisweagent.run.benchmarks.utils.batch_progress import RunBatchProgressManager  # noqa: PLC0415
    from minisweagent.utils.serialize import recursive_merge  # noqa: PLC0415

    config = get_config_from_spec(str(builtin_config_dir / "benchmarks" / "swebench.yaml"))
    sys.modules["coordinator_peers"] = sys.modules["__main__"]
    output = Path.cwd() / "out"
    output.mkdir()
    progress = RunBatchProgressManager(threads, output / "statuses.yaml")
    swebench.get_model(config={"model_name": "openai/pretend", "cost_tracking": "ignore_errors"})  # loads litellm
    idle = memory()

    def one(number: int) -> None:
        model = {
            "model_name": "openai/pretend",
            "cost_tracking": "ignore_errors",
            "model_kwargs": {"api_base": f"{urls[number % len(urls)]}/v1", "api_key": "none", "drop_params": True},
        }
        own = recursive_merge(
            config,
            {"environment": {"environment_class": "coordinator_peers.PaperEnvironment"}, "model": model},
            {"agent": {"step_limit": 0, "cost_limit": 0}},
        )
        own["run"] = {}
        text = f"Please take 100000 turns of {pace} seconds each, then stop."
        swebench.process_instance({"instance_id": f"i{number}", "problem_statement": text}, output, own, progress)

    pool = concurrent.futures.ThreadPoolExecutor(max_workers=threads)
    for number in range(threads):
        pool.submit(one, number)
    until = time.monotonic() + PATIENCE
    while PaperEnvironment.runs < 2 * threads:
        if time.monotonic() > until:
            raise SystemExit(
                f"after {PATIENCE:.0f} s there were {PaperEnvironment.runs} turns, {threading.active_count()} threads"
            )
        time.sleep(0.2)
    began, cpu, before = time.monotonic(), time.process_time(), PaperEnvironment.runs
    time.sleep(window)
    made = 2 * (PaperEnvironment.runs - before)  # each run came of one model call
    cpu, seconds = time.process_time() - cpu, time.monotonic() - began
    return {
        "agents": threads,
        "steps": made,
        "cpu_ms_per_step": round(cpu / made * 1000, 2),
        "steps_per_s": round(made / seconds, 1),
        "cores": round(cpu / seconds, 2),
        "kib_per_agent": round((memory() - idle) / threads, 1),
        "idle_mib": round(idle / 1024, 1),
        "turns_per_agent": round(PaperEnvironment.runs / threads, 1),
    }


def measure(folder: Path, urls: list[str], threads: int, pace: float, window: float) -> dict[str, Any]:
    """Install the peer into the project's cache where it is not there, and run it; why not where it does not run."""
    home = Path(os.environ.get("AGENT_SWARM_CACHE", "/var/cache/agent-swarm")) / "clients" / CLIENT
    python = home / "bin" / "python"
    here = folder / "mini"
    here.mkdir()
    environ = os.environ | {
        "MSWEA_GLOBAL_CONFIG_DIR": str(here),
        "MSWEA_SILENT_STARTUP": "1",
        "MSWEA_CONFIGURED": "true",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    }
    words = [",".join(urls), str(threads), str(pace), str(window)]
    try:
        if not python.exists():
            subprocess.run([sys.executable, "-m", "venv", str(home)], check=True, capture_output=True)
        subprocess.run(
            [str(home / "bin" / "pip"), "install", "-q", CLIENT], check=True, capture_output=True, timeout=900
        )
        command = [str(python), str(Path(__file__).resolve()), *words]
        with (folder / "mini.log").open("w") as log:
            done = subprocess.run(
                command,
                env=environ,
                cwd=here,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                timeout=PATIENCE + window + 60,
                check=True,
            )
        told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    except (subprocess.SubprocessError, OSError, ValueError, IndexError) as error:
        told_by = getattr(error, "stderr", None) or b""
        said = told_by.decode("utf-8", "replace") if isinstance(told_by, bytes) else str(told_by)
        log_file = folder / "mini.log"
        said = said or (log_file.read_text()[-300:] if log_file.exists() else "")
        return {"blocked": f"{error}: {said.strip()[-300:]}"}
    return told


def main() -> None:
    """Run it and end at once: its threads have turns without end before them."""
    urls, threads, pace, window = sys.argv[1:]
    print(json.dumps(run(urls.split(","), int(threads), float(pace), float(window))), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
