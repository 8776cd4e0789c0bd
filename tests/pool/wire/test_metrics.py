"""Scrapes of real servers, read; the lines were taken from vLLM 0.32 and llama.cpp (2026-10)."""

from __future__ import annotations

import time

import pytest

from pool.wire.metrics import Snapshot, parse, restarted

VLLM = """\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="smollm2"} 2.0
vllm:num_requests_running{engine="1",model_name="smollm2"} 1.0
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="smollm2"} 4.0
vllm:num_requests_waiting{engine="1",model_name="smollm2"} 0.0
# TYPE vllm:num_requests_waiting_by_reason gauge
vllm:num_requests_waiting_by_reason{engine="0",model_name="smollm2",reason="capacity"} 4.0
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="smollm2"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="smollm2"} 0.75
# TYPE vllm:num_preemptions_total counter
vllm:num_preemptions_total{engine="0",model_name="smollm2"} 3.0
# TYPE vllm:num_preemptions_created gauge
vllm:num_preemptions_created{engine="0",model_name="smollm2"} 1.795969906629418e+09
# TYPE vllm:prompt_tokens_total counter
vllm:prompt_tokens_total{engine="0",model_name="smollm2"} 3585.0
# TYPE vllm:prompt_tokens_cached_total counter
vllm:prompt_tokens_cached_total{engine="0",model_name="smollm2"} 1024.0
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{engine="0",model_name="smollm2"} 545.0
# TYPE vllm:iteration_tokens_total histogram
vllm:iteration_tokens_total_bucket{engine="0",le="1.0",model_name="smollm2"} 100.0
vllm:iteration_tokens_total_bucket{engine="0",le="+Inf",model_name="smollm2"} 207.0
vllm:iteration_tokens_total_count{engine="0",model_name="smollm2"} 207.0
vllm:iteration_tokens_total_sum{engine="0",model_name="smollm2"} 3106.0
# TYPE vllm:cache_config_info gauge
vllm:cache_config_info{block_size="128",engine="0",kv_cache_size_tokens="23296",num_gpu_blocks="182"} 1.0
"""

LLAMACPP = """\
# HELP llamacpp:prompt_tokens_total Number of prompt tokens processed, excluding cached tokens
# TYPE llamacpp:prompt_tokens_total counter
llamacpp:prompt_tokens_total 40
# TYPE llamacpp:prompt_tokens_cached_total counter
llamacpp:prompt_tokens_cached_total 324
# TYPE llamacpp:tokens_predicted_total counter
llamacpp:tokens_predicted_total 96
# TYPE llamacpp:n_decode_total counter
llamacpp:n_decode_total 30
# TYPE llamacpp:requests_processing gauge
llamacpp:requests_processing 8
# TYPE llamacpp:requests_deferred gauge
llamacpp:requests_deferred 3
"""


def test_vllm_is_summed_over_its_engines_and_as_full_as_its_fullest() -> None:
    seen = parse(VLLM)
    assert (seen.running, seen.waiting, seen.load) == (3, 4, 7)
    assert (seen.kv_usage, seen.kv_tokens, seen.preemptions) == (0.75, 23296, 3)
    assert (seen.prompt_tokens, seen.cached_tokens, seen.generated_tokens) == (3585, 1024, 545)
    assert seen.progress == (207, 545)


def test_older_vllm_tells_its_cache_in_blocks() -> None:
    assert parse('vllm:cache_config_info{block_size="16",num_gpu_blocks="100"} 1.0').kv_tokens == 1600
    assert parse('vllm:cache_config_info{block_size="16",num_gpu_blocks="None"} 1.0').kv_tokens is None


def test_llamacpp_tells_load_but_no_heartbeat() -> None:
    seen = parse(LLAMACPP)
    assert (seen.running, seen.waiting, seen.load) == (8, 3, 11)
    assert (seen.prompt_tokens, seen.cached_tokens, seen.generated_tokens) == (40, 324, 96)
    assert seen.progress is None
    assert seen.kv_usage is None


@pytest.mark.parametrize("text", ["", "# nothing here\n", 'process_cpu_seconds_total 1.5\nother{a="b"} 2\n'])
def test_what_is_not_told_is_unknown_and_not_zero(text: str) -> None:
    assert parse(text) == Snapshot()
    assert parse(text).load is None


