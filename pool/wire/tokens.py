"""Questions about tokens in vLLM's words, as llama.cpp's server is asked them and answers them; pure.

vLLM: vllm/entrypoints/openai/protocol.py, Tokenize*; llama.cpp: tools/server/README.md, /tokenize and /apply-template.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pool.errors import PermanentError, TransientError

JSON = dict[str, Any]
TOKENIZE = "/tokenize"
KNOWN = {  # what of vLLM's fields can be said to llama.cpp
    "/tokenize": {
        "model",
        "prompt",
        "messages",
        "tools",
        "chat_template_kwargs",
        "add_special_tokens",
        "return_token_strs",
    },
    "/detokenize": {"model", "tokens"},
}
DEFAULTS = {"add_generation_prompt": True, "continue_final_message": False}  # what it does anyway


class OddTokensError(TransientError):
    """A server's answer to such a question is none; another one's may be."""


def template_of(path: str, body: Mapping[str, Any]) -> JSON | None:
    """The chat whose prompt is to be asked for first; None for a question about text."""
    if path != TOKENIZE or "messages" not in body:
        return None
    return {name: body[name] for name in ("messages", "tools", "chat_template_kwargs") if body.get(name) is not None}


def prompt_of_template(body: Mapping[str, Any], answer: Mapping[str, Any]) -> JSON:
    """The question about a chat as one about its prompt. Raises OddTokensError for an answer without any."""
    prompt = answer.get("prompt")
    if not isinstance(prompt, str):
        raise OddTokensError("the server made no prompt of the messages")
    rest = {name: value for name, value in body.items() if name not in ("messages", "tools", "chat_template_kwargs")}
    return rest | {"prompt": prompt}


def asked_of_llamacpp(path: str, body: Mapping[str, Any]) -> JSON:
    """The same question as llama.cpp is asked it. Raises PermanentError that names what it cannot be asked."""
    for name, value in body.items():
        if name not in KNOWN[path] and value is not None and (name not in DEFAULTS or value != DEFAULTS[name]):
            raise PermanentError(f"{name} is vLLM's own field, and llama.cpp would ignore it without a word")
    if path != TOKENIZE:
        return {"tokens": body.get("tokens")}
    if not isinstance(body.get("prompt"), str):
        raise PermanentError("prompt is a text, or messages are a list")
    return {
        "content": body["prompt"],
        "add_special": body.get("add_special_tokens") is not False,
        "parse_special": True,
        "with_pieces": bool(body.get("return_token_strs")),
    }


def told_by_vllm(path: str, answer: Mapping[str, Any]) -> JSON:
    """Its answer as it is. Raises OddTokensError for one that does not say what was asked."""
    count = answer.get("count")
    if path == TOKENIZE and not (isinstance(count, int) and not isinstance(count, bool) and count >= 0):
        raise OddTokensError("what it answered holds no count of tokens")
    if path != TOKENIZE and not isinstance(answer.get("prompt"), str):
        raise OddTokensError("what it answered holds no text")
    return dict(answer)


def told_by_llamacpp(path: str, answer: Mapping[str, Any], window: int | None) -> JSON:
    """Its answer in vLLM's words. Raises OddTokensError for one that cannot be read."""
    if path != TOKENIZE:
        if not isinstance(answer.get("content"), str):
            raise OddTokensError("the server gave no text")
        return {"prompt": answer["content"]}
    tokens = answer.get("tokens")
    if not isinstance(tokens, list):
        raise OddTokensError("the server gave no tokens")
    whole = all(isinstance(token, dict) for token in tokens) and bool(tokens)
    return {
        "count": len(tokens),
        "max_model_len": window,
        "tokens": [token.get("id") for token in tokens] if whole else tokens,
        "token_strs": [_piece(token.get("piece")) for token in tokens] if whole else None,
    }


def _piece(piece: Any) -> str:
    """A token's text; a part of a character comes as bytes."""
    if isinstance(piece, list):
        return bytes(byte for byte in piece if isinstance(byte, int) and 0 <= byte < 256).decode("utf-8", "replace")
    return str(piece)
