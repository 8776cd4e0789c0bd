"""Whether a model fits some GPUs, split how, and for how many agents at once: sums, each with its assumption."""

from __future__ import annotations

from pool.profiles.gpus import GIB, Gpu
from pool.profiles.models import Model
from pool.types import Frozen

UTILIZATION = 0.92
"""vLLM's default --gpu-memory-utilization."""
OVERHEAD = 2.0
OVERHEAD_SPLIT = 0.5
"""GiB a GPU for activations and CUDA graphs, and more of it where GPUs talk. vLLM measures the true ones at start."""
SPLITS = (1, 2, 4, 8, 16, 32)
STEP = 4096
"""Windows are cut to a multiple of this where they are cut at all."""
CPU_SPACE = 4.0
"""GiB of KV cache on a CPU where nothing else is said."""


class Line(Frozen):
    """One figure of a plan: what, how much, and what it rests on."""

    what: str
    value: str
    why: str


class Split(Frozen):
    """One server over ``tensor_parallel`` GPUs. Sizes in bytes, of one GPU; ``room`` is what is left for KV."""

    tensor_parallel: int
    room: int
    per_token: int
    fixed: int

    def tokens(self, window: int) -> int:
        """Tokens of KV that the server holds, contexts of ``window`` assumed."""
        spare = self.room - self.fixed * self.sessions(window)
        return max(0, spare // self.per_token) if self.per_token else 0

    def sessions(self, window: int) -> int:
        """Contexts of ``window`` tokens that fit at once."""
        return max(0, self.room // max(1, window * self.per_token + self.fixed))

    @property
    def longest(self) -> int:
        """The longest single context."""
        return max(0, (self.room - self.fixed) // max(1, self.per_token))


class Wanted(Frozen):
    """What a plan is asked for. None leaves it to the plan. ``kv_bits`` is 16, or 8 with an 8-bit KV cache."""

    count: int | None = None
    window: int | None = None
    sessions: int | None = None
    kv_bits: int = 16
    utilization: float = UTILIZATION
    host_memory: float | None = None


class Plan(Frozen):
    """The answer. ``fits`` is False where not even one context of the window does; ``remedies`` say what would help."""

    model: Model
    gpu: Gpu
    wanted: Wanted
    count: int
    replicas: int
    window: int
    split: Split
    fits: bool
    lines: tuple[Line, ...] = ()
    remedies: tuple[str, ...] = ()

    @property
    def where(self) -> str:
        """What it was planned for, in words."""
        return "a CPU" if self.gpu.maker == "cpu" else f"{self.count} x {self.gpu.name}"

    @property
    def sessions(self) -> int:
        """Agents that hold a full window at once, over all replicas."""
        return self.replicas * self.split.sessions(self.window)


def kv_bits_of(wanted: Wanted, gpu: Gpu) -> int:
    """Bits of one cached value: as asked, but on a CPU the profile computes, and caches, in float32."""
    return 32 if gpu.maker == "cpu" else wanted.kv_bits


def loaded(model: Model, gpu: Gpu) -> int | None:
    """Bytes of the weights in memory: on a GPU vLLM casts float32 ones to 16 bit (--dtype auto)."""
    size = model.bytes_of_weights
    return size // 2 if size is not None and model.stored == "float32" and gpu.maker != "cpu" else size


def split(model: Model, gpu: Gpu, tensor_parallel: int, wanted: Wanted) -> Split:
    """What one server over so many GPUs has left for KV. Weights of unknown size count as nothing."""
    weights = loaded(model, gpu) or 0
    values, width = model.shape.kv_values(tensor_parallel), kv_bits_of(wanted, gpu) / 8
    if gpu.maker == "cpu":
        room = int((wanted.host_memory or CPU_SPACE) * GIB)
    else:
        overhead = OVERHEAD + (OVERHEAD_SPLIT if tensor_parallel > 1 else 0)
        room = int((gpu.memory * wanted.utilization - overhead) * GIB - weights / tensor_parallel)
    return Split(
        tensor_parallel=tensor_parallel,
        room=room,
        per_token=int(model.shape.full * values * width),
        fixed=int(model.shape.sliding * model.shape.reach * values * width),
    )


def splits(model: Model, gpu: Gpu, wanted: Wanted) -> list[Split]:
    """The ways to split the model over at most as many GPUs as asked: powers of two that divide its heads."""
    most = 1 if gpu.maker == "cpu" else (wanted.count or SPLITS[-1])
    return [split(model, gpu, n, wanted) for n in SPLITS if n <= most and model.shape.heads % n == 0]


def chosen(ways: list[Split], window: int, wanted: Wanted) -> Split:
    """The narrowest split that holds one context of the window; a wider one where the sessions ask for it."""
    able = [way for way in ways if way.sessions(window) > 0]
    if not able:
        return max(ways, key=lambda way: way.longest)
    if not wanted.sessions or not wanted.count:
        return able[0]
    count = wanted.count

    def held(way: Split) -> int:
        return count // way.tensor_parallel * way.sessions(window)

    return next((way for way in able if held(way) >= (wanted.sessions or 0)), max(able, key=held))


def too_long(model: Model, window: int | None) -> str:
    """The remark for a window that is longer than the model's own; empty for any other."""
    if window is None or model.window is None or window <= model.window:
        return ""
    return f"a window of {window} tokens was asked for; {model.name} has {model.window}, which is taken"


def longest_window(model: Model, ways: list[Split], wanted: Wanted) -> int:
    """The window to plan for: as asked, but never past the model's own; else its own, or what of it fits."""
    own = model.window or 32768
    if wanted.window:
        return min(wanted.window, model.window or wanted.window)
    if wanted.count is None:
        return own  # as many GPUs as it takes
    fits = max(way.longest for way in ways)
    return own if fits >= own or fits < STEP else fits // STEP * STEP
