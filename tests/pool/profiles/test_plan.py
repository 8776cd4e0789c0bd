"""Plans: the sums by hand, and what is said where a model does not fit."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pool.errors import PoolConfigError
from pool.profiles.catalogue import CATALOGUE, find
from pool.profiles.folder import described
from pool.profiles.gpus import GIB, GPUS, gpu
from pool.profiles.plan import plan
from pool.profiles.sizing import Wanted


def test_kv_of_a_token_is_keys_and_values_of_every_kv_head() -> None:
    made = plan(find("llama-3.1-8b-instruct"), gpu("h100"), Wanted(count=1))
    assert made.split.per_token == 2 * 8 * 128 * 32 * 2  # 128 KiB: a figure that many guides give
    assert made.split.tensor_parallel == 1


def test_room_is_memory_less_weights_and_overhead() -> None:
    model = find("llama-3.1-8b-instruct")
    made = plan(model, gpu("h100"), Wanted(count=1))
    assert model.bytes_of_weights is not None
    assert made.split.room == pytest.approx((79.6 * 0.92 - 2) * GIB - model.bytes_of_weights, rel=1e-6)


def test_a_model_too_large_for_one_gpu_is_split() -> None:
    made = plan(find("llama-3.3-70b-instruct"), gpu("h100"), Wanted())
    assert made.fits
    assert made.split.tensor_parallel == made.count == 4  # 131 GiB of weights do not fit twice 73 with a full window
    assert made.split.per_token == 2 * 2 * 128 * 80 * 2  # two of eight KV heads on each


def test_more_gpus_than_kv_heads_do_not_shrink_kv_further() -> None:
    model = find("qwen3-coder-30b-a3b-instruct")  # four KV heads
    assert model.shape.kv_values(4) == model.shape.kv_values(8) == 2 * 128


def test_the_latent_of_mla_is_held_by_every_gpu() -> None:
    made = plan(find("deepseek-v3.2"), gpu("h200"), Wanted(count=8))
    assert made.split.tensor_parallel == 8
    assert made.split.per_token == 576 * 61 * 2


def test_what_does_not_fit_names_how_many_gpus_would() -> None:
    made = plan(find("llama-3.3-70b-instruct"), gpu("l4"), Wanted(count=1))
    assert not made.fits
    assert any("16 of them hold it" in remedy for remedy in made.remedies)


def test_a_window_too_long_names_the_longest_that_fits() -> None:
    made = plan(find("qwen3-coder-30b-a3b-instruct"), gpu("rtx6000-pro"), Wanted(count=1, window=262144, kv_bits=16))
    wider = plan(find("qwen3-coder-30b-a3b-instruct"), gpu("rtx6000-pro"), Wanted(count=1))
    assert made.fits or any("--window" in remedy for remedy in made.remedies)
    assert wider.fits


def test_eight_bit_kv_holds_twice_the_tokens() -> None:
    wide, narrow = (plan(find("qwen3-8b"), gpu("l40s"), Wanted(count=1, kv_bits=bits)) for bits in (16, 8))
    assert narrow.split.tokens(narrow.window) == pytest.approx(2 * wide.split.tokens(wide.window), rel=0.01)


def test_a_cpu_holds_as_many_tokens_as_a_real_vllm_said() -> None:
    """vLLM 0.32 on a CPU with 1 GiB for KV and SmolLM2 (30 layers, 3 KV heads of 64) told 23,296 tokens."""
    shape = {"num_hidden_layers": 30, "hidden_size": 576, "num_attention_heads": 9, "num_key_value_heads": 3}
    sizes = shape | {"intermediate_size": 1536, "vocab_size": 49152, "max_position_embeddings": 8192}
    model = described("smollm2", "LlamaForCausalLM", sizes, {"stored": "float32"})
    made = plan(model, gpu("cpu"), Wanted(host_memory=1.0))
    assert made.split.tokens(8192) == pytest.approx(23_296, rel=0.001)


def test_weights_in_float32_are_cast_on_a_gpu() -> None:
    model = find("qwen3-8b").model_copy(update={"stored": "float32"})
    made = plan(model, gpu("h100"), Wanted(count=1))
    assert made.split.room == plan(find("qwen3-8b"), gpu("h100"), Wanted(count=1)).split.room
    assert "cast" in made.lines[0].why


def test_sessions_ask_for_as_many_servers_as_they_need() -> None:
    made = plan(find("qwen3-8b"), gpu("h100"), Wanted(window=32768, sessions=40))
    assert made.sessions >= 40
    assert made.count == made.replicas * made.split.tensor_parallel


def test_a_window_past_the_models_own_is_cut_to_it() -> None:
    assert plan(find("qwen3-8b"), gpu("h100"), Wanted(count=1, window=10**6)).window == 40960


def test_old_gpus_are_told_what_they_cannot_multiply() -> None:
    made = plan(find("qwen3-coder-480b-a35b-instruct-fp8"), gpu("a100-80"), Wanted())
    assert any("8-bit" in remedy for remedy in made.remedies)


def test_every_figure_says_what_it_rests_on() -> None:
    for model in CATALOGUE.values():
        for line in plan(model, gpu("h200"), Wanted(count=8)).lines:
            assert line.why, line


def test_an_unknown_gpu_is_refused_naming_the_known() -> None:
    with pytest.raises(PoolConfigError, match=r"voodoo.*h100"):
        gpu("voodoo")
    assert gpu("RTX 4090") is GPUS["rtx4090"]
    assert gpu("A100") is GPUS["a100-80"]


@given(
    name=st.sampled_from(sorted(CATALOGUE)),
    on=st.sampled_from(sorted(set(GPUS) - {"cpu"})),
    count=st.sampled_from([1, 2, 4, 8]),
    window=st.integers(1024, 131072),
)
def test_a_plan_that_fits_stays_within_the_memory(name: str, on: str, count: int, window: int) -> None:
    made = plan(CATALOGUE[name], gpu(on), Wanted(count=count, window=window))
    assert made.split.tensor_parallel <= count
    if made.fits:
        held = made.split.sessions(made.window) * (made.window * made.split.per_token + made.split.fixed)
        assert 0 < held <= made.split.room < made.gpu.memory * GIB
    else:
        assert made.remedies


def test_a_smaller_cache_is_no_mend_where_the_weights_alone_do_not_fit() -> None:
    wanting = plan(find("deepseek-v3.2"), gpu("l40s"), Wanted(count=1))
    assert not wanting.fits
    assert not any("--kv-bits 8" in one for one in wanting.remedies)
    tight = plan(find("qwen3-8b"), gpu("l40s"), Wanted(count=1, sessions=500))
    assert any("--kv-bits 8" in one for one in tight.remedies)
