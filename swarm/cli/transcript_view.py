"""A transcript for a person to read: who said and did what, what it cost, long texts folded. Pure; all is cleaned."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from rich.text import Text

from swarm.cli.clean import clean, one_line
from swarm.cli.told import told
from swarm.cli.view import amount
from swarm.transcripts.foreign import CUT
from swarm.transcripts.shape import End, Header, Result, Step, ToolCall, Transcript
from swarm.types import Step as Line

STYLES = {"agent": "bold cyan", "user": "bold green", "system": "bold"}
FOLDS = {"message": 40, "reasoning": 8, "result": 16, "argument": 16}  # lines that are shown unless all are wanted
_WIDTH = 2_000  # characters of a line that is shown
_BRIEF = 120


@dataclass(frozen=True)
class Wish:
    """What of a transcript is wanted. ``steps`` are numbers, None for all."""

    steps: range | None = None
    search: str = ""
    full: bool = False
    brief: bool = False


def shown(transcript: Transcript, wish: Wish) -> Iterator[Text]:
    """The lines to print, one after the other."""
    yield from _header(transcript.header)
    last = 0
    for step in transcript.steps:
        if not wanted(step, wish):
            continue
        if step.step_id > last + 1 and (wish.search or wish.steps):
            yield Text("    ⋮", style="dim")
        last = step.step_id
        for line in _brief(step) if wish.brief else _step(step, wish):
            yield _marked(line, wish.search)
    if transcript.end is not None and not wish.steps:
        yield from _end(transcript.end)


def wanted(step: Step, wish: Wish) -> bool:
    """Whether a step is to be shown."""
    if wish.steps is not None and step.step_id not in wish.steps:
        return False
    return not wish.search or wish.search.casefold() in _all_text(step).casefold()


def _all_text(step: Step) -> str:
    results = step.observation.results if step.observation else ()
    calls = [f"{call.function_name} {_argument_text(call)}" for call in step.tool_calls]
    return "\n".join((step.message, step.reasoning_content or "", *calls, *(each.content for each in results)))


def _header(header: Header) -> Iterator[Text]:
    agent = " ".join(part for part in (header.agent.name, header.agent.version) if part)
    facts = {
        "agent": agent + (f", strategy {header.strategy}" if header.strategy and header.strategy != agent else ""),
        "model": ", ".join(part for part in (header.agent.model_name, header.tier and f"tier {header.tier}") if part),
        "task": header.task,
        "attempt": header.attempt,
        "repository": header.repository + (f" at {header.base[:12]}" if header.base else ""),
        "started": header.started,
        "cut off": "the last line of the file was, and is left out" if header.extra.get(CUT) else "",
    }
    if header.title:
        yield Text(one_line(header.title, 200), style="bold")
    for name, value in facts.items():
        if value:
            yield Text(f"  {name:<12}", style="dim").append(one_line(value, 200), style="not dim")
    yield Text("")


def _end(end: End) -> Iterator[Text]:
    reason = f": {one_line(end.reason, 300)}" if end.reason else ""
    yield Text(f"── {one_line(end.ending, 80) or 'ended'}{reason}", style="bold")
    prompt, answered = end.total_prompt_tokens, end.total_completion_tokens
    cached = f" ({amount(end.total_cached_tokens)} cached)" if end.total_cached_tokens else ""
    tokens = f"{amount(prompt or 0)}{cached} → {amount(answered or 0)} tokens" if prompt or answered else ""
    cost = f"{end.total_cost_usd:.4f} USD" if end.total_cost_usd else ""
    parts = [f"{end.total_steps} steps" if end.total_steps is not None else "", tokens, cost, one_line(end.ended, 40)]
    yield Text("   " + " · ".join(part for part in parts if part), style="dim")


def _step(step: Step, wish: Wish) -> Iterator[Text]:
    sentence = _sentence(step)
    if sentence and not wish.full:
        yield Text(f"{step.step_id:>5} ", style="dim").append(sentence, style="dim")
        return
    yield _title(step)
    yield from _folded(step.reasoning_content or "", "  ┊ ", "dim italic", "reasoning", wish, step.step_id)
    yield from _folded(step.message, "  ", "", "message", wish, step.step_id)
    for call in step.tool_calls:
        yield from _call(call, wish, step.step_id)
    for result in step.observation.results if step.observation else ():
        yield from _result(result, wish, step.step_id)
    yield Text("")


def _title(step: Step) -> Text:
    facts = [step.model_name or "", *(str(step.extra.get(name) or "") for name in ("tier", "part", "kind"))]
    facts[-1] = "" if step.source == "agent" else facts[-1]
    words = " · ".join(part for part in (*(one_line(fact, 60) for fact in facts), _cost(step), _at(step)) if part)
    return Text(f"{step.step_id:>5} {step.source}", style=STYLES[step.source]).append(
        f"  {words}", style="not bold dim"
    )


def _cost(step: Step) -> str:
    metrics = step.metrics
    if metrics is None:
        return ""
    cached = f" ({amount(metrics.cached_tokens)} cached)" if metrics.cached_tokens else ""
    known = metrics.prompt_tokens is not None or metrics.completion_tokens is not None
    tokens = f"{amount(metrics.prompt_tokens or 0)}{cached} → {amount(metrics.completion_tokens or 0)} tokens"
    return " · ".join(part for part in (tokens if known else "", _seconds(metrics.extra)) if part)


def _seconds(extra: dict[str, Any]) -> str:
    value = extra.get("seconds")
    return f"{value:.1f} s" if isinstance(value, int | float) and not isinstance(value, bool) else ""


def _at(step: Step) -> str:
    if step.timestamp is None:
        return ""
    try:
        return datetime.fromisoformat(step.timestamp).strftime("%H:%M:%S")
    except ValueError:
        return ""


def _call(call: ToolCall, wish: Wish, number: int) -> Iterator[Text]:
    simple = {name: value for name, value in call.arguments.items() if not _long(value)}
    words = " ".join(f"{one_line(name, 40)}={one_line(_value(value), 200)}" for name, value in simple.items())
    yield Text("  → ", style="yellow").append(f"{one_line(call.function_name, 80)} {words}".rstrip(), style="yellow")
    if call.extra.get("raw"):
        yield from _folded(str(call.extra["raw"]), "    ", "yellow", "argument", wish, number)
    for name, value in call.arguments.items():
        if _long(value):
            yield Text(f"    {one_line(name, 40)}:", style="yellow dim")
            yield from _folded(_value(value), "      ", "yellow", "argument", wish, number)


def _result(result: Result, wish: Wish, number: int) -> Iterator[Text]:
    code = result.extra.get("exit_code")
    facts = [f"exit {one_line(str(code), 20)}" if code is not None else "", _seconds(result.extra)]
    words = " · ".join(part for part in facts if part)
    yield Text("  ← ", style="red" if code not in (None, 0) else "green").append(words, style="dim")
    yield from _folded(result.content, "    │ ", "", "result", wish, number)


def _folded(text: str, indent: str, style: str, what: str, wish: Wish, number: int) -> Iterator[Text]:
    """The lines of a text; of a long one its head and its larger tail, with how to see the rest between."""
    lines = clean(text).strip("\n").split("\n") if text.strip() else []
    most = FOLDS[what]
    if wish.full or wish.steps is not None or len(lines) <= most + 2:
        for line in lines:
            yield Text().append(indent, style="dim").append(_cut(line), style=style)
        return
    head = most // 3
    left = len(lines) - most
    for line in lines[:head]:
        yield Text().append(indent, style="dim").append(_cut(line), style=style)
    yield Text(f"{indent}… {left} lines more: --step {number}", style="dim")
    for line in lines[left + head :]:
        yield Text().append(indent, style="dim").append(_cut(line), style=style)


def _brief(step: Step) -> Iterator[Text]:
    if sentence := _sentence(step):
        yield Text(f"{step.step_id:>5} {sentence}", style="dim")
        return
    calls = ", ".join(f"{call.function_name} {_argument_text(call)}" for call in step.tool_calls)
    words = one_line(calls or step.message or step.reasoning_content or "", _BRIEF)
    line = Text(f"{step.step_id:>5} {step.source:<7}", style=STYLES[step.source]).append(
        words, style="not bold default"
    )
    codes = [each.extra.get("exit_code") for each in step.observation.results] if step.observation else []
    bad = next((code for code in codes if code not in (None, 0)), None)
    yield line.append(f"  exit {one_line(str(bad), 20)}", style="red") if bad is not None else line


def _sentence(step: Step) -> str:
    """What the program itself did, in one sentence as `swarm follow` has it; empty for what was said."""
    kind = step.extra.get("kind")
    if step.source != "system" or not isinstance(kind, str) or "role" in step.extra or kind == "output":
        return ""
    data = {name: value for name, value in step.extra.items() if name not in {"kind", "seq"}}
    sentence = told(Line(task="t", attempt=None, seq=0, at=0.0, kind=kind, data=data | {"text": step.message}))
    return sentence[10:]


def _marked(line: Text, search: str) -> Text:
    if search:
        line.highlight_words([search], style="reverse", case_sensitive=False)
    return line


def _argument_text(call: ToolCall) -> str:
    return " ".join(_value(value) for value in call.arguments.values()) or str(call.extra.get("raw", ""))


def _value(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _long(value: Any) -> bool:
    text = _value(value)
    return "\n" in text.strip() or len(text) > 200


def _cut(line: str) -> str:
    return line if len(line) <= _WIDTH else f"{line[: _WIDTH - 1]}…"
