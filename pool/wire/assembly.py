"""Puts an answer together from the pieces of a stream, or from one whole body; pure.

Works on plain objects as they came: building a checked model of each piece cost more than all the rest of a client
with a thousand streams. What is odd about a piece makes it a passing fault, never a wrong answer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pool.errors import TransientError
from pool.types import Choice, ToolCall, Usage
from pool.wire.fields import JSON, read_finish, read_usage
from pool.wire.logprobs import Likely, joined, read_logprobs

MOST = 1024  # samples of an answer, tool calls of a sample
Part = tuple[tuple[Choice, ...], Usage]


@dataclass(slots=True)
class Call:
    """A tool call as far as it has come."""

    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Sample:
    """One sample as far as it has come. It is whole once ``finish`` was told."""

    content: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    calls: dict[int, Call] = field(default_factory=dict)
    likely: list[Likely] = field(default_factory=list)
    finish: str | None = None

    def choice(self) -> Choice:
        """The sample as a choice. Raises TransientError when the server gave it up."""
        calls = (
            ToolCall(id=call.id or f"call-{index}", name=call.name, arguments="".join(call.arguments))
            for index, call in sorted(self.calls.items())
        )
        return Choice(
            content="".join(self.content),
            reasoning="".join(self.reasoning),
            tool_calls=tuple(calls),
            finish_reason=read_finish(self.finish),
            **joined(self.likely).fields(),
        )


class Assembly:
    """Takes the pieces in the order in which they come. ``ended`` tells that some sample said how it ended."""

    def __init__(self) -> None:
        self._samples: dict[int, Sample] = {}
        self._usages: list[Usage] = []
        self._running: dict[int, Usage] = {}
        self.ended = False

    def add(self, piece: JSON) -> bool:
        """Take one piece; True when it said something that a caller would see. Raises TransientError for an odd one."""
        try:
            said = False
            choices = piece.get("choices")
            for part in choices or ():
                said = self._take(part) or said
            if told := piece.get("usage"):
                self._count(choices, read_usage(told))
        except (AttributeError, TypeError, ValueError, LookupError, ArithmeticError) as error:
            raise TransientError(f"a piece of an answer with parts missing: {error!r}") from error
        return said

    @property
    def text(self) -> str:
        """What the first sample said so far."""
        return "".join(self._samples[0].content) if 0 in self._samples else ""

    @property
    def characters(self) -> int:
        """How much all samples said so far, calls and reasoning included."""
        texts = [text for one in self._samples.values() for text in (*one.content, *one.reasoning)]
        calls = [part for one in self._samples.values() for call in one.calls.values() for part in call.arguments]
        return sum(map(len, texts)) + sum(map(len, calls))

    @property
    def plain(self) -> bool:
        """Whether nothing but text of one sample came so far, so that it could be gone on with elsewhere."""
        first = self._samples.get(0, Sample())
        return self._samples.keys() <= {0} and not (first.calls or first.reasoning or first.likely or first.finish)

    @property
    def finished(self) -> bool:
        """Whether every sample said how it ended."""
        return bool(self._samples) and all(sample.finish is not None for sample in self._samples.values())

    @property
    def usage(self) -> Usage | None:
        """One usage for all samples: llama.cpp tells that of each, and the same prompt with each of them."""
        usages = self._usages or list(self._running.values())
        if len(usages) < 2:
            return usages[0] if usages else None
        cached = [usage.cached_tokens for usage in usages if usage.cached_tokens is not None]
        return Usage(
            prompt_tokens=max(usage.prompt_tokens for usage in usages),
            completion_tokens=sum(usage.completion_tokens for usage in usages),
            cached_tokens=max(cached, default=None),
        )

    def check(self) -> None:
        """Raises TransientError for an answer that is torn, or that the server gave up."""
        if not self.finished:
            raise TransientError("the answer broke off in the middle")
        for sample in self._samples.values():
            read_finish(sample.finish)

    def called(self, index: int, is_whole: Callable[[str], bool] = lambda _: True) -> bool:
        """Whether a sample has tool calls, and the arguments of each are whole."""
        made = self._samples[index].calls.values() if index in self._samples else ()
        return bool(made) and all(is_whole("".join(call.arguments)) for call in made)

    @property
    def tools(self) -> tuple[str, ...]:
        """Names of the tools that its samples call."""
        return tuple(call.name for sample in self._samples.values() for call in sample.calls.values())

    @property
    def cut(self) -> bool:
        """Whether some sample ended otherwise than by the model's own will."""
        return any(sample.finish not in ("stop", "tool_calls") for sample in self._samples.values())

    def done(self) -> Part:
        """Choices and usage, once the answer has ended.

        Raises TransientError for a torn answer: the end of a stream proves nothing, each sample must say how it ended.
        """
        if not self.finished:
            raise TransientError("the answer broke off in the middle")
        try:
            return tuple(sample.choice() for _, sample in sorted(self._samples.items())), self.usage or Usage()
        except (TypeError, ValueError) as error:
            raise TransientError(f"an answer with odd parts: {error!r:.200}") from error

    def _count(self, choices: Any, usage: Usage) -> None:
        """A usage beside a sample is what that sample took so far (vLLM's continuous_usage_stats), not more of it."""
        if choices:
            self._running[choices[0].get("index") or 0] = usage
        elif len(self._usages) < MOST:
            self._usages.append(usage)

    def _take(self, part: JSON) -> bool:
        index = part.get("index") or 0
        sample = self._samples.get(index)
        if sample is None:
            _room(self._samples, "samples")
            sample = self._samples[index] = Sample()
        if finish := part.get("finish_reason"):
            sample.finish, self.ended = finish, True
        if told := part.get("logprobs"):
            sample.likely.append(read_logprobs(told))
        delta = part.get("delta") or part.get("message")
        if delta is None:
            text = part.get("text")
            _grow(sample.content, text)
            return bool(text or finish)
        _grow(sample.content, delta.get("content"))
        reasoning = read_reasoning(delta)
        _grow(sample.reasoning, reasoning)
        calls = delta.get("tool_calls") or ()
        for index, call in enumerate(calls):
            place = index if (told_place := call.get("index")) is None else told_place
            if place not in sample.calls:
                _room(sample.calls, "tool calls")
                sample.calls[place] = Call()
            _grow_call(sample.calls[place], call)
        return bool(delta.get("content") or reasoning or calls or finish)


