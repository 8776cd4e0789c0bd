"""What pieces add up to: usage counted once however often it is told, and no more parts than an answer can have."""

from __future__ import annotations

from typing import Any

import pytest

from pool.errors import TransientError
from pool.types import Usage
from pool.wire.assembly import MOST, Assembly


def piece(text: str, finish: str | None = None, *, index: int = 0, usage: dict[str, int] | None = None) -> Any:
    return {"choices": [{"index": index, "delta": {"content": text}, "finish_reason": finish}], "usage": usage}


def used(prompt: int, completion: int) -> dict[str, int]:
    return {"prompt_tokens": prompt, "completion_tokens": completion}


def test_a_usage_that_grows_with_each_piece_is_not_added_up() -> None:
    """vLLM's continuous_usage_stats tells the whole of it each time."""
    assembly = Assembly()
    for count in (1, 2, 3):
        assembly.add(piece("x", usage=used(5, count)))
    assert assembly.usage == Usage(prompt_tokens=5, completion_tokens=3)
    assembly.add(piece("y", "stop", index=1, usage=used(5, 4)))
    assert assembly.usage == Usage(prompt_tokens=5, completion_tokens=7)
    assembly.add({"choices": [], "usage": used(5, 7)})
    assert assembly.usage == Usage(prompt_tokens=5, completion_tokens=7)


def test_a_usage_of_each_sample_is_added_up() -> None:
    """llama.cpp tells one of each."""
    assembly = Assembly()
    for _ in range(2):
        assembly.add({"choices": [], "usage": used(5, 3)})
    assert assembly.usage == Usage(prompt_tokens=5, completion_tokens=6)


def test_samples_and_calls_are_bounded() -> None:
    assembly = Assembly()
    for index in range(MOST):
        assembly.add(piece("x", index=index))
    with pytest.raises(TransientError, match="samples"):
        assembly.add(piece("x", index=MOST))
    calls = [{"index": index} for index in range(MOST + 1)]
    with pytest.raises(TransientError, match="tool calls"):
        assembly.add({"choices": [{"index": 0, "delta": {"tool_calls": calls}}]})


def test_it_has_ended_once_a_sample_has() -> None:
    assembly = Assembly()
    assembly.add(piece("x"))
    assert not assembly.ended
    assembly.add(piece("", "stop"))
    assert assembly.ended
    assembly.add(piece("x", index=1))
    assert assembly.ended
    assert not assembly.finished
