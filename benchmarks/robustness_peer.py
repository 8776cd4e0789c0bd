"""mini-swe-agent under the faults of `agent_robustness`, which runs this file with the peer's own Python.

It needs nothing of this project. Each line in is a run, as JSON: the server's address, the folder, the most model
calls, how many answers of a bad form it bears in a row (its default is 3, 0 is without end). Each line of the file that
is named by the one argument is how one ended. The agent, its model client (litellm), its environment and its prompts
(``mini.yaml``) are the package's own.
"""

from __future__ import annotations

import concurrent.futures
import json
import sys
import time
from pathlib import Path
from typing import Any


def run(told: dict[str, Any]) -> dict[str, Any]:
    """One run to its end, whatever that is."""
    # All of the peer's own Python.
    from minisweagent.agents.default import DefaultAgent  # noqa: PLC0415
    from minisweagent.config import builtin_config_dir, get_config_from_spec  # noqa: PLC0415
    from minisweagent.environments.local import LocalEnvironment  # noqa: PLC0415
    from minisweagent.models.litellm_model import LitellmModel  # noqa: PLC0415

    config = get_config_from_spec(str(builtin_config_dir / "mini.yaml"))
    kwargs = {**config["model"]["model_kwargs"], "api_base": f"{told['url']}/v1", "api_key": "none", "max_tokens": 1024}
    model = LitellmModel(
        **{**config["model"], "model_name": "openai/pretend", "cost_tracking": "ignore_errors", "model_kwargs": kwargs}
    )
    environment = LocalEnvironment(cwd=told["folder"], env=config["environment"]["env"])
    own = {name: config["agent"][name] for name in ("system_template", "instance_template")}
    limits = {"step_limit": told["calls"], "cost_limit": 0.0, "max_consecutive_format_errors": told["format_errors"]}
    agent = DefaultAgent(model, environment, **own, **limits)
    began = time.monotonic()
    try:
        ended = str(agent.run(told["task"]).get("exit_status"))
    except Exception as error:  # noqa: BLE001  its own way to end: it raises what it cannot handle
        ended = f"{type(error).__name__}: {str(error)[:120]}"
    return {"id": told["id"], "ended": ended, "calls": agent.n_calls, "seconds": round(time.monotonic() - began, 2)}


def main() -> None:
    """Run what comes in, two at a time. Into a file, since the peer's libraries print as well."""
    results = Path(sys.argv[1])
    with concurrent.futures.ThreadPoolExecutor(max_workers=2) as pool:
        waiting = [pool.submit(run, json.loads(line)) for line in sys.stdin if line.strip()]
        ended = [done.result() for done in concurrent.futures.as_completed(waiting)]
    results.write_text("".join(json.dumps(one) + "\n" for one in ended))


if __name__ == "__main__":
    main()
