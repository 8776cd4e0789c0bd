"""Reads the Prometheus text of vLLM and of llama.cpp's server into one Snapshot; pure.

Names: vLLM's metrics page (its v1 engine: `gpu_cache_usage_perc` and friends are gone) and llama.cpp's server README.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample
from pydantic import Field

from pool.types import Frozen

RUNNING = ("vllm:num_requests_running", "llamacpp:requests_processing")
WAITING = ("vllm:num_requests_waiting", "llamacpp:requests_deferred")
PROMPT = ("vllm:prompt_tokens_total", "llamacpp:prompt_tokens_total")
CACHED = ("vllm:prompt_tokens_cached_total", "llamacpp:prompt_tokens_cached_total")
GENERATED = ("vllm:generation_tokens_total", "llamacpp:tokens_predicted_total")
STEPS = ("vllm:iteration_tokens_total_count",)  # llama.cpp's n_decode_total stands still until a request is done
PREEMPTIONS = ("vllm:num_preemptions_total",)
QUERIES = ("vllm:prefix_cache_queries_total",)
HITS = ("vllm:prefix_cache_hits_total",)
EXTERNAL_QUERIES = ("vllm:external_prefix_cache_queries_total",)
EXTERNAL_HITS = ("vllm:external_prefix_cache_hits_total",)
TTFT = "vllm:time_to_first_token_seconds"
QUEUED = "vllm:request_queue_time_seconds"
KV_USAGE = ("vllm:kv_cache_usage_perc", "llamacpp:kv_cache_usage_ratio")
REASONS = "vllm:num_requests_waiting_by_reason"
REJECTIONS = "vllm:admission_rejections_total"
SLEEP = "vllm:engine_sleep_state"
CACHE_INFO = "vllm:cache_config_info"
STARTED = "process_start_time_seconds"

READ = {
    *RUNNING, *WAITING, *PROMPT, *CACHED, *GENERATED, *STEPS, *PREEMPTIONS, *QUERIES, *HITS, *EXTERNAL_QUERIES,
    *EXTERNAL_HITS, *KV_USAGE, f"{TTFT}_sum", f"{TTFT}_count", f"{QUEUED}_sum", f"{QUEUED}_count", REASONS, REJECTIONS,
    SLEEP, CACHE_INFO, STARTED,
}  # fmt: skip
NAME = re.compile(r"^([a-zA-Z_:][a-zA-Z0-9_:]*)", re.MULTILINE)
FAMILY = re.compile(r"^# TYPE ((?:vllm|llamacpp):\S+)", re.MULTILINE)
CPU_BLOCK = "128"  # tokens of a block that vLLM chooses by itself on CPU; accelerators take 16 to 64, some models apart

Samples = dict[str, list[Sample]]


class Engine(Frozen):
    """One engine of a server under data parallelism."""

    name: str
    running: int | None = None
    waiting: int | None = None
    kv_usage: float | None = None


class Cache(Frozen):
    """How a server's KV cache is made. ``tokens`` and ``concurrency`` (whole windows that fit) over all engines."""

    block_tokens: int | None = None
    tokens: int | None = None
    concurrency: float | None = None
    prefix_caching: bool | None = None
    on_cpu: bool | None = None


class Snapshot(Frozen):
    """What a server said of its load. None means that it did not say, which is neither zero nor full.

    Counts are summed over the engines of a server; ``kv_usage`` is the fullest engine's, from 0 to 1, ``kv_usage_mean``
    that of all. The counters only grow while a server lives. ``steps`` are engine steps, the heartbeat; only vLLM tells
    them as they happen. ``prefix_*`` are prompt tokens looked up in its prefix cache and found there, ``external_*`` in
    a cache outside; ``*_seconds`` are sums over ``*_count`` requests. ``started`` is when its process began (epoch).
    """

    running: int | None = None
    waiting: int | None = None
    waiting_by_reason: dict[str, int] = Field(default_factory=dict)
    kv_usage: float | None = None
    kv_usage_mean: float | None = None
    kv_tokens: int | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    generated_tokens: int | None = None
    steps: int | None = None
    preemptions: int | None = None
    prefix_queries: int | None = None
    prefix_hits: int | None = None
    external_queries: int | None = None
    external_hits: int | None = None
    rejections: int | None = None
    ttft_seconds: float | None = None
    ttft_count: int | None = None
    queue_seconds: float | None = None
    queue_count: int | None = None
    asleep: bool | None = None
    started: float | None = None
    cache: Cache = Cache()
    engines: tuple[Engine, ...] = ()
    families: frozenset[str] = frozenset()

    @property
    def load(self) -> int | None:
        """Requests inside the server, waiting ones included."""
        return None if self.running is None else self.running + (self.waiting or 0)

    @property
    def progress(self) -> tuple[int, int] | None:
        """Counters that move whenever the engine does; None where the server has none that do."""
        return None if self.steps is None else (self.steps, self.generated_tokens or 0)

    def hit_rate(self, since: Snapshot | None = None) -> float | None:
        """The share of prompt tokens that the prefix cache gave, since an earlier scrape or since its start."""
        asked, found = self.prefix_queries, self.prefix_hits
        if asked is None or found is None:
            return None
        if since is not None:
            asked, found = asked - (since.prefix_queries or 0), found - (since.prefix_hits or 0)
        return found / asked if asked > 0 else None


def restarted(before: Snapshot | None, after: Snapshot | None) -> bool:
    """Whether the server is another process than it was: it began later, or a counter went back."""
    if before is None or after is None:
        return False
    if before.started is not None and after.started is not None and after.started > before.started + 1:
        return True
    counters = ("prompt_tokens", "generated_tokens", "steps", "prefix_queries")
    pairs = ((getattr(before, name), getattr(after, name)) for name in counters)
    return any(old is not None and new is not None and new < old for old, new in pairs)


