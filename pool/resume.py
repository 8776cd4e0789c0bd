"""Whether and how an answer that broke off is gone on with at another endpoint; pure.

Safe is text alone: what was said is put behind the prompt and the model goes on from there. A tool call, a structured
answer, reasoning, more than one sample or log probabilities cannot be continued without guessing, and a retry of what
a caller already saw would say it twice (livekit/agents-js#2477, aden-hive#5923, open-interpreter#291, nuguard#455).
"""

from __future__ import annotations

from typing import Any

from pool.types import ServerKind

JSON = dict[str, Any]

FORMS = (
    "response_format", "structured_outputs", "json_schema", "grammar", "guided_json", "guided_regex", "guided_choice",
    "guided_grammar", "echo", "suffix", "logprobs", "prompt_logprobs", "return_token_ids", "best_of",
)  # fmt: skip
ROOM = 8  # tokens that must be left of the ceiling, or there is nothing to go on for


def safe(body: JSON, *, plain: bool) -> bool:
    """Whether an answer to ``body`` may be gone on with, given that ``plain`` text of one sample is all that came."""
    if not plain or (body.get("n") or 1) != 1 or any(body.get(field) for field in FORMS):
        return False
    if "messages" in body:
        forced = body.get("tools") and body.get("tool_choice", "auto") not in ("auto", "none")
        return not forced and body.get("add_generation_prompt") is not False
    return isinstance(body.get("prompt"), str)


def can(kind: ServerKind | None, body: JSON) -> bool:
    """Whether a server of this kind can go on: any that takes a raw prompt, of chats vLLM alone."""
    return kind == "vllm" or (kind == "llamacpp" and "messages" not in body)


def continued(body: JSON, partial: str, spent: int) -> JSON | None:
    """The body that goes on after ``partial`` (``spent`` tokens); None when too little is left to say.

    Blanks at the end are not sent, since chat templates drop them; those that come again are taken out at the joint.
    """
    most = body.get("max_completion_tokens") or body.get("max_tokens")
    if most is not None and most - spent < ROOM:
        return None
    out = dict(body)
    for name in ("max_tokens", "max_completion_tokens"):
        if out.get(name):
            out[name] = out[name] - spent
    kept = partial.rstrip()
    if not kept:
        return None
    if "messages" in out:
        out["messages"] = [*out["messages"], {"role": "assistant", "content": kept}]
        out |= {"add_generation_prompt": False, "continue_final_message": True}
    else:
        out["prompt"] = out["prompt"] + kept
    return out


def spliced(partial: str, further: str) -> str:
    """The whole text: blanks at the joint that were said already are not said again."""
    blanks = partial[len(partial.rstrip()) :]
    while blanks and further and further[0] == blanks[0]:
        blanks, further = blanks[1:], further[1:]
    return partial + further
