"""The virtual model `confidence`: the answer of a small tier is kept where the model was sure of it, else the next tier
is asked. Measures as in vLLM's semantic router; what a server does not tell is never taken for sureness."""

from __future__ import annotations

from pool.tiers.answers import confidence
from pool.tiers.run import Answer, Run
from pool.types import Reply

THRESHOLDS = {"mean": -1.0, "margin": 0.5, "least": -4.0}


async def cascade(run: Run) -> Reply:
    """Ask one tier after the other until one is sure. Raises PoolError where none answers."""
    model = run.model
    least = THRESHOLDS[model.measure] if model.threshold is None else model.threshold
    best: Answer | None = None
    doubts: list[str] = []
    for tier in dict.fromkeys(model.tiers):
        last = tier == model.tiers[-1]
        asked = run.request.model_copy(update={"logprobs": not last or run.request.logprobs})
        answers = await (run.last if last else run.part)("answer", tier, asked)
        if not answers:
            if run.stopped != "done":
                break
            doubts.append(f"{tier} failed")
            continue
        answer = answers[0]
        best = answer if best is None or not answer.fault or best.fault else best
        doubt = "" if last else _doubt(run, answer, least)
        if not doubt:
            break
        doubts.append(f"{tier} {doubt}")
    return run.reply(best, _gained(run, best, doubts))


def _doubt(run: Run, answer: Answer, least: float) -> str:
    """Why an answer is not kept; empty where it is."""
    if answer.fault:
        return f"gave no usable answer: {answer.fault}"
    if answer.choice.finish_reason == "length":
        return "was cut off"
    found = confidence(answer.choice, run.model.measure, arguments_only=run.model.arguments_only)
    if found is None:
        return "does not tell how sure it is"
    run.figures[f"confidence:{answer.tier}"] = found
    return "" if found >= least else f"was unsure ({found:.2f} below {least:g})"


def _gained(run: Run, best: Answer | None, doubts: list[str]) -> str:
    if best is None:
        return ""
    above = [tier for tier in dict.fromkeys(run.model.tiers) if tier not in {part.tier for part in run.parts}]
    run.figures["spared"] = float(len(above))
    parts = [*doubts, f"{best.tier} answers"]
    if run.stopped != "done":
        parts.append(f"the {run.stopped} ended it")
    elif above:
        parts.append(f"{', '.join(above)} was spared" if len(above) == 1 else f"{', '.join(above)} were spared")
    if best.fault:
        parts.append(f"nobody gave a usable answer: {best.fault}")
    return "; ".join(parts)
