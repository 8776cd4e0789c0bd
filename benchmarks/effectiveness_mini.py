"""mini-swe-agent as `agent_effectiveness` runs it: the real package, in the same sandboxes, through the same gateway.

Its own two ways to speak: native tool calls (``mini.yaml``), and one command in a fenced block (``mini_textbased.yaml``
with its model class ``litellm_textbased``). For its best chance with a weak model it gets more than its defaults give:
no end after three badly formed answers, answers of at most 1024 tokens, so that one that rambles does not eat the
budget, and the task, the test command and the budget in words, as every agent of others gets them from us.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from swarm.agents import MINI_SWE_AGENT, AgentConfig

INSIDE = "/opt/mini-swe-agent"  # where its packages are shown to sandboxes
ANSWER = 1024  # tokens of one answer
_SPOKEN = {
    "mini-text": "-c mini_textbased.yaml --model-class litellm_textbased",
    "mini-tools": "-c mini.yaml",
}
NAMES = tuple(_SPOKEN)


def agents(temperature: float | None) -> dict[str, AgentConfig]:
    """It as agents by name, with both ways to speak. ``temperature``: None leaves that to the server."""
    return {name: _agent(spoken, temperature) for name, spoken in _SPOKEN.items()}


def packages(told: Path | None, scratch: Path) -> Path:
    """The folder of its packages, as sandboxes may be shown it: as told, else what pip puts into the project's cache,
    linked into ``scratch``, since nothing below the cache is ever shown."""
    if told is not None:
        return told.absolute()
    cache = Path(os.environ.get("AGENT_SWARM_CACHE", "/var/cache/agent-swarm"))
    home = cache / "clients" / f"mini-swe-agent-cp{sys.version_info.major}{sys.version_info.minor}"
    if not (home / "done").exists():
        for words in MINI_SWE_AGENT:
            pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--target", str(home)]
            subprocess.run([*pip, *words.split()], check=True, timeout=900)
        (home / "done").touch()
    shown = scratch / "mini-swe-agent"
    if not shown.exists():
        shutil.copytree(home, shown, copy_function=_link)
    return shown


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def _agent(spoken: str, temperature: float | None) -> AgentConfig:
    more = ["agent.max_consecutive_format_errors=0", f"model.model_kwargs.max_tokens={ANSWER}"]
    more += [] if temperature is None else [f"model.model_kwargs.temperature={temperature}"]
    options = " ".join(f"-c {one}" for one in more)
    return AgentConfig(
        command=(
            f"PYTHONPATH={INSIDE} MSWEA_GLOBAL_CONFIG_DIR=$HOME exec python3 -m minisweagent.run.mini "
            f'{spoken} {options} --model "openai/$SWARM_MODEL" --task "$SWARM_TASK" --yolo --exit-immediately '
            '--cost-limit 0 --output "$HOME/trajectory.json"'
        ),
        env={
            "MSWEA_CONFIGURED": "true",
            "MSWEA_COST_TRACKING": "ignore_errors",
            "MSWEA_SILENT_STARTUP": "1",
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
            "PYTHONDONTWRITEBYTECODE": "1",
        },
    )
