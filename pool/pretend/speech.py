"""How the pretend server words an answer, whole or in pieces, as vLLM does; pure."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from pool.pretend.tokens import Tokenizer
from pool.types import Choice

JSON = dict[str, Any]

LOGPROB = -0.25  # of each token whose probability the script does not tell


@dataclass(frozen=True, slots=True)
class Token:
    """One token of an answer: a piece of its reasoning, its content, or the arguments of a call."""

    part: Literal["reasoning", "content", "call", "arguments"]
    text: str
    call: int = 0


@dataclass(frozen=True)
class Spoken:
    """One choice, cut into tokens."""

    choice: Choice
    tokenizer: Tokenizer

    @cached_property
    def tokens(self) -> tuple[Token, ...]:
        """All of it in order: reasoning, content, calls."""
        pieces = self.tokenizer.pieces
        found = [Token("reasoning", text) for text in pieces(self.choice.reasoning)]
        found += [Token("content", text) for text in pieces(self.choice.content)]
        for index, call in enumerate(self.choice.tool_calls):
            found.append(Token("call", call.name, index))
            found += [Token("arguments", text, index) for text in pieces(call.arguments)]
        return tuple(found)

    @property
    def logprobs(self) -> tuple[float, ...]:
        """One for each token."""
        told = self.choice.logprobs[: len(self.tokens)]
        return told + (LOGPROB,) * (len(self.tokens) - len(told))

    def delta(self, start: int, end: int) -> JSON:
        """What a chat chunk says of the tokens from ``start`` to ``end``."""
        delta: JSON = {}
        for token in self.tokens[start:end]:
            if token.part in ("reasoning", "content"):
                delta[token.part] = delta.get(token.part, "") + token.text
            else:
                _grow_calls(delta.setdefault("tool_calls", []), token, self.choice)
        return delta

    def text(self, start: int, end: int) -> str:
        """What a completion chunk says of them."""
        return "".join(token.text for token in self.tokens[start:end] if token.part == "content")

    def message(self) -> JSON:
        """The message of a whole chat answer."""
        calls = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in self.choice.tool_calls
        ]
        return {
            "role": "assistant",
            "content": self.choice.content or None,
            "tool_calls": calls or None,
            "reasoning": self.choice.reasoning or None,
        }


@dataclass(frozen=True)
class Voice:
    """Everything that the answers to one request have in common."""

    id: str
    model: str
    chat: bool
    body: JSON

    @property
    def wants_logprobs(self) -> bool:
        """Whether the request asked for the probabilities of its tokens."""
        asked = self.body.get("logprobs")
        return asked is not None and asked is not False

    @property
    def wants_usage(self) -> bool:
        """Whether a stream ends with its usage."""
        return bool((self.body.get("stream_options") or {}).get("include_usage"))

    def whole(self, samples: list[Spoken], usage: JSON | None) -> JSON:
        """The answer of a request that does not stream."""
        choices = [self._choice(index, sample) for index, sample in enumerate(samples)]
        kind = "chat.completion" if self.chat else "text_completion"
        head = {"id": self.id, "object": kind, "created": 0, "model": self.model, "choices": choices}
        return head if usage is None else {**head, "usage": usage}

    def opening(self, index: int) -> JSON:
        """The first chunk of a sample in a chat stream: its role."""
        return self._chunk([{"index": index, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}])

    def piece(self, index: int, sample: Spoken, start: int, end: int, *, finish: bool) -> JSON:
        """A chunk with the tokens from ``start`` to ``end``, and how the sample ended if it did."""
        said: JSON = {"delta": sample.delta(start, end)} if self.chat else {"text": sample.text(start, end)}
        logprobs = self._logprobs(sample, start, end) if self.wants_logprobs else None
        reason = sample.choice.finish_reason if finish else None
        return self._chunk([{"index": index, **said, "logprobs": logprobs, "finish_reason": reason}])

    def closing(self, usage: JSON) -> JSON:
        """The last chunk of a stream that was asked for its usage."""
        return {**self._chunk([]), "usage": usage}

    def _choice(self, index: int, sample: Spoken) -> JSON:
        said: JSON = {"message": sample.message()} if self.chat else {"text": sample.choice.content}
        logprobs = self._logprobs(sample, 0, len(sample.tokens)) if self.wants_logprobs else None
        return {"index": index, **said, "logprobs": logprobs, "finish_reason": sample.choice.finish_reason}

    def _chunk(self, choices: list[JSON]) -> JSON:
        kind = "chat.completion.chunk" if self.chat else "text_completion"
        return {"id": self.id, "object": kind, "created": 0, "model": self.model, "choices": choices}

    def _logprobs(self, sample: Spoken, start: int, end: int) -> JSON:
        pairs = list(zip(sample.tokens[start:end], sample.logprobs[start:end], strict=True))
        if self.chat:
            most = int(self.body.get("top_logprobs") or 0)
            return {"content": [_probable(token.text, value, most) for token, value in pairs]}
        return {
            "tokens": [token.text for token, _ in pairs],
            "token_logprobs": [value for _, value in pairs],
            "top_logprobs": [{token.text: value} for token, value in pairs],
            "text_offset": [len(sample.text(0, start + at)) for at in range(len(pairs))],
        }


def _probable(text: str, value: float, most: int) -> JSON:
    one = {"token": text, "logprob": value, "bytes": list(text.encode())}
    others = [{"token": f"~{rank}", "logprob": value - rank, "bytes": None} for rank in range(1, most)]
    return {**one, "top_logprobs": [one, *others] if most else []}


def _grow_calls(calls: list[JSON], token: Token, choice: Choice) -> None:
    if token.part == "call":
        function = {"name": token.text, "arguments": ""}
        calls.append({"index": token.call, "id": choice.tool_calls[token.call].id, "type": "function"})
        calls[-1]["function"] = function
    elif calls and calls[-1]["index"] == token.call:
        calls[-1]["function"]["arguments"] += token.text
    else:
        calls.append({"index": token.call, "function": {"arguments": token.text}})
