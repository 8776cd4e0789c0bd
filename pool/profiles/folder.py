"""Reads what a model is out of a Hugging Face folder: config.json, the chat template, and the size of its weights."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from pool.errors import PoolConfigError
from pool.profiles.models import BITS, Model, Shape, Sizes, counted

_QUANTS = {
    "fp8": "fp8",
    "mxfp4": "mxfp4",
    "awq": "int4",
    "gptq": "int4",
    "compressed-tensors": "int8",
    "modelopt": "fp8",
}
_TEMPLATE_TOOLS = (  # what a chat template writes around a tool call, and vLLM's parser of that form
    ("<function=", "qwen3_xml"),
    ("[TOOL_CALLS]", "mistral"),
    ("<|python_tag|>", "llama3_json"),
    ("<|tool_calls_section_begin|>", "kimi_k2"),
    ("<arg_key>", "glm45"),
    ("<minimax:tool_call>", "minimax_m2"),
    ("<|channel|>", "openai"),
    ("<seed:tool_call>", "seed_oss"),
    ("<tool_call>", "hermes"),
)


_NO_WRITERS = (  # what the name of an architecture without a language model's head ends with
    "ForMaskedLM", "ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering", "ForPreTraining",
    "ForImageClassification", "ForObjectDetection", "ForCTC", "ForAudioClassification", "RewardModel", "Model",
)  # fmt: skip
_WRITERS = ("LMHeadModel", "ChatModel", "ChatGLMModel")  # those that end like them and do write


class LackError(ValueError):
    """What a config.json lacks for a plan, in words whose subject is the file."""


def read(folder: Path) -> Model:
    """The model in a folder as `save_pretrained` writes it. Raises PoolConfigError naming what is missing or wrong."""
    path = folder / "config.json"
    told = _told(folder, path)
    try:
        return _model(folder, told)
    except OSError as error:
        raise PoolConfigError(f"{error.filename or folder} cannot be read: {error.strerror}") from None
    except LackError as error:
        raise PoolConfigError(f"{path} {error}") from None
    except ValidationError as error:
        wrong = ", ".join(str(detail["loc"][0]) for detail in error.errors(include_url=False))
        raise PoolConfigError(f"{path} has values of the wrong kind (for {wrong})") from None
    except (KeyError, TypeError, ValueError, AttributeError, ZeroDivisionError) as error:
        raise PoolConfigError(f"{path} has a value of the wrong kind ({str(error)[:120]})") from None


def _told(folder: Path, path: Path) -> dict[str, Any]:
    try:
        told = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise PoolConfigError(_nothing(folder)) from None
    except OSError as error:
        raise PoolConfigError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise PoolConfigError(f"{path} is no JSON ({error}); download the model anew") from None
    if not isinstance(told, dict):
        raise PoolConfigError(f"{path} is no JSON object; name a Hugging Face folder")
    return told


def _nothing(folder: Path) -> str:
    if any(folder.glob("*.gguf")):
        return f"{folder} has GGUF files and no config.json: that is llama.cpp's form; name a Hugging Face folder"
    inner = next((one.parent for one in sorted(folder.glob("**/config.json"))[:1]), None)
    hint = f"did you mean {inner}?" if inner else "name a Hugging Face folder or a known model"
    return f"{folder} has no config.json; {hint}"


def _writes(kind: str, told: Mapping[str, Any]) -> bool:
    """Whether such a model goes on with a text, as far as its architecture's name tells."""
    return not told.get("is_encoder_decoder") and (kind.endswith(_WRITERS) or not kind.endswith(_NO_WRITERS))


def _model(folder: Path, told: Mapping[str, Any]) -> Model:
    text = {**told, **told["text_config"]} if isinstance(told.get("text_config"), dict) else dict(told)
    kind = _kind(told)
    if not _writes(kind, told):
        raise LackError(f"is of a {kind}, which is no causal language model: agents cannot talk to it")
    shape = shape_of(text)
    stored, bits_known = _stored(told, text)
    measured = sum(file.stat().st_size for file in folder.glob("*.safetensors") if file.is_file()) or None
    parameters, active = (None, None) if shape.linear else counted(_sizes(text, shape), _attention(text, shape))
    parser, evidence = _tools(folder)
    return Model(
        name=folder.resolve().name,
        kind=kind,
        shape=shape,
        window=_window(text),
        parameters=parameters,
        active=active,
        stored=stored,
        weight_bytes=measured,
        weights_from="the size of its safetensors files" if measured else f"counted from config.json, kept as {stored}",
        experts=_experts(text),
        sparse="index_topk" in text,
        tool_parser=parser,
        parsers_from=evidence,
        notes=()
        if bits_known
        else (f"its quantisation is not known here; {BITS[stored]:g} bits a weight are assumed",),
    )


def _kind(told: Mapping[str, Any]) -> str:
    listed = told.get("architectures")
    return str(listed[0] if isinstance(listed, list) and listed else told.get("model_type") or "unknown")


def described(name: str, kind: str, sizes: Mapping[str, Any], facts: Mapping[str, Any]) -> Model:
    """A model from the sizes of its published config.json and from what else is known of it."""
    shape = shape_of(sizes)
    parameters, active = counted(_sizes(sizes, shape), _attention(sizes, shape))
    told: dict[str, Any] = {
        "name": name,
        "kind": kind,
        "shape": shape,
        "window": _window(sizes),
        "parameters": parameters,
        "active": active,
        "weights_from": f"counted from its published sizes, kept as {facts.get('stored', 'bfloat16')}",
        "experts": _experts(sizes),
        "sparse": "index_topk" in sizes,
    }
    return Model.model_validate(told | dict(facts))


