"""Let several requests make one answer: a vote, a cascade by confidence, merged drafts, a verified draft, and `auto`.

python examples/ask_several_models.py http://127.0.0.1:8000/v1 http://127.0.0.1:8001/v1 ["your question"]

The first address serves a small model, the second a large one.
"""

from __future__ import annotations

import asyncio
import sys

from pool.config import EndpointConfig, PoolConfig, VirtualConfig
from pool.errors import PoolError
from pool.router import Pool
from pool.tiers.front import Tiers
from pool.types import ChatRequest, Message, Reply

QUESTION = "What is 17 times 23? End with the number."
BOTH = ("small", "large")
VIRTUAL = {
    "vote": VirtualConfig(kind="vote", tiers=("small",), samples=5, compare="number"),
    "confidence": VirtualConfig(kind="confidence", tiers=BOTH),
    "fuse": VirtualConfig(kind="fuse", tiers=BOTH),
    "draft-verify": VirtualConfig(kind="draft-verify", tiers=BOTH),
}


async def compare(urls: list[str], question: str) -> None:
    """Ask one question of every kind. Raises PoolError."""
    endpoints = tuple(EndpointConfig(name=tier, url=url, tier=tier) for tier, url in zip(BOTH, urls, strict=True))
    config = PoolConfig(endpoints=endpoints, virtual=VIRTUAL)
    async with Pool(config) as pool:
        tiers = Tiers(pool, config)
        for name in (*VIRTUAL, "auto"):
            message = Message(role="user", content=question)
            request = ChatRequest(tier=name, session=name, messages=(message,), max_tokens=200, deadline=120)
            show(name, await tiers.chat(request))


def show(name: str, reply: Reply) -> None:
    """Print an answer, who gave it and what it cost."""
    print(f"{name}: {reply.choices[0].content.strip()[:200]}")
    print(f"  {reply.why}")
    if reply.report:
        print(f"  {reply.report.spent} of {reply.report.budget} tokens in {len(reply.report.parts)} requests")


def main() -> int:
    """Run it; the exit code."""
    if len(sys.argv) not in (3, 4):
        print(__doc__)
        return 2
    try:
        asyncio.run(compare(sys.argv[1:3], sys.argv[3] if len(sys.argv) == 4 else QUESTION))
    except PoolError as error:
        print(f"no answer: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
