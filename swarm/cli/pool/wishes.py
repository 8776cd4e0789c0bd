"""The options that plan, recipe and up share, and what is made of them: a plan, then a wish for a recipe."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, NamedTuple

import typer
from platformdirs import user_state_path

from pool.errors import PoolConfigError
from pool.profiles.catalogue import find
from pool.profiles.checking import libraries
from pool.profiles.gpus import Gpu, gpu
from pool.profiles.models import Model
from pool.profiles.pieces import Wish
from pool.profiles.plan import plan
from pool.profiles.sizing import Plan, Wanted, too_long
from swarm.errors import ConfigError

ModelOption = Annotated[
    str, typer.Option("--model", help="A Hugging Face folder, or a known model's name.", show_default=False)
]
GpuOption = Annotated[
    str | None,
    typer.Option(
        "--gpu", help="The GPU, for example h100 or rtx4090; or cpu.", show_default="none: sizes are left to vLLM"
    ),
]
CountOption = Annotated[
    int | None, typer.Option("--count", min=1, max=64, help="How many of that GPU.", show_default="as many as it takes")
]
WindowOption = Annotated[
    int | None,
    typer.Option(
        "--window", min=256, help="Context of each agent, in tokens.", show_default="the model's own, or what fits"
    ),
]
SessionsOption = Annotated[
    int | None, typer.Option("--sessions", min=1, help="Agents at once that should fit.", show_default="what fits")
]
KvBitsOption = Annotated[int, typer.Option("--kv-bits", help="Bits of a cached value: 16 or 8.")]
HostMemoryOption = Annotated[
    float | None,
    typer.Option("--host-memory", min=0.1, help="GiB of host memory for KV.", show_default="4 on a CPU, 32 to offload"),
]
PortOption = Annotated[int, typer.Option("--port", min=1, max=65534, help="Port of the first server.")]
ConnectorOption = Annotated[
    str | None,
    typer.Option(
        "--connector",
        help="Who moves KV (native, lmcache, mooncake, nixl, flexkv), as the profile offers.",
        show_default="the profile's own",
    ),
]
DraftOption = Annotated[
    str | None, typer.Option("--draft-model", help="An EAGLE-3 head, for profile speculative.", show_default="n-grams")
]
ToolParserOption = Annotated[
    str | None, typer.Option("--tool-parser", help="vLLM's name of the tool call parser.", show_default="the model's")
]
ReasoningOption = Annotated[
    str | None, typer.Option("--reasoning-parser", help="The same of the reasoning parser.", show_default="the model's")
]
TemplateOption = Annotated[
    str | None, typer.Option("--chat-template", help="A chat template's file.", show_default="the model's")
]
PythonOption = Annotated[
    str | None, typer.Option("--python", help="The Python that vLLM is installed for.", show_default="that of `vllm`")
]


class Asked(NamedTuple):
    """What was said on the command line."""

    model: str
    gpu: str | None = None
    gpus: int | None = None
    window: int | None = None
    sessions: int | None = None
    kv_bits: int = 16
    host_memory: float | None = None
    port: int = 8000
    connector: str | None = None
    draft: str | None = None
    tool_parser: str | None = None
    reasoning_parser: str | None = None
    chat_template: str | None = None


@contextmanager
def mended() -> Iterator[None]:
    """What the profiles refuse is a setting of the caller's, and is told as one."""
    try:
        yield
    except PoolConfigError as error:
        raise ConfigError(str(error), "see what this command takes with --help") from None


def planned(asked: Asked, model: Model, on: Gpu) -> Plan:
    """The plan for what was asked. Raises ConfigError for bits that no KV cache has."""
    if asked.kv_bits not in {8, 16}:
        raise ConfigError(f"a KV cache has no values of {asked.kv_bits} bits", "--kv-bits 16, or 8")
    wanted = Wanted(
        count=asked.gpus,
        window=asked.window,
        sessions=asked.sessions,
        kv_bits=asked.kv_bits,
        host_memory=asked.host_memory,
    )
    return plan(model, on, wanted)


def wish(asked: Asked, profile: str, python: str | None) -> Wish:
    """The wish for a recipe: sizes from a plan where a GPU was named, else as told or left to vLLM.

    Raises PoolConfigError for an unknown model or GPU, ConfigError where the plan says that it does not fit.
    """
    model = find(asked.model)
    name = "cpu" if profile == "cpu" and asked.gpu is None else asked.gpu
    on = gpu(name) if name else None
    made = planned(asked, model, on) if on else None
    if made and not made.fits:
        why = "; ".join(made.remedies) or "see `swarm pool plan`"
        raise ConfigError(f"{model.name} does not fit {made.where} at {made.window} tokens", why)
    folder = Path(asked.model).expanduser()
    return Wish.model_validate(
        {
            "profile": profile,
            "model": model,
            "path": str(folder.resolve()) if folder.is_dir() else model.name,
            "name": model.name,
            "run": user_state_path("agent-swarm") / "pool",
            "gpu": on,
            "tensor_parallel": made.split.tensor_parallel if made else asked.gpus or 1,
            "replicas": made.replicas if made else 1,
            "window": made.window if made else min(filter(None, (asked.window, model.window)), default=None),
            "sessions": made.split.sessions(made.window) if made else asked.sessions,
            "port": asked.port,
            "kv_bits": asked.kv_bits,
            "connector": asked.connector,
            "host_memory": asked.host_memory,
            "draft": asked.draft or None,
            "tool_parser": asked.tool_parser,
            "reasoning_parser": asked.reasoning_parser,
            "chat_template": asked.chat_template,
            "libraries": libraries(python) if python else (),
            "notes": (remark,) if (remark := too_long(model, asked.window)) else (),
        }
    )


def found_python(given: str | None) -> str | None:
    """The Python to ask: as given, else the one beside the `vllm` on PATH; None where there is none."""
    if given:
        return given
    command = shutil.which("vllm")
    beside = Path(command).resolve().parent / "python" if command else None
    return str(beside) if beside and beside.exists() else None