def shape_of(text: Mapping[str, Any]) -> Shape:
    """The shape in the words of a config.json.

    Raises LackError for one without a size that it needs, TypeError and ValueError for values of the wrong kind.
    """
    layers, hidden, heads = (_size(text, name) for name in ("num_hidden_layers", "hidden_size", "num_attention_heads"))
    rank = text.get("kv_lora_rank")
    types = text.get("layer_types") or []
    reach = int(text.get("sliding_window") or 0) if text.get("use_sliding_window", True) else 0
    linear = sum(kind not in {"full_attention", "sliding_attention"} for kind in types)
    if not types and (every := text.get("full_attention_interval")):
        linear = layers - layers // int(every)
    pattern = int(text.get("sliding_window_pattern") or 0)
    sliding = sum(kind == "sliding_attention" for kind in types) if types else 0
    if not types and reach:
        sliding = layers - layers // pattern if pattern else layers
    return Shape(
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=int(text.get("num_key_value_heads") or heads),
        head_dim=int(text.get("head_dim") or hidden // heads),
        full=layers - sliding - linear,
        sliding=sliding,
        reach=reach if sliding else 0,
        linear=linear,
        latent=int(rank) + _size(text, "qk_rope_head_dim") if rank else None,
    )


def _size(text: Mapping[str, Any], name: str) -> int:
    """A size that must be there. Raises LackError."""
    told = text.get(name)
    if told is None:
        raise LackError(f"lacks {name}, which a plan needs: it is no language model's, or not whole")
    if isinstance(told, bool) or not isinstance(told, int) or told < 1:
        raise LackError(f"says {name} = {json.dumps(told)[:60]}, which must be a whole number above zero")
    return told


def _attention(text: Mapping[str, Any], shape: Shape) -> int:
    """Parameters of one attention layer."""
    if shape.latent is None:
        return shape.hidden * shape.head_dim * (2 * shape.heads + 2 * shape.kv_heads)
    rank, rope = _size(text, "kv_lora_rank"), _size(text, "qk_rope_head_dim")
    plain, value = _size(text, "qk_nope_head_dim"), _size(text, "v_head_dim")
    query = text.get("q_lora_rank")
    asked = shape.heads * (plain + rope)
    queries = int(query) * (shape.hidden + asked) if query else shape.hidden * asked
    return (
        queries
        + shape.hidden * (rank + rope)
        + rank * shape.heads * (plain + value)
        + shape.heads * value * shape.hidden
    )


def _sizes(text: Mapping[str, Any], shape: Shape) -> Sizes:
    experts = _experts(text)
    inner = int(text.get("intermediate_size") or 0)
    expert_inner = int(text.get("moe_intermediate_size") or inner)
    shared = int(text.get("shared_expert_intermediate_size") or expert_inner * int(text.get("n_shared_experts") or 0))
    return Sizes(
        vocab=_size(text, "vocab_size"),
        hidden=shape.hidden,
        layers=shape.layers,
        inner=inner,
        tied=bool(text.get("tie_word_embeddings", False)),
        experts=experts,
        expert_inner=expert_inner if experts else 0,
        shared_inner=shared,
        dense_layers=int(text.get("first_k_dense_replace") or 0),
        per_token=int(_first(text, "num_experts_per_tok", "experts_per_token") or 0),
    )


def _experts(text: Mapping[str, Any]) -> int:
    return int(_first(text, "num_experts", "n_routed_experts", "num_local_experts") or 0)


def _stored(told: Mapping[str, Any], text: Mapping[str, Any]) -> tuple[str, bool]:
    """How the weights are kept, and whether that is known rather than assumed."""
    if quant := told.get("quantization_config") or text.get("quantization_config"):
        if not isinstance(quant, dict):
            raise LackError("has a quantization_config that is no table")
        method = str(quant.get("quant_method", ""))
        if quant.get("bits") in {4, 8}:
            return f"int{quant['bits']}", True
        return _QUANTS.get(method, "fp8"), method in {"fp8", "mxfp4", "awq", "gptq"}
    dtype = str(text.get("dtype") or text.get("torch_dtype") or "bfloat16")
    return (dtype, True) if dtype in BITS else ("bfloat16", False)


def _window(text: Mapping[str, Any]) -> int | None:
    """The longest context without asking for more: YaRN's factor counts from the original length, as vLLM does it."""
    told = text.get("max_position_embeddings")
    scaling = text.get("rope_scaling") or text.get("rope_parameters") or {}
    if isinstance(scaling, dict) and scaling.get("rope_type", scaling.get("type")) == "yarn":
        original = scaling.get("original_max_position_embeddings") or told
        return int(original * scaling.get("factor", 1)) if original else None
    return int(told) if told else None


def _tools(folder: Path) -> tuple[str | None, str]:
    """The tool parser that fits the chat template, and the evidence."""
    template = _template(folder)
    if template is None:
        return None, "no chat template was found in the folder"
    if "tools" not in template:
        return None, "its chat template never shows the model any tools"
    for mark, parser in _TEMPLATE_TOOLS:
        if mark in template:
            return parser, f"its chat template writes tool calls with {mark}"
    return None, "its chat template has tools, in a form that is not known here; name one with --tool-parser"


def _template(folder: Path) -> str | None:
    file = folder / "chat_template.jinja"
    if file.is_file():
        return file.read_text("utf-8", errors="replace")
    try:
        told = json.loads((folder / "tokenizer_config.json").read_text("utf-8")).get("chat_template")
    except (OSError, ValueError, AttributeError):
        return None
    return told if isinstance(told, str) else json.dumps(told) if told else None


def _first(told: Mapping[str, Any], *names: str) -> Any:
    return next((told[name] for name in names if told.get(name) is not None), None)