def whole(body: object) -> Part:
    """Choices and usage of an answer that came in one body. Raises TransientError for one that is broken or failed."""
    return assembled(body).done()


def assembled(body: object) -> Assembly:
    """An answer that came in one body, its samples numbered in their order. Raises TransientError for a broken one."""
    if not isinstance(body, dict) or not body.get("choices"):
        raise TransientError(f"not an answer of a model: {str(body)[:200]}")
    parts = body["choices"]
    if not isinstance(parts, list) or not all(
        isinstance(part, dict) and (isinstance(part.get("message"), dict) or "text" in part) for part in parts
    ):
        raise TransientError(f"an answer with parts missing: {str(body)[:200]}")
    assembly = Assembly()
    numbered = [{**part, "index": index} for index, part in enumerate(parts)]
    assembly.add({**body, "choices": numbered})
    return assembly


def read_reasoning(delta: JSON) -> str:
    """vLLM renamed `reasoning_content` to `reasoning` (vllm-project/vllm#27752); other servers kept the old name."""
    told = delta.get("reasoning") or delta.get("reasoning_content") or ""
    return told if isinstance(told, str) else ""


def _room(known: dict[int, Any], what: str) -> None:
    if len(known) >= MOST:
        raise ValueError(f"more than {MOST} {what}")


def _grow(texts: list[str], text: Any) -> None:
    if text:
        if not isinstance(text, str):
            raise TypeError(f"a text that is none: {text!r:.80}")
        texts.append(text)


def _grow_call(call: Call, piece: JSON) -> None:
    call.id = piece.get("id") or call.id
    function = piece.get("function") or {}
    call.name += function.get("name") or ""
    _grow(call.arguments, function.get("arguments"))
