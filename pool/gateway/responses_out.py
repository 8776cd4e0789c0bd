"""A chat's answer as OpenAI's Responses API tells it: one object, or the stream of events that leads to it; pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pool.gateway.in_turn import Block, InTurn
from pool.gateway.replies import Refusal, dumps

JSON = dict[str, Any]
PARTS = {"text": "output_text", "reasoning": "reasoning_text"}
CUT = {"length": "max_output_tokens", "content_filter": "content_filter"}


class Answer:
    """One response, growing. Each method gives the events that tell of what it did."""

    def __init__(self, number: str, created: int, asked: Mapping[str, Any]) -> None:
        self._number = number
        self._sequence = -1
        self._output: list[JSON] = []
        self._open: JSON | None = None
        self._block: Block | None = None
        self._turns = InTurn()
        self._finish: str | None = None
        self._body = _frame(f"resp_{number}", created, asked)

    def begin(self) -> Iterator[bytes]:
        """The response exists, with nothing in it."""
        yield self._event("response.created", response=self._response("in_progress"))
        yield self._event("response.in_progress", response=self._response("in_progress"))

    def alive(self, comment: bytes) -> bytes:
        """A sign of life, where the chat had a comment."""
        return comment

    def take(self, chunk: Mapping[str, Any]) -> Iterator[bytes]:
        """One chunk of a streamed chat, or a whole one whose choices have messages."""
        self._body["model"] = chunk.get("model") or self._body["model"]
        if isinstance(chunk.get("usage"), dict):
            self._body["usage"] = usage(chunk["usage"])
        for choice in chunk.get("choices") or ():
            for block, more in self._turns.take(choice.get("delta") or choice.get("message") or {}):
                yield from self._tell(block, more)
            self._finish = choice.get("finish_reason") or self._finish

    def end(self) -> Iterator[bytes]:
        """The answer is whole."""
        for block, more in self._turns.rest():
            yield from self._tell(block, more)
        yield from self._close()
        status = "incomplete" if self._finish in CUT else "completed"
        yield self._event(f"response.{status}", response=self._response(status))

    def fail(self, refusal: Refusal) -> bytes:
        """The answer broke off."""
        body = self._response("failed")
        body["error"] = {"code": "server_error", "message": refusal.message}
        return self._event("response.failed", response=body)

    def whole(self) -> JSON:
        """The response, once it has ended."""
        return self._response("incomplete" if self._finish in CUT else "completed")

    def _tell(self, block: Block, more: str) -> Iterator[bytes]:
        if block is not self._block:
            yield from self._close()
            self._block = block
            yield from self._begin(self._made(block))
        item = self._output[-1]
        if block.kind == "call":
            item["name"] = block.name
            if more:
                item["arguments"] += more
                yield self._event("response.function_call_arguments.delta", **self._at(item), delta=more)
            return
        part = PARTS[block.kind]
        if not item["content"]:
            yield self._part_event("added", item, _part(part, ""))
            item["content"].append(_part(part, ""))
        item["content"][0]["text"] += more
        told: JSON = {"logprobs": []} if part == "output_text" else {}
        yield self._event(f"response.{part}.delta", **self._at(item), content_index=0, delta=more, **told)

    def _made(self, block: Block) -> JSON:
        if block.kind == "text":
            return {"type": "message", "content": [], "role": "assistant"}
        if block.kind == "reasoning":
            return {"type": "reasoning", "content": [], "summary": []}
        called = block.id or f"call_{self._number}_{block.index}"
        return {"type": "function_call", "call_id": called, "name": block.name, "arguments": ""}

    def _begin(self, item: JSON) -> Iterator[bytes]:
        prefix = {"reasoning": "rs", "message": "msg", "function_call": "fc"}[item["type"]]
        item |= {"id": f"{prefix}_{self._number}_{len(self._output)}", "status": "in_progress"}
        self._open = item
        self._output.append(item)
        yield self._event("response.output_item.added", output_index=self._at(item)["output_index"], item=_copy(item))

    def _close(self) -> Iterator[bytes]:
        item, self._open, self._block = self._open, None, None
        if item is None:
            return
        item["status"] = "incomplete" if self._finish in CUT else "completed"
        at = self._at(item)
        if item["type"] == "function_call":
            told = {"name": item["name"], "arguments": item["arguments"]}
            yield self._event("response.function_call_arguments.done", **at, **told)
        else:
            part = item["content"][0]
            more: JSON = {"logprobs": []} if part["type"] == "output_text" else {}
            yield self._event(f"response.{part['type']}.done", **at, content_index=0, text=part["text"], **more)
            yield self._part_event("done", item, part)
        yield self._event("response.output_item.done", output_index=at["output_index"], item=_copy(item))

    def _part_event(self, what: str, item: JSON, part: JSON) -> bytes:
        return self._event(f"response.content_part.{what}", **self._at(item), content_index=0, part=dict(part))

    def _at(self, item: JSON) -> JSON:
        place = next(index for index, one in enumerate(self._output) if one is item)
        return {"item_id": item["id"], "output_index": place}

    def _response(self, status: str) -> JSON:
        cut = {"reason": CUT[self._finish or ""]} if status == "incomplete" else None
        return self._body | {
            "status": status,
            "incomplete_details": cut,
            "output": [_copy(item) for item in self._output],
        }

    def _event(self, kind: str, **fields: Any) -> bytes:
        self._sequence += 1
        body = {"type": kind, "sequence_number": self._sequence, **fields}
        return b"event: " + kind.encode() + b"\ndata: " + dumps(body) + b"\n\n"


def usage(told: Mapping[str, Any]) -> JSON:
    """A chat's usage in this API's words. Unknown is not zero, and a count is a number: then its details are null."""
    prompt, output = told.get("prompt_tokens") or 0, told.get("completion_tokens") or 0
    cached = (told.get("prompt_tokens_details") or {}).get("cached_tokens")
    thought = (told.get("completion_tokens_details") or {}).get("reasoning_tokens")
    return {
        "input_tokens": prompt,
        "input_tokens_details": None if cached is None else {"cached_tokens": cached},
        "output_tokens": output,
        "output_tokens_details": None if thought is None else {"reasoning_tokens": thought},
        "total_tokens": prompt + output,
    }


def _frame(number: str, created: int, asked: Mapping[str, Any]) -> JSON:
    """What a response says of its request."""
    reasoning = asked.get("reasoning") or {}
    return {
        "id": number,
        "object": "response",
        "created_at": created,
        "error": None,
        "instructions": asked.get("instructions"),
        "max_output_tokens": asked.get("max_output_tokens"),
        "metadata": asked.get("metadata") or {},
        "model": asked.get("model"),
        "parallel_tool_calls": asked.get("parallel_tool_calls", True),
        "previous_response_id": None,
        "reasoning": {"effort": reasoning.get("effort"), "summary": None},
        "background": False,
        "store": False,
        "temperature": asked.get("temperature"),
        "text": asked.get("text") or {"format": {"type": "text"}},
        "tool_choice": asked.get("tool_choice", "auto"),
        "tools": asked.get("tools") or [],
        "top_p": asked.get("top_p"),
        "truncation": "disabled",
        "usage": None,
    }


def _part(kind: str, text: str) -> JSON:
    part: JSON = {"type": kind, "text": text}
    return part | ({"annotations": [], "logprobs": []} if kind == "output_text" else {})


def _copy(item: JSON) -> JSON:
    return item | ({"content": [dict(part) for part in item["content"]]} if "content" in item else {})
