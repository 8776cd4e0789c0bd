"""What an answer shows of its session's next doings reaches admission, though the client tells nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pool.testing import pretend_vllm
from pool.types import Choice, ToolCall

TOOLS = [{"type": "function", "function": {"name": "shell", "parameters": {"type": "object"}}}]
CALLING = Choice(tool_calls=(ToolCall(id="c", name="shell", arguments="{}"),), finish_reason="tool_calls")


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("said", "more", "doing"),
    [
        (CALLING, {"tools": TOOLS}, "tool shell"),
        ("all is done", {"tools": TOOLS}, "no call"),
        ("all is done", {}, ""),
        (Choice(content="all is", finish_reason="length"), {"tools": TOOLS}, ""),
    ],
    ids=["calls", "calls nothing", "was offered nothing", "cut"],
)
async def test_answer_shows_what_its_session_does_next(
    gateway: Callable[..., Any], said: Any, more: dict[str, Any], doing: str, stream: bool
) -> None:
    async with pretend_vllm([said], tools="native") as server, gateway(server) as house:
        answer = await house.chat(more | {"stream": stream}, **{"X-Session-ID": "s"})
        assert answer.status_code == 200
        await house.quiet()
        session = house.service.pool._dispatch._presence.sessions.get("s")
        assert session.doing == doing
        assert session.away is not None