@pytest.mark.parametrize("text", ["<html>login</html>", '{"error": "no"}', "vllm:num_requests_running{engine= 2"])
def test_page_that_is_no_metrics_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        parse(text)


def test_waiting_sleep_and_cache_are_told_as_they_are() -> None:
    seen = parse(
        'vllm:num_requests_waiting_by_reason{engine="0",reason="capacity"} 2\n'
        'vllm:num_requests_waiting_by_reason{engine="1",reason="capacity"} 1\n'
        'vllm:num_requests_waiting_by_reason{engine="1",reason="deferred"} 4\n'
        'vllm:engine_sleep_state{engine="0",sleep_state="awake"} 1\n'
        'vllm:engine_sleep_state{engine="1",sleep_state="awake"} 0\n'
        'vllm:engine_sleep_state{engine="1",sleep_state="discard_all"} 1\n'
        'vllm:admission_rejections_total{reason="max_num_queued_reqs"} 3\n'
        'vllm:cache_config_info{block_size="16",enable_prefix_caching="False",engine="0",kv_cache_max_concurrency="2.5",'
        'kv_cache_size_tokens="1000"} 1\n'
        'vllm:cache_config_info{block_size="16",enable_prefix_caching="False",engine="1",kv_cache_max_concurrency="2.5",'
        'kv_cache_size_tokens="1000"} 1\n'
    )
    assert seen.waiting_by_reason == {"capacity": 3, "deferred": 4}
    assert seen.asleep is True
    assert seen.rejections == 3
    assert (seen.cache.block_tokens, seen.cache.tokens, seen.cache.concurrency) == (16, 2000, 5.0)
    assert seen.cache.prefix_caching is False
    assert parse(VLLM).asleep is None


def test_each_engine_is_seen_and_the_mean_beside_the_fullest() -> None:
    """One series an engine: a sum of shares would say 100 % of a server that is half full."""
    seen = parse(VLLM)
    assert [(engine.name, engine.running, engine.kv_usage) for engine in seen.engines] == [
        ("0", 2, 0.25),
        ("1", 1, 0.75),
    ]
    assert (seen.kv_usage, seen.kv_usage_mean) == (0.75, 0.5)


def test_hit_rate_is_of_a_span_and_llamacpp_counts_cached_tokens_apart() -> None:
    early = Snapshot(prefix_queries=100, prefix_hits=0)
    late = Snapshot(prefix_queries=300, prefix_hits=150)
    assert late.hit_rate() == 0.5
    assert late.hit_rate(early) == 0.75
    assert early.hit_rate(early) is None
    assert Snapshot().hit_rate() is None
    assert parse(LLAMACPP).hit_rate() == 324 / 364


def test_counters_that_go_back_or_a_later_birth_are_a_restart() -> None:
    old = Snapshot(prompt_tokens=100, steps=10, started=1000.0)
    assert restarted(old, Snapshot(prompt_tokens=5, steps=11))
    assert restarted(old, Snapshot(prompt_tokens=200, steps=20, started=1500.0))
    assert not restarted(old, Snapshot(prompt_tokens=100, steps=10, started=1000.0))
    assert not restarted(old, Snapshot())
    assert not restarted(None, old)
    assert not restarted(old, None)


def test_vllm_on_cpu_gives_itself_away_and_an_unknown_one_does_not() -> None:
    line = 'vllm:cache_config_info{{block_size="{}",kv_cache_memory_bytes="{}",user_specified_block_size="{}"}} 1'
    assert parse(line.format(128, 1073741824, "False")).cache.on_cpu is True
    assert parse(line.format(16, "None", "False")).cache.on_cpu is False
    assert parse(line.format(128, "None", "False")).cache.on_cpu is False
    assert parse('vllm:cache_config_info{block_size="128"} 1').cache.on_cpu is None


def test_buckets_are_not_what_a_scrape_costs() -> None:
    """llm-d/llm-d#2118: scraping often is dear where every bucket is parsed."""
    buckets = "".join(f'vllm:x_bucket{{engine="0",le="{number}"}} {number}\n' for number in range(20_000))
    started = time.thread_time()
    assert parse(VLLM + buckets).load == 7
    assert time.thread_time() - started < 0.5
