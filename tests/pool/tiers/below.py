"""A scripted pool with endpoints and prices, and short ways to write requests and replies."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pool.config import EndpointConfig, PoolConfig, VirtualConfig
from pool.testing import ScriptedPool
from pool.tiers.front import Tiers
from pool.types import (
    ChatRequest,
    Choice,
    CompletionRequest,
    EndpointStatus,
    LifeState,
    Message,
    Reply,
    ToolCall,
    ToolSpec,
    Traits,
    Usage,
)

READ = ToolSpec(
    name="read",
    description="Read a file.",
    parameters={
        "type": "object",
        "properties": {"path": {"type": "string"}},
        "required": ["path"],
        "additionalProperties": False,
    },
)


class Below(ScriptedPool):
    """The scripted pool with what tiers look at besides: endpoints, prices, and what they tell it."""

    def __init__(self, script: Any, *, windows: Mapping[str, int | None] | None = None, native: Any = True) -> None:
        super().__init__(script)
        self.windows: Mapping[str, int | None] = windows or {}
        self.states: dict[str, LifeState] = {}
        self.prices: dict[str, float] = {}
        self.ended: list[str] = []
        self.natives = native

    async def native_tools(self, tier: str) -> bool:
        found = self.natives[tier] if isinstance(self.natives, dict) else self.natives
        if isinstance(found, Exception):
            raise found
        return bool(found)

    async def traits(self, tier: str) -> Traits:
        return Traits(model=f"m-{tier}", window=self.windows.get(tier), native=await self.native_tools(tier))

    def status(self) -> tuple[EndpointStatus, ...]:
        return tuple(
            EndpointStatus(name=tier, tier=tier, url="http://x", state=self.states.get(tier, "up"), window=window)
            for tier, window in self.windows.items()
        )

    def estimate(self, request: ChatRequest | CompletionRequest, tier: str) -> float | None:
        return self.prices.get(tier)

    def acting(self, session: str, tool: str, expected: float | None = None) -> None:
        return None

    def end_session(self, session: str) -> None:
        self.ended.append(session)

    @property
    def asked(self) -> list[str]:
        """The tiers asked, in order."""
        return [request.tier for request in self.requests]


def by_tier(**answers: Any) -> Callable[[ChatRequest | CompletionRequest], Any]:
    """A script that answers by tier; a list is played in order, its last entry again and again."""
    queues = {tier: list(found) if isinstance(found, list) else [found] for tier, found in answers.items()}

    def play(request: ChatRequest | CompletionRequest) -> Any:
        queue = queues[request.tier]
        return queue.pop(0) if len(queue) > 1 else queue[0]

    return play


def chat(tier: str, *texts: str, **more: Any) -> ChatRequest:
    """A chat whose messages are by turns a person's and the model's."""
    messages = tuple(
        Message(role="user" if index % 2 == 0 else "assistant", content=text)
        for index, text in enumerate(texts or ("What is 6 times 7?",))
    )
    return ChatRequest(**{"tier": tier, "session": "s", "messages": messages, "max_tokens": 100, **more})


def sure(text: str, logprob: float = -0.01, **more: Any) -> Choice:
    """An answer of one token, of that logprob."""
    return Choice(content=text, logprobs=(logprob,), tokens=(text,), margins=(5.0,), **more)


def calls(name: str, **arguments: Any) -> Choice:
    return Choice(
        tool_calls=(ToolCall(id="c", name=name, arguments=json.dumps(arguments)),), finish_reason="tool_calls"
    )


def priced(choices: Iterable[Choice], prompt: int, written: int, **more: Any) -> Reply:
    """A reply that tells its cost."""
    usage = Usage(prompt_tokens=prompt, completion_tokens=written)
    return Reply(**{"choices": tuple(choices), "usage": usage, "endpoint": "e", "model": "m", "seconds": 0.1, **more})


def config(*tiers: str, virtual: dict[str, Any] | None = None, **more: Any) -> PoolConfig:
    """Settings with one endpoint for each tier, the weakest first."""
    endpoints = tuple(EndpointConfig(name=f"e-{tier}", url="http://x", tier=tier) for tier in tiers)
    models = {name: VirtualConfig(**settings) for name, settings in (virtual or {}).items()}
    return PoolConfig(endpoints=endpoints, virtual=models, **more)


def front(below: Below, virtual: dict[str, Any] | None = None, tiers: str = "small large", **more: Any) -> Tiers:
    return Tiers(below, config(*tiers.split(), virtual=virtual, **more))
