"""Agents that others wrote, as they are run inside a sandbox: what the settings say of one, and the recipes we ship."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator

from swarm.types import Frozen

PREFIX = "cli:"  # of the strategies that are such an agent
PLACEHOLDERS = ("task", "task_file", "model")  # what is put into the words of a command, each in {braces}
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OURS = ("SWARM_TASK", "SWARM_TASK_FILE", "SWARM_MODEL")
_LIBRARIES = "pyyaml requests jinja2 pydantic litellm tenacity rich python-dotenv typer platformdirs textual openai"
# What pip is told, in this order. Of what mini-swe-agent names, `datasets` is for its benchmarks and 350 MB.
MINI_SWE_AGENT = ("--no-deps mini-swe-agent==2.4.6", f"{_LIBRARIES} prompt_toolkit")


class AgentConfig(Frozen):
    """One agent. It runs in the workspace with no network but the models' gateway; the changed workspace is its result.

    The environment tells it SWARM_TASK (the task as text), SWARM_TASK_FILE (the same, in a file outside the workspace),
    SWARM_MODEL (the model to ask for) and, in the variables that clients look at, the gateway's address.
    """

    command: str | tuple[str, ...] = Field(
        description="what to run: text for /bin/sh, or a list of words in which {task}, {task_file}, {model} are put",
    )
    protocol: Literal["plain", "acp"] = Field(
        default="plain",
        description="how it is told the task: by variables and a file, or over the Agent Client Protocol on its input",
    )
    authenticate: str = Field(
        default="", max_length=100, description="the method of `acp` that it wants to be authenticated by; no secret"
    )
    setup: tuple[str, ...] = Field(
        default=(), description="shell commands that install it into $HOME, run once with the package registries"
    )
    env: dict[str, str] = Field(default_factory=dict, description="variables set for it; no place for a secret")
    success_exit_codes: tuple[Annotated[int, Field(ge=0, le=255)], ...] = Field(
        default=(0,), min_length=1, description="exit codes after which its work is checked; others count as giving up"
    )
    idle: float = Field(
        default=900.0, gt=0, description="seconds without output and without a model call after which it is stopped"
    )

    @field_validator("env")
    @classmethod
    def _names(cls, env: dict[str, str]) -> dict[str, str]:
        for name, value in env.items():
            if not _VARIABLE.fullmatch(name) or "\0" in value:
                raise ValueError(f"{name!r} cannot be an environment variable")
            if name in _OURS:
                raise ValueError(f"{name} is set for each task; take another name")
        return env

    @field_validator("authenticate")
    @classmethod
    def _method(cls, method: str, info: ValidationInfo) -> str:
        if method and info.data.get("protocol") != "acp":
            raise ValueError('is of protocol = "acp" alone')
        return method

    @field_validator("command")
    @classmethod
    def _words(cls, command: str | tuple[str, ...]) -> str | tuple[str, ...]:
        words = (command,) if isinstance(command, str) else command
        if not words or not words[0].strip() or any("\0" in word for word in words):
            raise ValueError("is no command: its first word is empty, or it holds a NUL byte")
        return command


def strategy_of(agent: str) -> str:
    """The name of the strategy that is an agent."""
    return PREFIX + agent


def agent_of(strategy: str) -> str | None:
    """The agent that a strategy is, None for those of our own."""
    return strategy.removeprefix(PREFIX) if strategy.startswith(PREFIX) else None


def known_agents(configured: Mapping[str, AgentConfig]) -> Mapping[str, AgentConfig]:
    """Every agent by its name: what is configured goes before a shipped recipe of the same name."""
    return MappingProxyType({**RECIPES, **configured})


def _venv(name: str, uses: str, *installs: str) -> tuple[str, ...]:
    """Commands that install Python packages into a folder of HOME. What pip unpacks is larger than /tmp is.

    Only what the agent ``uses`` (modules) is compiled, once: of all that is installed that is the smaller part.
    """
    pip = f'TMPDIR="$HOME/{name}/unpacking" "$HOME/{name}/bin/pip" install --quiet --no-cache-dir --no-compile'
    begin = f'python3 -m venv "$HOME/{name}" && mkdir "$HOME/{name}/unpacking"'
    compiling = (
        f'PYTHONDONTWRITEBYTECODE= LITELLM_LOCAL_MODEL_COST_MAP=True "$HOME/{name}/bin/python" -c "import {uses}"'
    )
    return (begin, *(f"{pip} {words}" for words in installs), compiling, f'rm -rf "$HOME/{name}/unpacking"')


# pip takes ten minutes to choose among the versions of what OpenHands needs, uv seconds.
_UV = 'TMPDIR="$HOME/openhands/unpacking" "$HOME/openhands/bin/uv" pip install --quiet --no-cache'
_INDEX = '${PIP_INDEX_URL:+--index-url "$PIP_INDEX_URL"}'
_COMPILING = 'PYTHONDONTWRITEBYTECODE= LITELLM_LOCAL_MODEL_COST_MAP=True "$HOME/openhands/bin/python"'
_OPENHANDS = (
    'python3.12 -m venv "$HOME/openhands" && mkdir "$HOME/openhands/unpacking"',
    '"$HOME/openhands/bin/pip" install --quiet --no-cache-dir uv==0.13.9',
    f'{_UV} {_INDEX} --python "$HOME/openhands/bin/python" openhands==1.16.0',
    f'{_COMPILING} -c "import openhands_cli.entrypoint" && rm -rf "$HOME/openhands/unpacking"',
)
# Told by its environment, so that no file of the checkout has a say. Its title would be a call for nothing.
_OPENCODE = {
    "provider": {
        "swarm": {
            "npm": "@ai-sdk/openai-compatible",
            "options": {"baseURL": "{env:OPENAI_BASE_URL}", "apiKey": "{env:OPENAI_API_KEY}"},
            "models": {"{env:SWARM_MODEL}": {}},
        }
    },
    "model": "swarm/{env:SWARM_MODEL}",
    "small_model": "swarm/{env:SWARM_MODEL}",
    "agent": {"title": {"disable": True}},
    "permission": {"webfetch": "deny", "websearch": "deny"},
    "autoupdate": False,
    "share": "disabled",
    "lsp": False,
    "formatter": False,
}

# Each is installed into HOME, keeps its own files out of the workspace and asks nothing.
RECIPES: Mapping[str, AgentConfig] = MappingProxyType(
    {
        "mini-swe-agent": AgentConfig(
            setup=_venv(
                "mini",
                "minisweagent.run.mini, minisweagent.models.litellm_model",
                *MINI_SWE_AGENT,
            ),
            command=(
                'exec "$HOME/mini/bin/mini" --model "openai/$SWARM_MODEL" --task "$SWARM_TASK" '
                '--yolo --exit-immediately --output "$HOME/trajectory.json"'
            ),
            env={
                "MSWEA_CONFIGURED": "true",
                "MSWEA_COST_TRACKING": "ignore_errors",
                "MSWEA_SILENT_STARTUP": "1",
                "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # else it asks the internet for prices first
            },
        ),
        "aider": AgentConfig(
            setup=_venv("aider", "aider.main, litellm", "aider-chat==0.86.2"),
            command=(
                '"$HOME/aider/bin/aider" --model "openai/$SWARM_MODEL" --message-file "$SWARM_TASK_FILE" --yes-always '
                "--no-auto-commits --no-dirty-commits --no-gitignore --no-check-update --no-show-model-warnings "
                '--no-show-release-notes --analytics-disable --input-history-file "$HOME/aider.input" '
                '--chat-history-file "$HOME/aider.chat"; code=$?; rm -rf .aider.tags.cache.v*; exit "$code"'
            ),
            env={"LITELLM_LOCAL_MODEL_COST_MAP": "True"},
        ),
        "codex": AgentConfig(
            setup=('npm install --prefix "$HOME/codex" --no-audit --no-fund --loglevel=error @openai/codex@0.171.0',),
            # the sandbox is around it already, and its own needs what is closed inside; a search and groups of tools
            # are refused by the gateway, since no local model has them
            command=(
                'exec "$HOME/codex/node_modules/.bin/codex" exec --dangerously-bypass-approvals-and-sandbox '
                "--skip-git-repo-check --ephemeral --disable multi_agent -c web_search=disabled "
                "-c analytics.enabled=false -c model_provider=swarm "
                "-c \"model_providers.swarm={name='swarm',base_url='$OPENAI_BASE_URL',env_key='OPENAI_API_KEY',"
                "wire_api='responses'}\" "
                '--model "$SWARM_MODEL" - < "$SWARM_TASK_FILE"'
            ),
        ),
        "opencode": AgentConfig(
            protocol="acp",
            setup=(
                'npm install --prefix "$HOME/opencode" --no-audit --no-fund --loglevel=error opencode-ai@1.18.33',
                # the program is linked into its own package by then; what is left is another build of it
                'rm -rf "$HOME/opencode/node_modules/"opencode-linux-* "$HOME/.npm"',
            ),
            command='exec "$HOME/opencode/node_modules/.bin/opencode" acp --pure',
            env={
                "OPENCODE_CONFIG_CONTENT": json.dumps(_OPENCODE),
                "OPENCODE_DISABLE_PROJECT_CONFIG": "1",
                "OPENCODE_DISABLE_AUTOUPDATE": "1",
                "OPENCODE_DISABLE_MODELS_FETCH": "1",
                "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
                "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
            },
        ),
        "openhands": AgentConfig(
            setup=_OPENHANDS,
            command=(
                'LLM_BASE_URL="$OPENAI_BASE_URL" LLM_API_KEY="$OPENAI_API_KEY" LLM_MODEL="openai/$SWARM_MODEL" '
                'exec "$HOME/openhands/bin/openhands" --headless --override-with-envs --file "$SWARM_TASK_FILE"'
            ),
            env={"LITELLM_LOCAL_MODEL_COST_MAP": "True", "OPENHANDS_SUPPRESS_BANNER": "1"},
        ),
        "qwen-code": AgentConfig(
            setup=(
                'npm install --prefix "$HOME/qwen" --no-audit --no-fund --loglevel=error @qwen-code/qwen-code@0.24.4',
                'rm -rf "$HOME/.npm"',
            ),
            command=(
                'exec "$HOME/qwen/node_modules/.bin/qwen" --auth-type openai --openai-base-url "$OPENAI_BASE_URL" '
                '--openai-api-key "$OPENAI_API_KEY" --model "$SWARM_MODEL" --yolo < "$SWARM_TASK_FILE"'
            ),
            env={"QWEN_TELEMETRY_ENABLED": "0"},
        ),
    }
)


class Notes(Frozen):
    """What is known of a shipped agent: whether it asks for native tool calls, and how its recipe was tried."""

    native: bool
    tried: str


_TO_A_PULL_REQUEST = "bubblewrap, to a pull request"
NOTES: Mapping[str, Notes] = MappingProxyType(
    {
        "mini-swe-agent": Notes(native=True, tried=f"{_TO_A_PULL_REQUEST}; a real model too"),
        "aider": Notes(native=False, tried=_TO_A_PULL_REQUEST),
        "codex": Notes(native=True, tried=_TO_A_PULL_REQUEST),
        "opencode": Notes(native=True, tried=_TO_A_PULL_REQUEST),
        "openhands": Notes(native=True, tried=f"{_TO_A_PULL_REQUEST}; it needs Python 3.12 inside, no other"),
        "qwen-code": Notes(native=True, tried=f"{_TO_A_PULL_REQUEST}, with Node 20; it asks for 22"),
    }
)
