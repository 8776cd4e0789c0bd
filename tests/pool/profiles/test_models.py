"""The facts of models: the sizes give the published parameter counts, and folders are read as they are written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pool.errors import PoolConfigError
from pool.profiles.catalogue import CATALOGUE, find
from pool.profiles.folder import read
from pool.profiles.versions import releases, table

PUBLISHED = {  # billions of parameters as the model's makers tell them
    "Qwen/Qwen2.5-Coder-7B-Instruct": 7.61, "Qwen/Qwen2.5-Coder-14B-Instruct": 14.7,
    "Qwen/Qwen2.5-Coder-32B-Instruct": 32.5, "Qwen/Qwen3-8B": 8.2, "Qwen/Qwen3-14B": 14.8, "Qwen/Qwen3-32B": 32.8,
    "Qwen/Qwen3-Coder-30B-A3B-Instruct": 30.5, "Qwen/Qwen3-Coder-480B-A35B-Instruct": 480.0,
    "Qwen/Qwen3-Coder-480B-A35B-Instruct-FP8": 480.0, "mistralai/Devstral-Small-2507": 23.6,
    "mistralai/Mistral-Small-3.2-24B-Instruct-2506": 24.0, "openai/gpt-oss-20b": 20.9, "openai/gpt-oss-120b": 116.8,
    "zai-org/GLM-4.5-Air": 106.0, "zai-org/GLM-4.5": 355.0, "zai-org/GLM-4.6": 355.0,
    "deepseek-ai/DeepSeek-V3-0324": 671.0, "deepseek-ai/DeepSeek-R1-0528": 671.0, "deepseek-ai/DeepSeek-V3.1": 671.0,
    "deepseek-ai/DeepSeek-V3.2": 671.0, "moonshotai/Kimi-K2-Instruct": 1026.0,
    "moonshotai/Kimi-K2-Instruct-0905": 1026.0, "meta-llama/Llama-3.1-8B-Instruct": 8.03,
    "meta-llama/Llama-3.3-70B-Instruct": 70.6, "google/gemma-3-12b-it": 12.2, "google/gemma-3-27b-it": 27.4,
    "MiniMaxAI/MiniMax-M2": 230.0,
}  # fmt: skip


def test_every_known_model_has_a_published_count_to_be_held_against() -> None:
    assert set(PUBLISHED) == set(CATALOGUE)


@pytest.mark.parametrize("name", sorted(PUBLISHED))
def test_the_sizes_give_the_published_count(name: str) -> None:
    """A wrong layer, head or expert count would be off by far more; vision towers are up to 4 %."""
    parameters = CATALOGUE[name].parameters
    assert parameters is not None
    assert parameters / 1e9 == pytest.approx(PUBLISHED[name], rel=0.04)


@pytest.mark.parametrize("name", sorted(CATALOGUE))
def test_its_parsers_are_registered_by_the_newest_vllm(name: str) -> None:
    model = CATALOGUE[name]
    newest = releases()[-1]
    for kind, parser in (("tool_parser", model.tool_parser), ("reasoning_parser", model.reasoning_parser)):
        assert parser is None or newest in table()[kind][parser]  # type: ignore[index]


def test_names_are_found_whatever_their_case_and_with_or_without_owner() -> None:
    assert find("gpt-OSS-20b") is find("openai/GPT-oss-20b") is CATALOGUE["openai/gpt-oss-20b"]


def test_a_name_that_nobody_knows_is_refused_naming_what_is_known() -> None:
    with pytest.raises(PoolConfigError, match=r"nosuch.*known are.*gpt-oss-20b"):
        find("nosuch")


LLAMA = {
    "architectures": ["LlamaForCausalLM"], "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 8,
    "num_key_value_heads": 2, "intermediate_size": 128, "vocab_size": 100, "max_position_embeddings": 4096,
    "torch_dtype": "bfloat16",
}  # fmt: skip


def folder(home: Path, config: object, template: str | None = None) -> Path:
    (home / "config.json").write_text(config if isinstance(config, str) else json.dumps(config))
    if template is not None:
        (home / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))
    return home


def test_a_folder_tells_its_shape_and_counts_its_weights(tmp_path: Path) -> None:
    model = read(folder(tmp_path, LLAMA))
    assert (model.shape.layers, model.shape.kv_heads, model.shape.head_dim, model.window) == (2, 2, 8, 4096)
    attention = 64 * 8 * (2 * 8 + 2 * 2)
    assert model.parameters == 2 * 100 * 64 + 2 * (attention + 3 * 64 * 128)


def test_weights_on_disk_are_believed_rather_than_counted(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"x" * 1000)
    model = read(folder(tmp_path, LLAMA))
    assert model.bytes_of_weights == 1000
    assert "safetensors" in model.weights_from


def test_a_compressed_cache_is_counted_by_its_latent(tmp_path: Path) -> None:
    mla = LLAMA | {
        "kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128, "index_topk": 2048,
    }  # fmt: skip
    model = read(folder(tmp_path, mla))
    assert model.shape.kv_values(tensor_parallel=8) == 576  # every rank holds all of it
    assert model.sparse


def test_sliding_layers_hold_their_reach_alone(tmp_path: Path) -> None:
    types = ["sliding_attention", "full_attention"]
    model = read(folder(tmp_path, LLAMA | {"layer_types": types, "sliding_window": 128}))
    assert (model.shape.full, model.shape.sliding, model.shape.reach) == (1, 1, 128)


def test_a_window_that_is_switched_off_slides_no_layer(tmp_path: Path) -> None:
    """Qwen2 writes sliding_window into its config and use_sliding_window: false beside it."""
    model = read(folder(tmp_path, LLAMA | {"sliding_window": 131072, "use_sliding_window": False}))
    assert (model.shape.full, model.shape.sliding) == (2, 0)


def test_a_multimodal_config_is_read_through_its_text_part(tmp_path: Path) -> None:
    nested = {"architectures": ["Gemma3ForConditionalGeneration"], "text_config": LLAMA}
    assert read(folder(tmp_path, nested)).shape.layers == 2


def test_yarn_counts_from_the_original_length(tmp_path: Path) -> None:
    scaling = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
    assert read(folder(tmp_path, LLAMA | {"rope_scaling": scaling})).window == 131072


@pytest.mark.parametrize(
    ("template", "parser"),
    [
        ("{% if tools %}<tool_call>{% endif %}", "hermes"),
        ("{% if tools %}<tool_call><function=x>{% endif %}", "qwen3_xml"),
        ("{% if tools %}[TOOL_CALLS]{% endif %}", "mistral"),
        ("{% if tools %}something new{% endif %}", None),
        ("{{ messages }}<tool_call>", None),  # never shows the model a tool
    ],
)
def test_the_chat_template_tells_the_tool_parser(tmp_path: Path, template: str, parser: str | None) -> None:
    model = read(folder(tmp_path, LLAMA, template))
    assert model.tool_parser == parser
    assert model.parsers_from


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ("{", "is no JSON"),
        ("[]", "no JSON object"),
        ({"hidden_size": 64}, "num_hidden_layers"),
        (LLAMA | {"num_hidden_layers": "many"}, "many"),
        (LLAMA | {"num_attention_heads": 0}, "num_attention_heads = 0, which must be a whole number above zero"),
        (LLAMA | {"quantization_config": [4]}, "quantization_config that is no table"),
        (LLAMA | {"rope_scaling": {"rope_type": "yarn", "factor": "long"}}, "wrong kind"),
        (LLAMA | {"architectures": ["BertModel"]}, "BertModel, which is no causal language model"),
        (LLAMA | {"architectures": ["T5ForConditionalGeneration"], "is_encoder_decoder": True}, "no causal"),
        ("[" * 100_000, "is no JSON"),
    ],
)
def test_a_broken_config_is_refused_in_words(tmp_path: Path, config: object, told: str) -> None:
    with pytest.raises(PoolConfigError, match=told):
        read(folder(tmp_path, config))


@pytest.mark.parametrize(
    "kind", ["GPT2LMHeadModel", "ChatGLMModel", "Gemma3ForConditionalGeneration", "NewForCausalLM"]
)
def test_whoever_writes_text_is_a_model_whatever_its_name(tmp_path: Path, kind: str) -> None:
    assert read(folder(tmp_path, LLAMA | {"architectures": [kind]})).kind == kind


def test_a_folder_without_config_is_no_model_and_one_further_in_is_pointed_at(tmp_path: Path) -> None:
    with pytest.raises(PoolConfigError, match=r"no config\.json; name a"):
        find(str(tmp_path))
    (tmp_path / "inner").mkdir()
    folder(tmp_path / "inner", LLAMA)
    with pytest.raises(PoolConfigError, match=r"did you mean .*/inner\?"):
        find(str(tmp_path))
    (tmp_path / "w.gguf").touch()
    with pytest.raises(PoolConfigError, match=r"GGUF files .* name a Hugging Face folder"):
        find(str(tmp_path))


def test_weights_that_are_links_to_nowhere_count_as_not_there(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").symlink_to(tmp_path / "blob")
    assert read(folder(tmp_path, LLAMA)).weight_bytes is None


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("./none", "there is no folder none"),
        ("/none/at/all", "there is no folder /none/at/all"),
        ("qwen3-9b", r"did you mean .*Qwen/Qwen3-8B"),
        ("x" * 5000, "cannot be looked at: File name too long"),
        ("a\0b", "neither a folder here nor a model"),
        ("~nobody-has-this-name/m", "cannot be looked at"),
        (__file__, "is a file; name the Hugging Face folder"),
    ],
)
def test_what_is_no_model_is_told_apart(name: str, told: str) -> None:
    with pytest.raises(PoolConfigError, match=told):
        find(name)
