"""The virtual model `vote`: several samples, the answer that most of them give, and no more samples than decide it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping

from pool.tiers.answers import bare, key, shown
from pool.tiers.run import Answer, Run
from pool.types import ChatRequest, Message, Reply

ENOUGH = 64  # tokens of a judge's ruling
SAMPLE = 2000  # characters of a candidate that a judge is shown


def wanted(counts: Mapping[str, int], drawn: int, samples: int) -> int:
    """Samples still to draw in one go: as many as could decide the vote, 0 once it is decided or all are drawn.

    It is decided when the leader has more than half of all samples, or cannot be caught up with any more.
    """
    left = samples - drawn
    leader, second = (*sorted(counts.values(), reverse=True)[:2], 0, 0)[:2]
    majority = samples // 2 + 1
    if left <= 0 or leader >= majority or leader > second + left:
        return 0
    return min(left, majority - leader)


async def vote(run: Run) -> Reply:
    """Draw samples in turn from the tiers until the vote is decided. Raises PoolError where no sample comes."""
    model = run.model
    votes: dict[str, list[Answer]] = {}
    spoiled: list[Answer] = []
    first = ""
    drawn = batches = 0
    warm = run.request.model_copy(update={"temperature": max(run.request.temperature, model.temperature)})
    while count := wanted({name: len(who) for name, who in votes.items()}, drawn, model.samples):
        tier = model.tiers[batches % len(model.tiers)]
        batches += 1
        answers = await run.part("sample", tier, warm, samples=count)
        if not answers and run.stopped != "done":
            break
        drawn += len(answers) or count
        for answer in answers:
            if answer.fault:
                spoiled.append(answer)
                continue
            name = key(answer.choice, model.compare)
            first = first or name
            votes.setdefault(name, []).append(answer)
    return await _counted(run, votes, spoiled, first)


async def _counted(run: Run, votes: dict[str, list[Answer]], spoiled: list[Answer], first: str) -> Reply:
    counts = Counter({name: len(who) for name, who in votes.items()})
    total = counts.total()
    if not total:
        gained = f"no sample could be used: {spoiled[0].fault}" if spoiled else ""
        return run.reply(spoiled[0] if spoiled else None, gained)
    winner, most = counts.most_common(1)[0]
    ruled = ""
    if run.model.judge and most < run.model.samples // 2 + 1 and len(votes) > 1 and run.stopped == "done":
        ruled = await _ruling(run, votes)
    drawn = total + len(spoiled)
    if drawn < run.model.samples and run.stopped == "done":
        run.stopped = "early"
    winner = ruled or winner
    run.figures |= {
        "agreement": len(votes[winner]) / total,
        "drawn": float(drawn),
        "answers": float(len(votes)),
        "changed": float(winner != first),
    }
    return run.reply(votes[winner][0], _gained(run, len(votes[winner]), total, ruled=bool(ruled)))


def _gained(run: Run, most: int, total: int, *, ruled: bool) -> str:
    alone = most == 1 < total
    parts = [f"no two of {total} samples agree" if alone else f"{most} of {total} samples agree"]
    if ruled:
        parts.append(f"{run.model.judge} ruled, since none had the majority")
    if alone and not ruled:
        parts.append("the first one stands")
    else:
        parts.append("the first sample was outvoted" if run.figures["changed"] else "the first sample already said so")
    spared = run.model.samples - int(run.figures["drawn"])
    if run.stopped == "early" and spared > 0:
        parts.append(f"{spared} samples were spared")
    elif run.stopped != "done":
        parts.append(f"the {run.stopped} ended it")
    return "; ".join(parts)


async def _ruling(run: Run, votes: dict[str, list[Answer]]) -> str:
    """The answer that the judge picks; empty where it picks none. A raw completion has no conversation to judge."""
    if not isinstance(run.request, ChatRequest) or run.model.judge is None:
        return ""
    names = list(votes)
    listed = "\n\n".join(
        f"<answer number={number}>\n{shown(votes[name][0].choice)[:SAMPLE]}\n</answer>"
        for number, name in enumerate(names, 1)
    )
    ask = f"Here are {len(names)} possible answers to the above. Which is the best one? Say its number.\n\n{listed}"
    schema = {
        "type": "object",
        "properties": {"best": {"type": "integer", "enum": list(range(1, len(names) + 1))}},
        "required": ["best"],
        "additionalProperties": False,
    }
    request = run.request.model_copy(
        update={
            "messages": (*run.request.messages, Message(role="user", content=ask)),
            "json_schema": schema,
            "tools": (),
            "temperature": 0.0,
            "max_tokens": ENOUGH,
        }
    )
    before = run.stopped
    answers = await run.part("judge", run.model.judge, request)
    run.stopped = before if answers else run.stopped
    number = picked(answers[0].choice.content) if answers else 0
    return names[number - 1] if 1 <= number <= len(names) else ""


def picked(text: str) -> int:
    """The number in a ruling; 0 where there is none."""
    try:
        value = json.loads(bare(text))
        found = value.get("best", 0) if isinstance(value, dict) else value
    except (ValueError, RecursionError):
        return 0
    return found if isinstance(found, int) else 0
