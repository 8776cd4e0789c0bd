"""Well-known open-weight models for coding and agents: the sizes in their published config.json, and their parsers.

Parser names are those that vLLM registers and that its documentation gives for the model (Tool Calling, Reasoning
Outputs). Parameter counts follow from the sizes; the tests hold them against the published ones. None is unknown.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pool.errors import PoolConfigError
from pool.profiles.folder import described, read
from pool.profiles.models import Model

_DOCS = "vLLM's documentation names it for this model"
_MISTRAL = (
    ("--tokenizer-mode", "mistral", "Mistral publishes its own tokenizer format"),
    ("--config-format", "mistral", "the same, for params.json"),
    ("--load-format", "mistral", "the same, for consolidated.safetensors"),
)
_TEMPLATE = (
    "vLLM's documentation gives it an own chat template (--chat-template {}), which is in vLLM's source, not here"
)
_QWEN25 = {"vocab_size": 152064, "max_position_embeddings": 32768}
_QWEN3 = {"vocab_size": 151936, "head_dim": 128, "max_position_embeddings": 40960}
_LLAMA = {"vocab_size": 128256, "max_position_embeddings": 131072}
_DEEPSEEK = {
    "num_hidden_layers": 61, "hidden_size": 7168, "num_attention_heads": 128, "num_key_value_heads": 128,
    "vocab_size": 129280, "intermediate_size": 18432, "moe_intermediate_size": 2048, "n_routed_experts": 256,
    "n_shared_experts": 1, "num_experts_per_tok": 8, "first_k_dense_replace": 3, "q_lora_rank": 1536,
    "kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128,
    "max_position_embeddings": 163840,
}  # fmt: skip
_KIMI = _DEEPSEEK | {
    "num_attention_heads": 64, "num_key_value_heads": 64, "vocab_size": 163840, "n_routed_experts": 384,
    "first_k_dense_replace": 1, "max_position_embeddings": 131072,
}  # fmt: skip
_GLM = {
    "vocab_size": 151552, "head_dim": 128, "num_attention_heads": 96, "num_key_value_heads": 8, "n_shared_experts": 1,
    "num_experts_per_tok": 8, "max_position_embeddings": 131072,
}  # fmt: skip
_GLM_BIG = _GLM | {
    "num_hidden_layers": 92, "hidden_size": 5120, "intermediate_size": 12288, "moe_intermediate_size": 1536,
    "n_routed_experts": 160, "first_k_dense_replace": 3,
}  # fmt: skip
_GPT_OSS = {
    "hidden_size": 2880, "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 64, "vocab_size": 201088,
    "intermediate_size": 2880, "num_experts_per_tok": 4, "sliding_window": 128, "sliding_window_pattern": 2,
    "max_position_embeddings": 131072,
}  # fmt: skip
_GEMMA = {
    "vocab_size": 262208, "tie_word_embeddings": True, "sliding_window": 1024, "sliding_window_pattern": 6,
    "max_position_embeddings": 131072,
}  # fmt: skip
_MISTRAL_24B = {
    "num_hidden_layers": 40, "hidden_size": 5120, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128,
    "vocab_size": 131072, "intermediate_size": 32768, "max_position_embeddings": 131072,
}  # fmt: skip


def _dense(layers: int, hidden: int, heads: int, kv_heads: int, inner: int, **more: Any) -> dict[str, Any]:
    """The sizes of a plain model in the words of a config.json."""
    return {
        "num_hidden_layers": layers, "hidden_size": hidden, "num_attention_heads": heads,
        "num_key_value_heads": kv_heads, "intermediate_size": inner,
    } | more  # fmt: skip


def _entry(name: str, kind: str, sizes: dict[str, Any], **facts: Any) -> Model:
    return described(name, kind, sizes, {"parsers_from": _DOCS} | facts)


def _models() -> tuple[Model, ...]:
    hermes: dict[str, Any] = {"tool_parser": "hermes"}
    qwen3 = hermes | {"reasoning_parser": "qwen3"}
    pixtral = "Mistral3ForConditionalGeneration"
    llama3 = "LlamaForCausalLM"
    checkpoint = "the published checkpoint (MXFP4 experts, the rest bf16)"
    qwen2 = "Qwen2ForCausalLM"
    coder: dict[str, Any] = {"tool_parser": "qwen3_xml"}
    glm = {"tool_parser": "glm45", "reasoning_parser": "glm45"}
    llama = {"tool_parser": "llama3_json", "notes": (_TEMPLATE.format("tool_chat_template_llama3.1_json.jinja"),)}
    harmony = {"tool_parser": "openai", "reasoning_parser": "openai_gptoss", "stored": "mxfp4"}
    mistral = {"tool_parser": "mistral", "flags": _MISTRAL}
    kimi: dict[str, Any] = {"tool_parser": "kimi_k2", "stored": "fp8"}
    v3 = {"tool_parser": "deepseek_v3", "stored": "fp8"}
    moe = {"num_experts_per_tok": 8}
    gemma = {"parsers_from": "vLLM registers no parser of Gemma 3's form"}
    return (
        _entry("Qwen/Qwen2.5-Coder-7B-Instruct", qwen2, _dense(28, 3584, 28, 4, 18944, **_QWEN25), **hermes),
        _entry("Qwen/Qwen2.5-Coder-14B-Instruct", qwen2, _dense(48, 5120, 40, 8, 13824, **_QWEN25), **hermes),
        _entry("Qwen/Qwen2.5-Coder-32B-Instruct", qwen2, _dense(64, 5120, 40, 8, 27648, **_QWEN25), **hermes),
        _entry("Qwen/Qwen3-8B", "Qwen3ForCausalLM", _dense(36, 4096, 32, 8, 12288, **_QWEN3), **qwen3),
        _entry("Qwen/Qwen3-14B", "Qwen3ForCausalLM", _dense(40, 5120, 40, 8, 17408, **_QWEN3), **qwen3),
        _entry("Qwen/Qwen3-32B", "Qwen3ForCausalLM", _dense(64, 5120, 64, 8, 25600, **_QWEN3), **qwen3),
        _entry(
            "Qwen/Qwen3-Coder-30B-A3B-Instruct", "Qwen3MoeForCausalLM",
            _dense(48, 2048, 32, 4, 6144, moe_intermediate_size=768, num_experts=128, **moe, **_QWEN3)
            | {"max_position_embeddings": 262144}, **coder,
        ),
        _entry(
            "Qwen/Qwen3-Coder-480B-A35B-Instruct", "Qwen3MoeForCausalLM",
            _dense(62, 6144, 96, 8, 8192, moe_intermediate_size=2560, num_experts=160, **moe, **_QWEN3)
            | {"max_position_embeddings": 262144}, **coder,
        ),
        _entry(
            "Qwen/Qwen3-Coder-480B-A35B-Instruct-FP8", "Qwen3MoeForCausalLM",
            _dense(62, 6144, 96, 8, 8192, moe_intermediate_size=2560, num_experts=160, **moe, **_QWEN3)
            | {"max_position_embeddings": 262144}, **coder, stored="fp8",
        ),
        _entry("mistralai/Devstral-Small-2507", "MistralForCausalLM", _MISTRAL_24B, **mistral),
        _entry("mistralai/Mistral-Small-3.2-24B-Instruct-2506", pixtral, _MISTRAL_24B, **mistral),
        _entry(
            "openai/gpt-oss-20b", "GptOssForCausalLM", _GPT_OSS | {"num_hidden_layers": 24, "num_local_experts": 32},
            **harmony, weight_bytes=13_761_264_768, weights_from=checkpoint,
        ),
        _entry(
            "openai/gpt-oss-120b", "GptOssForCausalLM", _GPT_OSS | {"num_hidden_layers": 36, "num_local_experts": 128},
            **harmony, weight_bytes=65_248_815_744, weights_from=checkpoint,
        ),
        _entry(
            "zai-org/GLM-4.5-Air", "Glm4MoeForCausalLM",
            _GLM | {"num_hidden_layers": 46, "hidden_size": 4096, "intermediate_size": 10944, "n_routed_experts": 128,
                    "moe_intermediate_size": 1408, "first_k_dense_replace": 1}, **glm,
        ),
        _entry("zai-org/GLM-4.5", "Glm4MoeForCausalLM", _GLM_BIG, **glm),
        _entry("zai-org/GLM-4.6", "Glm4MoeForCausalLM", _GLM_BIG | {"max_position_embeddings": 202752}, **glm),
        _entry(
            "deepseek-ai/DeepSeek-V3-0324", "DeepseekV3ForCausalLM", _DEEPSEEK, **v3,
            notes=(_TEMPLATE.format("tool_chat_template_deepseekv3.jinja"),),
        ),
        _entry(
            "deepseek-ai/DeepSeek-R1-0528", "DeepseekV3ForCausalLM", _DEEPSEEK, **v3, reasoning_parser="deepseek_r1",
            notes=(_TEMPLATE.format("tool_chat_template_deepseekr1.jinja"),),
        ),
        _entry(
            "deepseek-ai/DeepSeek-V3.1", "DeepseekV3ForCausalLM", _DEEPSEEK, stored="fp8", tool_parser="deepseek_v31",
            reasoning_parser="deepseek_v3",
            notes=(
                _TEMPLATE.format("tool_chat_template_deepseekv31.jinja"), "its tool calls work without thinking only",
            ),
        ),
        _entry(
            "deepseek-ai/DeepSeek-V3.2", "DeepseekV32ForCausalLM", _DEEPSEEK | {"index_topk": 2048}, stored="fp8",
            tool_parser="deepseek_v32", reasoning_parser="deepseek_v3",
            flags=(("--tokenizer-mode", "deepseek_v32", "it has no chat template; vLLM writes its prompts"),),
            parsers_from="the registry has a parser of its name; the reasoning parser is V3.1's (not confirmed)",
            notes=("KV of the sparse attention's own index (a few per cent) is not counted",),
        ),
        _entry("moonshotai/Kimi-K2-Instruct", "DeepseekV3ForCausalLM", _KIMI, **kimi),
        _entry(
            "moonshotai/Kimi-K2-Instruct-0905", "DeepseekV3ForCausalLM",
            _KIMI | {"max_position_embeddings": 262144}, **kimi,
        ),
        _entry("meta-llama/Llama-3.1-8B-Instruct", llama3, _dense(32, 4096, 32, 8, 14336, **_LLAMA), **llama),
        _entry("meta-llama/Llama-3.3-70B-Instruct", llama3, _dense(80, 8192, 64, 8, 28672, **_LLAMA), **llama),
        _entry(
            "google/gemma-3-12b-it", "Gemma3ForConditionalGeneration",
            _dense(48, 3840, 16, 8, 15360, head_dim=256, **_GEMMA), **gemma,
        ),
        _entry(
            "google/gemma-3-27b-it", "Gemma3ForConditionalGeneration",
            _dense(62, 5376, 32, 16, 21504, head_dim=128, **_GEMMA), **gemma,
        ),
        _entry(
            "MiniMaxAI/MiniMax-M2", "MiniMaxM2ForCausalLM",
            _dense(62, 3072, 48, 8, 1536, head_dim=128, vocab_size=200064, num_local_experts=256, num_experts_per_tok=8,
                   max_position_embeddings=196608),
            stored="fp8", tool_parser="minimax_m2", reasoning_parser="minimax_m2_append_think",
        ),
    )  # fmt: skip


CATALOGUE: Mapping[str, Model] = MappingProxyType({model.name: model for model in _models()})


def find(name: str) -> Model:
    """The model in a folder of that path, else the one of that name, whatever its case and with or without its owner.

    Raises PoolConfigError, naming what is known, or what is wrong with the folder.
    """
    if (folder := _folder(name)) is not None:
        return read(folder)
    wanted = name.lower()
    hits = [known for known in CATALOGUE if wanted in {known.lower(), known.lower().split("/")[1]}]
    if len(hits) == 1:
        return CATALOGUE[hits[0]]
    short = {known.lower().split("/")[1]: known for known in CATALOGUE}
    near = difflib.get_close_matches(wanted.rpartition("/")[2], short, n=3)
    meant = f"did you mean {' or '.join(short[one] for one in near)}? " if near else ""
    raise PoolConfigError(
        f"{name!r} is neither a folder here nor a model that is known by name; {meant}known are: {', '.join(CATALOGUE)}"
    )


def _folder(name: str) -> Path | None:
    """The folder of that path; None for what can only be a name. Raises PoolConfigError for any other path."""
    try:
        path = Path(name).expanduser()
        if path.is_dir():
            return path
        is_file = path.is_file()
    except (OSError, ValueError, RuntimeError) as error:
        raise PoolConfigError(
            f"{name[:60]!r} cannot be looked at: {getattr(error, 'strerror', None) or error}"
        ) from None
    if is_file:
        raise PoolConfigError(f"{name} is a file; name the Hugging Face folder that it lies in: {path.parent}")
    if name.startswith((".", "/", "~")):
        raise PoolConfigError(
            f"there is no folder {path}; name a Hugging Face folder, or a model that is known by name"
        )
    return None