def parse(text: str) -> Snapshot:
    """The snapshot in a scrape. Raises ValueError for text that is no Prometheus exposition."""
    samples: defaultdict[str, list[Sample]] = defaultdict(list)
    for family in text_string_to_metric_families(_relevant(text)):
        for sample in family.samples:
            samples[sample.name].append(sample)
    prompt, cached = _total(samples, PROMPT), _total(samples, CACHED)
    queries, hits = _total(samples, QUERIES), _total(samples, HITS)
    if queries is None and prompt is not None and cached is not None and samples[PROMPT[1]]:
        queries, hits = prompt + cached, cached  # llama.cpp counts the cached ones apart
    usages = [sample.value for name in KV_USAGE for sample in samples[name]]
    cache = _cache(samples[CACHE_INFO])
    return Snapshot(
        running=_total(samples, RUNNING),
        waiting=_total(samples, WAITING),
        waiting_by_reason=_by(samples[REASONS], "reason"),
        kv_usage=max(usages, default=None),
        kv_usage_mean=sum(usages) / len(usages) if usages else None,
        kv_tokens=cache.tokens,
        prompt_tokens=prompt,
        cached_tokens=cached,
        generated_tokens=_total(samples, GENERATED),
        steps=_total(samples, STEPS),
        preemptions=_total(samples, PREEMPTIONS),
        prefix_queries=queries,
        prefix_hits=hits,
        external_queries=_total(samples, EXTERNAL_QUERIES),
        external_hits=_total(samples, EXTERNAL_HITS),
        rejections=_total(samples, (REJECTIONS,)),
        ttft_seconds=_sum(samples[f"{TTFT}_sum"]),
        ttft_count=_total(samples, (f"{TTFT}_count",)),
        queue_seconds=_sum(samples[f"{QUEUED}_sum"]),
        queue_count=_total(samples, (f"{QUEUED}_count",)),
        asleep=_asleep(samples[SLEEP]),
        started=_sum(samples[STARTED]) if len(samples[STARTED]) == 1 else None,
        cache=cache,
        engines=_engines(samples),
        families=frozenset(FAMILY.findall(text)),
    )


def _relevant(text: str) -> str:
    """The lines that are read: a page is mostly histogram buckets, and parsing is what a scrape costs."""
    lines = [line for line in text.split("\n") if (head := NAME.match(line)) and head[1] in READ]
    return "\n".join([*lines, ""]) if lines else text


def _total(samples: Samples, names: tuple[str, ...]) -> int | None:
    total = _sum(sample for name in names for sample in samples[name])
    return None if total is None else int(total)


def _sum(found: Iterable[Sample]) -> float | None:
    values = [sample.value for sample in found]
    return sum(values) if values else None


def _by(found: Iterable[Sample], label: str) -> dict[str, int]:
    counts: defaultdict[str, int] = defaultdict(int)
    for sample in found:
        counts[sample.labels.get(label, "")] += int(sample.value)
    return dict(counts)


def _asleep(found: Iterable[Sample]) -> bool | None:
    """Whether any engine sleeps: its "awake" is then 0."""
    awake = [sample.value for sample in found if sample.labels.get("sleep_state") == "awake"]
    return not all(awake) if awake else None


def _engines(samples: Samples) -> tuple[Engine, ...]:
    names = dict.fromkeys(sample.labels.get("engine", "") for sample in samples[RUNNING[0]])
    return tuple(
        Engine(
            name=name,
            running=_total(_of(samples, name), RUNNING),
            waiting=_total(_of(samples, name), WAITING),
            kv_usage=_sum(_of(samples, name)[KV_USAGE[0]]),
        )
        for name in names
    )


def _of(samples: Samples, engine: str) -> Samples:
    names = (*RUNNING, *WAITING, *KV_USAGE)
    return {name: [one for one in samples[name] if one.labels.get("engine", "") == engine] for name in names}


def _cache(infos: list[Sample]) -> Cache:
    labels = [info.labels for info in infos]
    if not labels:
        return Cache()
    first = labels[0]
    sizes = [size for each in labels if (size := _tokens(each)) is not None]
    many = [float(told) for each in labels if (told := each.get("kv_cache_max_concurrency", "")) and _is_number(told)]
    return Cache(
        block_tokens=int(first["block_size"]) if first.get("block_size", "").isdigit() else None,
        tokens=sum(sizes) or None,
        concurrency=sum(many) or None,
        prefix_caching={"True": True, "False": False}.get(first.get("enable_prefix_caching", "")),
        on_cpu=_on_cpu(first),
    )


def _tokens(labels: dict[str, str]) -> int | None:
    """Tokens that fit one engine's KV cache: told outright by newer servers, else blocks times block size."""
    told, blocks, size = (labels.get(name, "") for name in ("kv_cache_size_tokens", "num_gpu_blocks", "block_size"))
    if told.isdigit():
        return int(told)
    return int(blocks) * int(size) if blocks.isdigit() and size.isdigit() else None


def _on_cpu(labels: dict[str, str]) -> bool | None:
    """No label says so outright: vLLM's own choice of block size on CPU, with a cache sized in bytes, gives it away."""
    if labels.get("cpu_kvcache_space_bytes", "").isdigit():
        return True
    if "user_specified_block_size" not in labels:
        return None
    chosen = labels["user_specified_block_size"] == "False" and labels.get("block_size") == CPU_BLOCK
    return chosen and labels.get("kv_cache_memory_bytes", "").isdigit()


def _is_number(text: str) -> bool:
    return re.fullmatch(r"\d+(\.\d+)?", text) is not None
