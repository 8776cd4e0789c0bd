"""Makes the plan for a model on some GPUs, and says in words what each of its figures rests on. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator

from pool.profiles.gpus import GIB, Gpu
from pool.profiles.models import BITS, Model
from pool.profiles.sizing import (
    CPU_SPACE,
    OVERHEAD,
    Line,
    Plan,
    Wanted,
    chosen,
    kv_bits_of,
    loaded,
    longest_window,
    splits,
    too_long,
)


def plan(model: Model, gpu: Gpu, wanted: Wanted) -> Plan:
    """How the model would be served on that GPU."""
    ways = splits(model, gpu, wanted)
    one = {"count": 1} if gpu.maker == "cpu" else {}
    window = longest_window(model, ways, wanted.model_copy(update=one))
    way = chosen(ways, window, wanted)
    fits = way.sessions(window) > 0
    per_server = max(1, way.sessions(window))
    needed = -(-(wanted.sessions or 1) // per_server)  # servers for the sessions asked for
    count = 1 if gpu.maker == "cpu" else wanted.count or way.tensor_parallel * needed
    made = Plan(
        model=model,
        gpu=gpu,
        wanted=wanted,
        count=count,
        replicas=max(1, count // way.tensor_parallel),
        window=window,
        split=way,
        fits=fits,
    )
    return made.model_copy(update={"lines": tuple(_lines(made)), "remedies": tuple(_remedies(made))})


def gib(size: float) -> str:
    """Bytes as GiB for people."""
    return f"{size / GIB:.1f} GiB" if size >= GIB / 10 else f"{size / (1 << 20):.1f} MiB"


def _lines(made: Plan) -> list[Line]:
    return [*_weights(made), *_memory(made), *_capacity(made), *_speed(made)]


def _weights(made: Plan) -> list[Line]:
    model = made.model
    size = loaded(model, made.gpu)
    cast = "; cast from float32 to 16 bit" if size != model.bytes_of_weights else ""
    lines = [
        Line(
            what="weights",
            value=gib(size) if size else "unknown",
            why=model.weights_from + cast
            if size
            else "neither its files nor its parameter count are known; taken as 0 below",
        )
    ]
    if model.parameters:
        active = f", {model.active / 1e9:.1f}B used for one token" if model.experts and model.active else ""
        lines.append(
            Line(what="parameters", value=f"{model.parameters / 1e9:.1f}B{active}", why="counted from its sizes")
        )
    return lines


def _memory(made: Plan) -> list[Line]:
    way, gpu = made.split, made.gpu
    if gpu.maker == "cpu":
        given = made.wanted.host_memory is not None
        why = (
            "as asked (VLLM_CPU_KVCACHE_SPACE)" if given else f"{CPU_SPACE:g} GiB assumed; --host-memory says otherwise"
        )
        return [Line(what="room for KV", value=gib(way.room), why=f"{why}; the weights come on top of it")]
    apart = f"{way.tensor_parallel} GPUs a server" if way.tensor_parallel > 1 else "1 GPU a server"
    choice = "the one with room for most agents" if made.wanted.sessions else "the narrowest split that fits"
    link = "" if way.tensor_parallel == 1 or gpu.linked else "; over PCIe, which slows each layer's exchange"
    return [
        Line(what="tensor parallel", value=str(way.tensor_parallel), why=f"{choice}: {apart}{link}"),
        Line(
            what="room for KV, each GPU",
            value=gib(way.room) if way.room > 0 else f"none: {gib(-way.room)} too little",
            why=(
                f"{gpu.memory:g} GiB x {made.wanted.utilization:g} (--gpu-memory-utilization), less the weights and "
                f"{OVERHEAD:g} GiB or so assumed for activations and graphs, which vLLM measures at start"
            ),
        ),
    ]


def _capacity(made: Plan) -> list[Line]:
    model, way, shape = made.model, made.split, made.model.shape
    bits = kv_bits_of(made.wanted, made.gpu)
    on_cpu = made.gpu.maker == "cpu"
    if shape.latent is not None:
        form = f"MLA: {shape.latent} values x {shape.full} layers x {bits} bits" + (
            "" if on_cpu else "; every GPU holds all of it"
        )
    else:
        heads = -(-shape.kv_heads // way.tensor_parallel)
        form = f"2 x {heads} KV heads x {shape.head_dim} x {shape.full} layers x {bits} bits" + (
            "" if on_cpu else ", on each GPU"
        )
    if shape.sliding:
        form += f"; {shape.sliding} sliding layers hold {shape.reach} tokens, {gib(way.fixed)} a context"
    if shape.linear:
        form += f"; the states of {shape.linear} linear layers are not counted"
    own = f"the model's own is {model.window}" if model.window else "the model's own is unknown"
    if model.window and made.window < model.window and made.wanted.window is None:
        own = f"cut to what fits; {own}"
    servers = "1 server" if made.replicas == 1 else f"{made.replicas} servers"
    gpus = "" if on_cpu else f", {made.count} GPU{'s' if made.count > 1 else ''} in all"
    return [
        Line(what="KV a token", value=f"{way.per_token / 1024:.1f} KiB", why=form),
        Line(what="window", value=f"{made.window} tokens", why=own),
        Line(
            what="KV tokens, each server",
            value=f"{way.tokens(made.window):,}",
            why="room over KV a token; prefixes that agents share count once, so real ones hold more",
        ),
        Line(
            what="agents at the full window",
            value=f"{made.sessions}",
            why=f"{way.sessions(made.window)} a server x {servers}{gpus}",
        ),
    ]


def _speed(made: Plan) -> list[Line]:
    gpu, model = made.gpu, made.model
    if not gpu.bandwidth or not model.active or not made.fits:
        return []
    size, parameters = loaded(model, gpu), model.parameters
    each = size / parameters if size and parameters else BITS[model.stored] / 8
    most = made.split.tensor_parallel * gpu.bandwidth * 1e9 / (model.active * each)
    why = "memory bandwidth over the weights read for one token: a ceiling, KV and exchanges come on top"
    return [Line(what="one stream, at most", value=f"{most:.0f} tokens/s", why=why)]


def _remedies(made: Plan) -> list[str]:
    on_cpu = made.gpu.maker == "cpu"
    found: list[str] = []
    if not made.fits:
        found += _fitting_cpu(made) if on_cpu else _fitting(made)
    elif made.wanted.sessions and made.sessions < made.wanted.sessions:
        found.append(f"{made.wanted.sessions} agents were asked for and {made.sessions} fit; the others' KV is evicted")
        more = f"--host-memory {_memory_for(made, made.wanted.sessions)} holds it"
        found.append(more if on_cpu else "profile offload keeps it in host memory: " + _offload(made))
    half = made.fits or 2 * made.split.longest >= made.window  # a smaller cache helps where the weights alone fit
    if half and made.gpu.fp8 and made.wanted.kv_bits == 16 and (found or made.sessions < 4):
        found.append("--kv-bits 8 (--kv-cache-dtype fp8) doubles the tokens that fit, at some cost in accuracy")
    return [*_otherwise(made), *found, *_formats(made)]


def _otherwise(made: Plan) -> Iterator[str]:
    """What was planned otherwise than it was asked."""
    if remark := too_long(made.model, made.wanted.window):
        yield remark
    if made.gpu.maker == "cpu" and (made.wanted.count or 1) > 1:
        yield "a plan for a CPU is of one server: --count counts GPUs, and is left out"


def _fitting_cpu(made: Plan) -> list[str]:
    longest = made.split.longest // 1024 * 1024
    shorter = f"--window {longest} does, and " if longest >= 1024 else ""
    enough = f"--host-memory {_memory_for(made, 1)} (GiB) holds it"
    return [f"one context of {made.window} tokens does not fit; {shorter}{enough}"]


def _memory_for(made: Plan, sessions: int) -> int:
    """Whole GiB of KV cache for so many contexts."""
    return math.ceil(sessions * (made.window * made.split.per_token + made.split.fixed) / GIB)


def _fitting(made: Plan) -> list[str]:
    longest = made.split.longest // 1024 * 1024
    if longest >= 1024:
        return [f"one context of {made.window} tokens does not fit; --window {longest} does"]
    wider = splits(made.model, made.gpu, made.wanted.model_copy(update={"count": None}))
    for way in wider:
        if way.sessions(made.window) > 0:
            return [f"it does not fit {made.count} of this GPU; {way.tensor_parallel} of them hold it (--count)"]
    return ["it fits no number of this GPU up to 32; take weights of fewer bits, or a larger GPU"]


def _offload(made: Plan) -> str:
    context = made.window * made.split.per_token * made.split.tensor_parallel
    return f"{gib(context)} for each full context"


def _formats(made: Plan) -> list[str]:
    stored, gpu = made.model.stored, made.gpu
    if gpu.maker == "cpu":
        return []
    if stored == "fp8" and not gpu.fp8:
        return [
            "this GPU has no 8-bit float units: the weights stay packed and are computed in 16 bit, slower in prefill"
        ]
    if stored == "mxfp4" and not gpu.mxfp4:
        return ["this GPU has no 4-bit float units: the experts stay packed and are computed in 16 bit"]
    return []
