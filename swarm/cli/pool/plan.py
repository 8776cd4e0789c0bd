"""`swarm pool plan`: whether a model fits a GPU, split how, and for how many agents, with the reason of each figure."""

from __future__ import annotations

from typing import Annotated

import typer

from pool.profiles.catalogue import find
from pool.profiles.gpus import gpu
from pool.profiles.sizing import Plan
from swarm.cli import screen
from swarm.cli.door import JsonOption
from swarm.cli.exits import Code
from swarm.cli.pool.wishes import (
    Asked,
    CountOption,
    HostMemoryOption,
    KvBitsOption,
    SessionsOption,
    WindowOption,
    mended,
    planned,
)

ModelArgument = Annotated[str, typer.Argument(help="A Hugging Face folder, or a known model's name.", metavar="MODEL")]
GpuArgument = Annotated[str, typer.Argument(help="For example h100, a100-40, rtx4090; or cpu.", metavar="GPU")]


def plan(
    model: ModelArgument,
    on: GpuArgument,
    count: CountOption = None,
    window: WindowOption = None,
    sessions: SessionsOption = None,
    kv_bits: KvBitsOption = 16,
    host_memory: HostMemoryOption = None,
    json: JsonOption = False,
) -> None:
    """Say whether a model fits, and what it holds; exit code 1 when it does not fit."""
    asked = Asked(model, on, count, window, sessions, kv_bits, host_memory)
    with mended():
        made = planned(asked, find(model), gpu(on))
    if json:
        screen.document(_document(made))
    else:
        _print(made)
    if not made.fits:
        raise typer.Exit(Code.FAULT)


def _document(made: Plan) -> dict[str, object]:
    split = made.split
    return {
        "model": made.model.name,
        "gpu": made.gpu.name,
        "fits": made.fits,
        "count": made.count,
        "tensor_parallel": split.tensor_parallel,
        "replicas": made.replicas,
        "window": made.window,
        "sessions": made.sessions,
        "kv_bytes_per_token": split.per_token * split.tensor_parallel,
        "kv_tokens_per_server": split.tokens(made.window),
        "weight_bytes": made.model.bytes_of_weights,
        "figures": [line.model_dump() for line in made.lines],
        "remedies": list(made.remedies),
    }


def _print(made: Plan) -> None:
    verdict = "fits" if made.fits else "does not fit"
    screen.say(f"{made.model.name} {verdict} {made.where}\n")
    screen.table(("what", "value", "because"), [(line.what, line.value, line.why) for line in made.lines])
    for remedy in (*made.remedies, *made.model.notes):
        screen.hint(f"- {remedy}")
