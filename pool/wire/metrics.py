"""Reads the Prometheus text of vLLM and of llama.cpp's server into one Snapshot; pure.

Names: vLLM's metrics page (its v1 engine: `gpu_cache_usage_perc` and friends are gone) and llama.cpp's server README.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from pool.types import Frozen

RUNNING = ("vllm:num_requests_running", "llamacpp:requests_processing")
WAITING = ("vllm:num_requests_waiting", "llamacpp:requests_deferred")
PROMPT = ("vllm:prompt_tokens_total", "llamacpp:prompt_tokens_total")
CACHED = ("vllm:prompt_tokens_cached_total", "llamacpp:prompt_tokens_cached_total")
GENERATED = ("vllm:generation_tokens_total", "llamacpp:tokens_predicted_total")
STEPS = ("vllm:iteration_tokens_total_count",)  # llama.cpp's n_decode_total stands still until a request is done
PREEMPTIONS = ("vllm:num_preemptions_total",)
KV_USAGE = "vllm:kv_cache_usage_perc"
CACHE_INFO = "vllm:cache_config_info"


class Snapshot(Frozen):
    """What a server said of its load. None means that it did not say, which is neither zero nor full.

    Counts are summed over the engines of a server; ``kv_usage`` is the fullest engine's, from 0 to 1. The counters
    only grow while a server lives. ``steps`` are engine steps, the heartbeat; only vLLM tells them as they happen.
    """

    running: int | None = None
    waiting: int | None = None
    kv_usage: float | None = None
    kv_tokens: int | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    generated_tokens: int | None = None
    steps: int | None = None
    preemptions: int | None = None

    @property
    def load(self) -> int | None:
        """Requests inside the server, waiting ones included."""
        return None if self.running is None else self.running + (self.waiting or 0)

    @property
    def progress(self) -> tuple[int, int] | None:
        """Counters that move whenever the engine does; None where the server has none that do."""
        return None if self.steps is None else (self.steps, self.generated_tokens or 0)


def parse(text: str) -> Snapshot:
    """The snapshot in a scrape. Raises ValueError for text that is no Prometheus exposition."""
    samples: defaultdict[str, list[Sample]] = defaultdict(list)
    for sample in _samples(text):
        samples[sample.name].append(sample)

    def total(names: tuple[str, ...]) -> int | None:
        found = [sample.value for name in names for sample in samples[name]]
        return int(sum(found)) if found else None

    usages = [sample.value for sample in samples[KV_USAGE]]
    return Snapshot(
        running=total(RUNNING),
        waiting=total(WAITING),
        kv_usage=max(usages) if usages else None,
        kv_tokens=_kv_tokens(samples[CACHE_INFO]),
        prompt_tokens=total(PROMPT),
        cached_tokens=total(CACHED),
        generated_tokens=total(GENERATED),
        steps=total(STEPS),
        preemptions=total(PREEMPTIONS),
    )


def _samples(text: str) -> Iterator[Sample]:
    for family in text_string_to_metric_families(text):
        yield from family.samples


def _kv_tokens(infos: list[Sample]) -> int | None:
    """Tokens that fit the KV cache: told outright by newer servers, else blocks times block size."""
    total = 0
    for info in infos:
        labels = info.labels
        told = labels.get("kv_cache_size_tokens", "")
        blocks, size = labels.get("num_gpu_blocks", ""), labels.get("block_size", "")
        if told.isdigit():
            total += int(told)
        elif blocks.isdigit() and size.isdigit():
            total += int(blocks) * int(size)
    return total or None
