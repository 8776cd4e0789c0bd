"""What votes and cascades of the embedded model cost and gain against its single answer, on small questions.

    python -m benchmarks.micro_agents [--quick] [--seeds N]

Four ways in one go, on the same questions (sums, and answers in a fixed form), each as one session a question: the
single answer, a vote of up to 5, a vote of up to 9, and a cascade that asks the same model again where it was unsure.
The embedded model has 135 million parameters and knows little: the shares of right answers are low and say nothing
about larger models. What is measured is what a virtual model costs in tokens and seconds, how often its samples agree,
and whether agreement tells right from wrong. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from pool.config import EmbeddedConfig, PoolConfig, VirtualConfig
from pool.embedded import serve_embedded
from pool.errors import PoolError
from pool.router import Pool
from pool.tiers.front import Tiers
from pool.types import ChatRequest, Message

SUMS = ((1, 1), (2, 2), (3, 2), (5, 5), (4, 3), (7, 2), (10, 5), (6, 6), (9, 4), (8, 3), (12, 7), (20, 30))
FORMS = (
    ("Answer with one word, yes or no: is fire hot?", "yes"),
    ("Answer with one word, yes or no: is ice warm?", "no"),
    ("Answer with one word: which colour has the sky on a clear day?", "blue"),
    ("Answer with one word: the capital of France?", "paris"),
    ("Answer with one word: the opposite of hot?", "cold"),
    ("Answer with one word: the day after Monday?", "tuesday"),
)
WAYS: dict[str, VirtualConfig] = {
    "vote5": VirtualConfig(kind="vote", tiers=("embedded",), samples=5, compare="number"),
    "vote9": VirtualConfig(kind="vote", tiers=("embedded",), samples=9, compare="number"),
    "cascade": VirtualConfig(kind="confidence", tiers=("embedded", "again"), threshold=-0.5),
}
QUICK = 4  # questions
WARM = 0.7  # the single answer is drawn at the temperature of the votes, or the comparison would be of temperatures


@dataclass(frozen=True)
class Asked:
    """One question put one way."""

    way: str
    right: bool
    tokens: int
    seconds: float
    requests: int
    agreement: float | None = None


def questions(count: int | None) -> list[tuple[str, str]]:
    """The questions with their right answers, sums and forms by turns."""
    sums = [(f"What is {a} plus {b}? Answer with one number.", str(a + b)) for a, b in SUMS]
    mixed = [pair for both in zip(sums, (*FORMS, *FORMS), strict=True) for pair in both]
    unique = list(dict.fromkeys(mixed))
    return unique[:count] if count else unique


def right(answer: str, wanted: str) -> bool:
    """Whether the last number, or the first word, is the wanted one."""
    if wanted.isdigit():
        found = re.findall(r"\d+", answer)
        return bool(found) and found[-1] == wanted
    return bool(words := re.findall(r"[a-z]+", answer.casefold())) and words[0] == wanted


async def put(tiers: Tiers, way: str, question: tuple[str, str], session: str) -> Asked:
    """One question, one way."""
    request = ChatRequest(
        tier="embedded" if way == "single" else way,
        session=session,
        messages=(Message(role="user", content=question[0]),),
        max_tokens=16,
        temperature=WARM,
        deadline=600,
    )
    began = time.monotonic()
    reply = await tiers.chat(request)
    return Asked(
        way,
        right(reply.choices[0].content, question[1]),
        reply.usage.prompt_tokens + reply.usage.completion_tokens,
        time.monotonic() - began,
        len(reply.report.parts) if reply.report else 1,
        reply.report.figures.get("agreement") if reply.report else None,
    )


async def measure(count: int | None, seeds: int) -> list[Asked]:
    """Every question every way, in turn, so that all ways meet the same load."""
    asked: list[Asked] = []
    with tempfile.TemporaryDirectory() as folder:
        serving = serve_embedded(EmbeddedConfig(enabled=True), log=Path(folder) / "llama.log")
        async with serving as endpoint:
            again = endpoint.model_copy(update={"name": "again", "tier": "again"})
            config = PoolConfig(endpoints=(endpoint, again), virtual=WAYS)
            async with Pool(config) as pool:
                tiers = Tiers(pool, config)
                for seed in range(seeds):
                    for number, question in enumerate(questions(count)):
                        session = f"{seed}-{number}"
                        asked += [await put(tiers, way, question, f"{session}-{way}") for way in ("single", *WAYS)]
    return asked


def summary(asked: list[Asked]) -> dict[str, dict[str, float]]:
    """By way: the share of right answers, tokens, seconds and requests a question, and what agreement tells."""
    table: dict[str, dict[str, float]] = {}
    for way in ("single", *WAYS):
        ours = [one for one in asked if one.way == way]
        row = {
            "right": statistics.fmean(one.right for one in ours),
            "tokens": statistics.fmean(one.tokens for one in ours),
            "seconds": statistics.median(one.seconds for one in ours),
            "requests": statistics.fmean(one.requests for one in ours),
        }
        for name, wanted in (("agreement_right", True), ("agreement_wrong", False)):
            shares = [one.agreement for one in ours if one.agreement is not None and one.right is wanted]
            if shares:
                row[name] = statistics.fmean(shares)
        table[way] = {name: round(value, 3) for name, value in row.items()}
    return table


def main() -> int:
    """Run it; the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help=f"{QUICK} questions, one seed: under a minute")
    parser.add_argument("--seeds", type=int, default=5, help="times that every question is put every way")
    options = parser.parse_args()
    try:
        asked = asyncio.run(measure(QUICK if options.quick else None, 1 if options.quick else options.seeds))
    except PoolError as error:
        print(f"not measured: {error}", file=sys.stderr)
        return 1
    table = summary(asked)
    print(f"{'way':10}{'right':>8}{'tokens':>9}{'seconds':>9}{'requests':>10}")
    for way, row in table.items():
        print(f"{way:10}{row['right']:8.0%}{row['tokens']:9.0f}{row['seconds']:9.2f}{row['requests']:10.1f}")
    gain = {
        way: {
            "right_gain": round(row["right"] - table["single"]["right"], 3),
            "token_ratio": round(row["tokens"] / table["single"]["tokens"], 2),
        }
        for way, row in table.items()
        if way != "single"
    }
    print(json.dumps({"questions": len(asked) // (1 + len(WAYS)), "ways": table, "against_single": gain}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
