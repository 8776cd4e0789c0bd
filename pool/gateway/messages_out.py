"""A chat's answer as Anthropic's Messages API tells it: one message, or the stream of events that leads to it; pure.

Source: docs.claude.com, Messages and Streaming Messages: message_start, then each block with start, deltas and stop,
message_delta with the usage so far, message_stop; errors as an event of that name.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from pool.gateway.in_turn import Block, InTurn
from pool.gateway.replies import Refusal, dumps
from pool.wire.arguments import whole_json

JSON = dict[str, Any]
STOPS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use", "content_filter": "refusal"}
ERRORS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    422: "invalid_request_error",
    429: "rate_limit_error",
    503: "overloaded_error",
}
EMPTY: dict[str, JSON] = {
    "text": {"type": "text", "text": ""},
    "reasoning": {"type": "thinking", "thinking": "", "signature": ""},
}
SAID = {  # where a block keeps what it says, and the kind of its deltas
    "text": ("text", "text_delta"),
    "reasoning": ("thinking", "thinking_delta"),
    "call": ("input", "input_json_delta"),
}
TOO_LONG = "prompt is too long"  # what agents look for before they shorten a conversation


class Message:
    """One message, growing. Each method gives the events that tell of what it did. ``model`` is what was asked for: a
    stream names it before anybody answers."""

    def __init__(self, number: str, model: str) -> None:
        self._number = number
        self._model = model
        self._blocks: list[JSON] = []
        self._open: JSON | None = None
        self._block: Block | None = None
        self._turns = InTurn()
        self._finish: str | None = None
        self._matched: str | None = None
        self._usage = usage({})

    def begin(self) -> Iterator[bytes]:
        """The message exists, with nothing in it; its usage is told at the end."""
        yield _event("message_start", message=self._message([]))
        yield _event("ping")

    def alive(self, comment: bytes) -> bytes:  # noqa: ARG002  it has an event of its own for that
        """A sign of life, where the chat had a comment."""
        return _event("ping")

    def take(self, chunk: Mapping[str, Any]) -> Iterator[bytes]:
        """One chunk of a streamed chat, or a whole one whose choices have messages."""
        if isinstance(chunk.get("usage"), dict):
            self._usage = usage(chunk["usage"])
        for choice in chunk.get("choices") or ():
            for block, more in self._turns.take(choice.get("delta") or choice.get("message") or {}):
                yield from self._tell(block, more)
            self._finish = choice.get("finish_reason") or self._finish
            if isinstance(matched := choice.get("stop_reason"), str):  # vLLM tells which text stopped it
                self._matched = matched

    def end(self) -> Iterator[bytes]:
        """The message is whole."""
        for block, more in self._turns.rest():
            yield from self._tell(block, more)
        yield from self._close()
        yield _event("message_delta", delta=self._stop(), usage=self._usage)
        yield _event("message_stop")

    def fail(self, refusal: Refusal) -> bytes:
        """It broke off."""
        return _event("error", error=error_of(refusal))

    def whole(self) -> JSON:
        """The message, once it has ended. A call whose arguments were cut off is left out: nobody must run it."""
        blocks = [_finished(block) for block in self._blocks]
        return self._message([block for block in blocks if block]) | self._stop() | {"usage": self._usage}

    def _tell(self, block: Block, more: str) -> Iterator[bytes]:
        if block is not self._block:
            yield from self._close()
            self._block = block
            yield from self._begin(self._made(block))
        if more:
            said, delta = SAID[block.kind]
            self._blocks[-1][said] += more
            yield self._delta({"type": delta, said if block.kind != "call" else "partial_json": more})

    def _made(self, block: Block) -> JSON:
        if block.kind != "call":
            return dict(EMPTY[block.kind])
        name = block.id or f"toolu_{self._number}_{block.index}"
        return {"type": "tool_use", "id": name, "name": block.name, "input": ""}

    def _begin(self, block: JSON) -> Iterator[bytes]:
        self._open = block
        self._blocks.append(block)
        shown = block | ({"input": {}} if block["type"] == "tool_use" else {})
        yield _event("content_block_start", index=len(self._blocks) - 1, content_block=shown)

    def _close(self) -> Iterator[bytes]:
        block, self._open, self._block = self._open, None, None
        if block is None:
            return
        if block["type"] == "thinking":  # nobody here can sign thoughts; clients only hand it back
            block["signature"] = self._number
            yield self._delta({"type": "signature_delta", "signature": self._number})
        yield _event("content_block_stop", index=len(self._blocks) - 1)

    def _delta(self, delta: JSON) -> bytes:
        return _event("content_block_delta", index=len(self._blocks) - 1, delta=delta)

    def _stop(self) -> JSON:
        reason = STOPS.get(self._finish or "", "end_turn")
        if reason == "end_turn" and any(block["type"] == "tool_use" for block in self._blocks):
            reason = "tool_use"  # a call that was forced ends in a plain stop
        if reason == "end_turn" and self._matched is not None:
            return {"stop_reason": "stop_sequence", "stop_sequence": self._matched}
        return {"stop_reason": reason, "stop_sequence": None}

    def _message(self, blocks: list[JSON]) -> JSON:
        return {
            "id": f"msg_{self._number}",
            "type": "message",
            "role": "assistant",
            "model": self._model,
            "content": blocks,
            "stop_reason": None,
            "stop_sequence": None,
            "usage": self._usage,
        }


def usage(told: Mapping[str, Any]) -> JSON:
    """A chat's usage in this API's words, where cached tokens are no part of the input. Unknown stays null."""
    prompt, cached = told.get("prompt_tokens") or 0, (told.get("prompt_tokens_details") or {}).get("cached_tokens")
    return {
        "input_tokens": max(0, prompt - (cached or 0)),
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached,
        "output_tokens": told.get("completion_tokens") or 0,
    }


def error_of(refusal: Refusal) -> JSON:
    """A refusal in this API's words."""
    long = refusal.code == "context_length_exceeded"
    return {
        "type": ERRORS.get(refusal.status, "invalid_request_error" if refusal.status < 500 else "api_error"),
        "message": f"{TOO_LONG}: {refusal.message}" if long else refusal.message,
    }


def error_body(refusal: Refusal) -> bytes:
    """The body of an answer that is a refusal."""
    return dumps({"type": "error", "error": error_of(refusal)})


def _finished(block: JSON) -> JSON | None:
    if block["type"] != "tool_use":
        return block
    arguments = block["input"] or "{}"
    return block | {"input": json.loads(arguments)} if whole_json(arguments) else None


def _event(kind: str, **fields: Any) -> bytes:
    return b"event: " + kind.encode() + b"\ndata: " + dumps({"type": kind, **fields}) + b"\n\n"
