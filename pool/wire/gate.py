"""Stops fields that a server would ignore without a word: each is translated, dropped as a mere hint, or refused; pure.

vLLM takes any unknown field and answers 200 (vllm-project/vllm#53975): constraints asked for in an old name give
unconstrained text. Which vLLM knows which field was read in its wheels 0.20.2 to 0.33.0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pool.types import RequestClass
from pool.wire.capability import Record, mend
from pool.wire.constraint import Refusal, calls, constrain

__all__ = ["Refusal", "gate", "gated", "ordered"]

JSON = dict[str, Any]

VLLM_SINCE: dict[str, tuple[int, ...]] = {  # vLLM's own fields, and the first wheel in which they were found
    **dict.fromkeys(
        (
            "stop_token_ids", "min_tokens", "bad_words", "allowed_token_ids", "prompt_logprobs", "vllm_xargs",
            "truncate_prompt_tokens", "cache_salt", "kv_transfer_params", "return_token_ids", "length_penalty",
            "use_beam_search", "include_stop_str_in_output", "skip_special_tokens", "spaces_between_special_tokens",
            "add_generation_prompt", "continue_final_message", "thinking_token_budget", "repetition_detection",
            "return_tokens_as_token_ids", "include_reasoning", "documents",
        ),
        (0,),
    ),
    "truncation_side": (0, 24),
    "logprob_token_ids": (0, 27, 1),
    "return_token_offsets": (0, 27, 1),
    "watermarking": (0, 30),
    "return_weight_versions": (0, 33),
}  # fmt: skip
LLAMACPP_OWN = {
    "mirostat", "mirostat_tau", "mirostat_eta", "typical_p", "dynatemp_range", "dynatemp_exponent", "dry_multiplier",
    "dry_base", "dry_allowed_length", "dry_penalty_last_n", "dry_sequence_breakers", "xtc_probability", "xtc_threshold",
    "samplers", "repeat_last_n", "n_keep", "n_indent", "t_max_predict_ms", "lora", "grammar_lazy", "grammar_triggers",
    "top_n_sigma", "post_sampling_probs",
}  # fmt: skip
# What a field says by default: leaving it out then changes nothing.
NEUTRAL: dict[str, Any] = {
    "min_tokens": 0, "bad_words": [], "stop_token_ids": [], "use_beam_search": False, "length_penalty": 1.0,
    "include_stop_str_in_output": False, "skip_special_tokens": True, "spaces_between_special_tokens": True,
    "add_generation_prompt": True, "continue_final_message": False, "return_token_ids": False, "mirostat": 0,
    "include_reasoning": True, "watermarking": False, "xtc_probability": 0, "dry_multiplier": 0, "dynatemp_range": 0,
    "lora": [], "n_keep": 0, "typical_p": 1, "post_sampling_probs": False, "return_tokens_as_token_ids": False,
    "return_weight_versions": False,
}  # fmt: skip
# Hints: nothing that the caller gets depends on them, so a server that has no use for one is not sent it.
VLLM_HINTS: dict[str, tuple[int, ...]] = {"session_id": (0, 30), "stream_interval": (0, 27, 1), "request_id": (0,)}
LLAMACPP_HINTS = {"cache_prompt", "id_slot", "slot_id", "return_progress", "timings_per_token", "response_fields"}
RENAMED = {"repeat_penalty": "repetition_penalty", "n_predict": "max_tokens"}  # llama.cpp's name: vLLM's name
REASONING_SINCE = (0, 12)  # vLLM's `reasoning_content` became `reasoning` (vllm-project/vllm#27752)


def gate(body: Mapping[str, Any], record: Record) -> JSON | Refusal:
    """The body as this server understands it, or why it cannot be sent there. ``body`` stays as it was.

    A body with "messages" is a chat, any other a raw completion. Fields that no table names pass.
    """
    out = {key: value for key, value in body.items() if value is not None}
    for rule in RULES:
        if refusal := rule(out, record):
            return refusal
    return out


def gated(body: Mapping[str, Any], record: Record) -> JSON:
    """As `gate`. Raises PermanentError for a refusal."""
    out = gate(body, record)
    if isinstance(out, Refusal):
        raise out.error()
    return out


def ordered(body: Mapping[str, Any]) -> tuple[JSON, RequestClass | None]:
    """Take a client's `priority` out of its body and give the class that it stands for (smaller is earlier).

    The pool orders by class itself, since a server may ignore the field and none of them lets anyone age.
    """
    out = dict(body)
    told = out.pop("priority", None)
    if isinstance(told, bool) or not isinstance(told, (int, float)):
        return out, None
    return out, "interactive" if told < 0 else "bulk" if told > 0 else "default"


def _renamed(out: JSON, record: Record) -> Refusal | None:
    """Fields that both servers have under different names."""
    for llama, vllm in RENAMED.items():
        known, other = (llama, vllm) if record.kind == "llamacpp" else (vllm, llama)
        if other not in out or known == other or (record.kind == "llamacpp" and vllm == "max_tokens"):
            continue
        if known in out and out[known] != out[other]:
            return Refusal(other, f"{other} and {known} say different things; send one of them")
        out[known] = out.pop(other)
    return None


def _hints(out: JSON, record: Record) -> Refusal | None:
    for name, since in VLLM_HINTS.items():
        if record.kind != "vllm" or record.older_than(*since):
            out.pop(name, None)
    if record.kind != "llamacpp":
        for name in LLAMACPP_HINTS:
            out.pop(name, None)
    return None


def _foreign(out: JSON, record: Record) -> Refusal | None:
    """Fields that only another kind of server, or a newer vLLM, would heed."""
    for name in [name for name in out if name in VLLM_SINCE or name in LLAMACPP_OWN]:
        since = VLLM_SINCE.get(name)
        if (record.kind == "llamacpp") if since is None else (record.kind == "vllm" and not record.older_than(*since)):
            continue
        if name in NEUTRAL and out[name] == NEUTRAL[name]:
            del out[name]
        elif since is None or record.kind != "vllm":
            home = "llama.cpp" if since is None else "vLLM"
            return Refusal(name, f"{name} is {home}'s own field, and this server would ignore it without a word")
        else:
            told = ".".join(map(str, since))
            return Refusal(name, f"{name} needs vLLM {told}, and {record.version} would ignore it without a word")
    return None


def _echo(out: JSON, record: Record) -> Refusal | None:
    """The prompt before the answer: who scores a prompt's logprobs would take the answer's for them."""
    if out.get("echo") and record.kind != "vllm":
        return Refusal("echo", "echo is known to be honoured by vLLM alone; this server might ignore it without a word")
    return None


def _seed(out: JSON, record: Record) -> Refusal | None:
    """One seeded request whose prompt is prefilled in chunks brings a whole CPU vLLM down."""
    if "seed" in out and record.kind == "vllm" and record.on_cpu:
        return Refusal("seed", "a seeded request can kill a vLLM that runs on CPU; leave seed out")
    return None


def _priority(out: JSON, record: Record) -> Refusal | None:
    if not out.get("priority"):
        out.pop("priority", None)
    elif record.verdict("priority") != "yes":
        told = "priority is ignored without a word by this server; name a request class instead, or start it with"
        home = ", and say so in scheduling of its endpoint" if record.kind == "vllm" else ""
        return Refusal("priority", f"{told}: {mend(record.kind, 'priority')}{home}")
    return None


def _reasoning(out: JSON, record: Record) -> Refusal | None:
    """Past reasoning under the name that this server reads; under the other it is lost (vllm-project/vllm#38488)."""
    new = record.kind == "vllm" and not record.older_than(*REASONING_SINCE)
    old, name = ("reasoning_content", "reasoning") if new else ("reasoning", "reasoning_content")
    said = out.get("messages")
    if not isinstance(said, list) or not any(isinstance(one, dict) and old in one for one in said):
        return None
    out["messages"] = [_moved(one, old, name) if isinstance(one, dict) else one for one in said]
    return None


def _moved(message: JSON, old: str, name: str) -> JSON:
    if old not in message:
        return message
    rest = {key: value for key, value in message.items() if key != old}
    return {name: message[old]} | rest


def _tools(out: JSON, record: Record) -> Refusal | None:
    """A required or named call is constrained, so it may work where calls of the model's own will do not."""
    need = calls(out)
    if need is not None and record.verdict(need) == "no":
        told = record.traits[need]
        return Refusal("tools", f"this server does not speak tool calls ({told.evidence}); {told.mend}")
    return None


RULES: tuple[Callable[[JSON, Record], Refusal | None], ...] = (
    constrain, _renamed, _hints, _foreign, _echo, _seed, _priority, _reasoning, _tools,
)  # fmt: skip
