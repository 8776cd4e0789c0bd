"""The pretend server's metrics page, under the names of vLLM 0.32; pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

BUCKETS = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0)
FINISHES = ("stop", "length", "abort", "error", "repetition")
REJECTIONS = ("max_num_queued_reqs", "max_num_queued_tokens")
SLEEPS = ("awake", "weights_offloaded", "discard_all")


@dataclass
class Latency:
    """A histogram of seconds."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS) + 1))
    total: float = 0.0

    def take(self, seconds: float) -> None:
        """Count one."""
        self.counts[next((i for i, edge in enumerate(BUCKETS) if seconds <= edge), len(BUCKETS))] += 1
        self.total += seconds


@dataclass
class Numbers:
    """What the page tells. ``blocks`` is None for a server without a KV cache of its own."""

    running: int = 0
    waiting: int = 0
    kv_usage: float = 0.0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    generated: int = 0
    steps: int = 0
    preemptions: int = 0
    queries: int = 0
    hits: int = 0
    blocks: int | None = None
    block_size: int = 16
    caching: bool = True
    finished: dict[str, int] = field(default_factory=dict)
    rejected: int = 0
    ttft: Latency = field(default_factory=Latency)
    lost: float = 0.0
    started: float = 0.0


Sample = tuple[str, str, float]


def page(model: str, numbers: Numbers) -> str:
    """The Prometheus text."""
    return "\n".join(_lines(model, numbers)) + "\n"


def _lines(model: str, n: Numbers) -> Iterator[str]:
    gauges = {"num_requests_running": n.running, "num_requests_waiting": n.waiting, "kv_cache_usage_perc": n.kv_usage}
    counters = {
        "prompt_tokens": n.prompt_tokens,
        "prompt_tokens_cached": n.cached_tokens,
        "generation_tokens": n.generated,
        "num_preemptions": n.preemptions,
        "prefix_cache_queries": n.queries,
        "prefix_cache_hits": n.hits,
    }
    for name, value in gauges.items():
        yield from _family(model, name, "gauge", [("", "", value)])
    for name, value in counters.items():
        yield from _family(model, name, "counter", [("_total", "", value)])
    reasons = [
        ("", f'reason="{reason}"', n.waiting if reason == "capacity" else 0) for reason in ("capacity", "deferred")
    ]
    yield from _family(model, "num_requests_waiting_by_reason", "gauge", reasons)
    done = [("_total", f'finished_reason="{reason}"', n.finished.get(reason, 0)) for reason in FINISHES]
    yield from _family(model, "request_success", "counter", done)
    refused = [("_total", f'reason="{why}"', n.rejected if why == REJECTIONS[0] else 0) for why in REJECTIONS]
    yield from _family(model, "admission_rejections", "counter", refused)
    asleep = [("", f'sleep_state="{state}"', int(state == "awake")) for state in SLEEPS]
    yield from _family(model, "engine_sleep_state", "gauge", asleep)
    yield from _family(model, "cache_config_info", "gauge", [("", _cache_labels(n), 1)])
    steps: list[Sample] = [("_sum", "", n.generated), ("_count", "", n.steps), ("_bucket", 'le="+Inf"', n.steps)]
    yield from _family(model, "iteration_tokens_total", "histogram", steps)
    yield from _family(model, "time_to_first_token_seconds", "histogram", _histogram(n.ttft))
    yield "# TYPE process_start_time_seconds gauge"
    yield f"process_start_time_seconds {n.started}"
    yield "# TYPE pretend:lost_seconds counter"  # not vLLM's: by how much this program could not keep up with its clock
    yield f"pretend:lost_seconds_total {n.lost}"


def _histogram(latency: Latency) -> list[Sample]:
    edges = [*(str(edge) for edge in BUCKETS), "+Inf"]
    samples = [("_bucket", f'le="{edge}"', n) for edge, n in zip(edges, accumulate(latency.counts), strict=True)]
    return [*samples, ("_sum", "", latency.total), ("_count", "", sum(latency.counts))]


def _cache_labels(n: Numbers) -> str:
    labels = {
        "block_size": n.block_size,
        "enable_prefix_caching": n.caching,
        "kv_cache_size_tokens": None if n.blocks is None else n.blocks * n.block_size,
        "num_gpu_blocks": n.blocks,
    }
    return ",".join(f'{name}="{value}"' for name, value in labels.items())


def _family(model: str, name: str, kind: str, samples: Sequence[Sample]) -> Iterator[str]:
    yield f"# TYPE vllm:{name} {kind}"
    for suffix, labels, value in samples:
        more = f",{labels}" if labels else ""
        yield f'vllm:{name}{suffix}{{engine="0",model_name="{model}"{more}}} {value}'
