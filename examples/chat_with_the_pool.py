"""Use the pool of model servers on its own: one session of two turns, which stays where its prefix is cached.

python examples/chat_with_the_pool.py http://127.0.0.1:8000/v1 [more addresses of the same model]
"""

from __future__ import annotations

import asyncio
import sys

from pool.config import EndpointConfig, PoolConfig
from pool.errors import PoolError
from pool.router import Pool
from pool.types import ChatRequest, Message

QUESTIONS = ("Name a sorting algorithm.", "What does it cost in the worst case?")


async def chat(urls: list[str]) -> None:
    """Ask the questions in one session. Raises PoolError."""
    endpoints = tuple(EndpointConfig(name=f"box-{number}", url=url) for number, url in enumerate(urls, 1))
    async with Pool(PoolConfig(endpoints=endpoints)) as pool:
        messages: tuple[Message, ...] = (Message(role="system", content="Answer in one sentence."),)
        for question in QUESTIONS:
            messages += (Message(role="user", content=question),)
            request = ChatRequest(tier="default", session="example", messages=messages, max_tokens=100, deadline=60)
            reply = await pool.chat(request)
            answer = reply.choices[0].content
            messages += (Message(role="assistant", content=answer),)
            print(f"{question}\n  {answer.strip()}")
            print(f"  {reply.model} at {reply.endpoint}, {reply.seconds:.2f} s, cached: {reply.usage.cached_tokens}")


def main() -> int:
    """Run it; the exit code."""
    if len(sys.argv) < 2:
        print(__doc__)
        return 2
    try:
        asyncio.run(chat(sys.argv[1:]))
    except PoolError as error:
        print(f"no answer: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
