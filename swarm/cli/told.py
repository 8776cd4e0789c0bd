"""Journal lines in words, one sentence a kind (they are listed in `swarm.store.journal`): foreign text is cleaned."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from swarm.cli.clean import clean, one_line
from swarm.types import Step

Data = Mapping[str, Any]
STYLES = {
    "state": "bold",
    "fault": "red",
    "refusal": "red",
    "receipt": "bold green",
    "report": "bold",
    "phase_started": "cyan",
    "model_call": "dim",
    "output": "dim",
}


def told(step: Step, width: int = 160) -> str:
    """One journal line for a person: when, and what happened. A kind that is not known is shown with its data; what an
    agent printed stays in lines."""
    at = time.strftime("%H:%M:%S", time.localtime(step.at))
    if step.kind == "output":
        return "\n".join(f"{at}  │ {one_line(line, width)}" for line in clean(_text(step.data, "text")).splitlines())
    sentence = _SENTENCES.get(step.kind)
    words = sentence(step.data) if sentence else f"{step.kind} {_rest(step.data)}"
    return f"{at}  {one_line(words, width)}"


def _text(data: Data, key: str, otherwise: str = "") -> str:
    value = data.get(key)
    return otherwise if value in (None, "") else str(value)


def _names(data: Data, key: str) -> Sequence[str]:
    value = data.get(key)
    return [str(item) for item in value] if isinstance(value, list | tuple) else []


def _took(data: Data) -> str:
    value = data.get("seconds")
    return f", {value:.1f} s" if isinstance(value, int | float) else ""


def _state(data: Data) -> str:
    reason = _text(data, "reason")
    return f"{_text(data, 'from', 'new')} → {_text(data, 'to')}" + (f": {reason}" if reason else "")


def _attempt(data: Data) -> str:
    carries = _text(data, "carries")
    carried = f", carrying on from {carries}" if carries else ""
    return f"attempt {_text(data, 'number')}: {_text(data, 'strategy')} on tier {_text(data, 'tier')}{carried}"


def _phase_ended(data: Data) -> str:
    return f"{_text(data, 'phase')} {'failed' if data.get('ok') is False else 'done'}{_took(data)}"


def _model_call(data: Data) -> str:
    cached = data.get("cached_tokens")
    cache = f" ({cached} cached)" if cached else ""
    tokens = f"{_text(data, 'prompt_tokens', '?')}{cache} → {_text(data, 'completion_tokens', '?')} tokens"
    return f"asked {_text(data, 'model', 'a model')} at {_text(data, 'endpoint', '?')}: {tokens}{_took(data)}"


def _command(data: Data) -> str:
    argv = _names(data, "argv")
    words = shlex.join(argv) if argv else _text(data, "text") or _text(data, "command")
    code = _text(data, "exit_code")
    if data.get("tool") == "run_tests":  # never to be taken for what the checks say
        return (
            f"the agent's own run of the tests: {one_line(words, 70)}"
            + (f" → exit {code}" if code else "")
            + _took(data)
        )
    return f"$ {one_line(words, 90)}" + (f" → exit {code}" if code else "") + _took(data)


def _candidate(data: Data) -> str:
    if not _text(data, "file"):
        return f"tried a repair: {_rest(data)}"
    place = f"{_text(data, 'file')}:{_text(data, 'line', '?')}"
    change = f"{one_line(_text(data, 'old'), 50)} → {one_line(_text(data, 'new'), 50)}"
    verdict = "tests pass" if data.get("passed") is True else "tests fail"
    return f"tried {place}: {change}: {verdict}{_took(data)}"


def _salvage(data: Data) -> str:
    return f"kept in {_text(data, 'ref')}"


def _sealed(data: Data) -> str:
    files, left = _names(data, "files"), _names(data, "left_out")
    names = ", ".join(files[:5]) + (" …" if len(files) > 5 else "")
    return (
        f"sealed {len(files)} changed file{'' if len(files) == 1 else 's'}"
        + (f": {names}" if files else "")
        + (f"; left out {len(left)}" if left else "")
    )


def _report(data: Data) -> str:
    moved = f"{len(_names(data, 'fixed'))} mended, {len(_names(data, 'broken'))} broken"
    moved += f", {many} weakened" if (many := len(_names(data, "weakened"))) else ""
    moved += f", {many} flaky" if (many := len(_names(data, "flaky"))) else ""
    reason = _text(data, "reason")
    return f"checks {_text(data, 'verdict')}: {moved}" + (f"; {reason}" if reason else "")


def _known(data: Data) -> str:
    known = data.get("known")
    guides = known.get("guides") if isinstance(known, dict) else None
    names = [str(each.get("path")) for each in guides if isinstance(each, dict)] if isinstance(guides, list) else []
    command = _text(data, "test_command")
    return f"told of the repository: {', '.join(names) or 'no guides'}" + (f"; tests: {command}" if command else "")


def _receipt(data: Data) -> str:
    where = _text(data, "url") or _text(data, "pull_request")
    return f"pull request {_text(data, 'number')} on {_text(data, 'branch')}: {where}"


def _refusal(data: Data) -> str:
    findings = data.get("findings")
    said = (
        [str(one.get("message", "")) for one in findings if isinstance(one, dict)] if isinstance(findings, list) else []
    )
    return f"the broker refused: {'; '.join(said) or 'no reason given'}"


def _fault(data: Data) -> str:
    mend = _text(data, "mend")
    return f"{_text(data, 'what', 'a fault')}: {_text(data, 'why')}" + (f"; mend: {mend}" if mend else "")


_SENTENCES: Mapping[str, Callable[[Data], str]] = {
    "state": _state,
    "attempt": _attempt,
    "phase_started": lambda data: f"▸ {_text(data, 'phase')}",
    "phase_ended": _phase_ended,
    "message": lambda data: f"{_text(data, 'author', 'a person')} said: {_text(data, 'text')}",
    "note": lambda data: _text(data, "text") + _took(data),
    "model_call": _model_call,
    "budget": lambda data: f"budget: {_text(data, 'text').strip('[]')}",
    "command": _command,
    "edit": lambda data: f"edited {_text(data, 'path')}",
    "candidate": _candidate,
    "known": _known,
    "salvage": _salvage,
    "sealed": _sealed,
    "report": _report,
    "receipt": _receipt,
    "refusal": _refusal,
    "waiting": lambda data: f"the broker holds it and goes on by itself: {_text(data, 'reason')}",
    "fault": _fault,
    "cancel": lambda _: "asked to stop",
}


def _rest(data: Data) -> str:
    return " ".join(f"{key}={_short(value)}" for key, value in data.items() if value not in (None, "", [], {}))


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.2f}"
    return f"{len(value)} items" if isinstance(value, list | dict) else one_line(str(value), 60)
