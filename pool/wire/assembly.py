"""Puts a streamed answer together; pure.

llama.cpp is asked to stream because it drops a cancelled request only then, counts every sample's tokens only then,
and its metrics stand still until a request is done: the pieces are the only sign that it works.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from openai.types import Completion, CompletionChoice, CompletionUsage
from openai.types.chat import ChatCompletionChunk
from openai.types.chat.chat_completion_chunk import ChoiceDelta, ChoiceDeltaToolCall

from pool.errors import TransientError
from pool.types import Choice, ToolCall, Usage
from pool.wire.fields import read_finish, read_reasoning, read_usage


@dataclass
class Call:
    """A tool call as far as it has come."""

    id: str = ""
    name: str = ""
    arguments: str = ""


@dataclass
class Sample:
    """One sample as far as it has come. It is whole once ``finish`` was told."""

    content: str = ""
    reasoning: str = ""
    calls: dict[int, Call] = field(default_factory=dict)
    finish: str | None = None

    def choice(self) -> Choice:
        """The sample as a choice. Raises TransientError when the server gave it up."""
        calls = (
            ToolCall(id=call.id or f"call-{index}", name=call.name, arguments=call.arguments)
            for index, call in sorted(self.calls.items())
        )
        return Choice(
            content=self.content,
            reasoning=self.reasoning,
            tool_calls=tuple(calls),
            finish_reason=read_finish(self.finish),
        )


class Assembly:
    """Takes the pieces in the order in which they come."""

    def __init__(self) -> None:
        self._samples: dict[int, Sample] = {}
        self._usages: list[Usage] = []

    def add(self, piece: ChatCompletionChunk | Completion) -> None:
        """Take one piece."""
        for part in piece.choices or ():
            sample = self._samples.setdefault(part.index, Sample())
            sample.finish = part.finish_reason or sample.finish
            if isinstance(part, CompletionChoice):
                sample.content += part.text or ""
            else:
                _grow(sample, part.delta)
        if isinstance(piece.usage, CompletionUsage):
            self._usages.append(read_usage(piece.usage))

    def done(self) -> tuple[tuple[Choice, ...], Usage]:
        """Choices and usage, once the stream has ended.

        Raises TransientError for a torn answer: the end of a stream proves nothing, each sample must say how it ended.
        """
        samples = [sample for _, sample in sorted(self._samples.items())]
        if not samples or any(sample.finish is None for sample in samples):
            raise TransientError("the answer broke off in the middle of the stream")
        return tuple(sample.choice() for sample in samples), self._usage()

    def _usage(self) -> Usage:
        """One for all samples: llama.cpp tells the usage of each, and the same prompt with each of them."""
        if not self._usages:
            return Usage()
        cached = [usage.cached_tokens for usage in self._usages if usage.cached_tokens is not None]
        return Usage(
            prompt_tokens=max(usage.prompt_tokens for usage in self._usages),
            completion_tokens=sum(usage.completion_tokens for usage in self._usages),
            cached_tokens=max(cached, default=None),
        )


def _grow(sample: Sample, delta: ChoiceDelta) -> None:
    sample.content += delta.content or ""
    sample.reasoning += read_reasoning(delta)
    for piece in delta.tool_calls or ():
        _grow_call(sample.calls.setdefault(piece.index, Call()), piece)


def _grow_call(call: Call, piece: ChoiceDeltaToolCall) -> None:
    call.id = piece.id or call.id
    if piece.function is not None:
        call.name += piece.function.name or ""
        call.arguments += piece.function.arguments or ""
