"""What a run of the tests says, read for a model: which fail and why, and what changed since the last run. Pure.

Names come from `evidence`, which the checks use as well. The text comes from code under test and is only ever shown.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from xml.etree.ElementTree import ParseError

from defusedxml import DefusedXmlException
from defusedxml.ElementTree import fromstring

from swarm import evidence
from swarm.evidence import Results
from swarm.history import clean

_MESSAGE, _MESSAGES, _NAMED = 900, 5, 25  # characters of a failure's words, failures with words, failures with a name
_LEFT_OUT = "[...]\n"
_SECTION = re.compile(
    r"^={70}\n(?:FAIL|ERROR): (?P<method>\w+) \((?P<where>[\w.]+)\)[^\n]*\n(?:[^\n-][^\n]*\n)?-{70}\n"
    r"(?P<words>.*?)(?=^={70}\n|^-{70}\n|\Z)",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Report:
    """Tests by outcome, told apart by name, and why those that fail do."""

    results: Results
    reasons: Mapping[str, str] = field(default_factory=dict)


def read_junit(data: bytes) -> Report | None:
    """A JUnit report with its reasons. None where it is none."""
    results = evidence.read_junit(data)
    if results is None:
        return None
    try:
        root = fromstring(data, forbid_dtd=True)
    except (ParseError, DefusedXmlException, ValueError):
        return None
    reasons: dict[str, str] = {}
    for case in root.iter("testcase"):
        bad = [child for child in case if child.tag in ("failure", "error")]
        if bad:
            reasons.setdefault(evidence.case_name(case), (bad[0].text or "").strip("\n") or bad[0].get("message", ""))
    return Report(results, reasons)


def read_unittest(text: str) -> Report | None:
    """The lines of ``unittest -v`` with the reasons that follow them. None where there are none."""
    plain = text.replace("\r\n", "\n")
    results = evidence.read_unittest(plain)
    if results is None:
        return None
    reasons = {}
    for match in _SECTION.finditer(plain):
        where, method = match["where"], match["method"]
        reasons[where if where.endswith(f".{method}") else f"{where}.{method}"] = match["words"].strip()
    return Report(results, reasons=reasons)


def _end(text: str) -> str:
    """The last lines that fit of a failure's words: there the reason stands, and the line."""
    tail = clean(text[-4 * _MESSAGE :])
    if len(tail) <= _MESSAGE and len(text) <= 4 * _MESSAGE:
        return tail
    tail = tail[-_MESSAGE:]
    return _LEFT_OUT + (tail[tail.find("\n") + 1 :] if "\n" in tail[:-1] else tail)


def counts(report: Report) -> str:
    """How many tests came out how."""
    parts = [
        (len(report.results.failed), "failed"),
        (len(report.results.passed), "passed"),
        (len(report.results.skipped), "skipped"),
    ]
    return ", ".join(f"{count} {word}" for count, word in parts if count or word == "passed")


def change(failed_before: Sequence[str] | None, report: Report) -> str:
    """What changed since the last run of the same tests; empty where nothing is known of one or nothing changed."""
    if failed_before is None:
        return ""
    before, now, passed = set(failed_before), report.results.failed, set(report.results.passed)
    mended = sorted(before & passed)
    broken = [name for name in now if name not in before]
    gone = sorted(before - passed - set(now))
    parts = []
    if mended:
        parts.append(
            f"{len(mended)} that failed now {'pass' if len(mended) > 1 else 'passes'}: {evidence.some(mended)}"
        )
    if broken:
        parts.append(
            f"{len(broken)} {'fail that' if len(broken) > 1 else 'fails that'} did not before: {evidence.some(broken)}"
        )
    if gone:
        parts.append(f"{len(gone)} that failed did not run: {evidence.some(gone)}")
    if not parts:
        return "since the last run: no test changed"
    return "since the last run: " + "; ".join(parts)


def failures(report: Report) -> tuple[str, bool]:
    """The failing tests, the first with their reasons, the next by name, the rest counted; and whether all is told."""
    told = []
    whole = len(report.results.failed) <= _MESSAGES
    for number, name in enumerate(report.results.failed):
        if number >= _NAMED:
            told.append(f"[{len(report.results.failed) - _NAMED} more fail]")
            break
        told.append(f"FAILED {clean(name)[:300]}")
        reason = report.reasons.get(name, "") if number < _MESSAGES else ""
        end = _end(reason)
        whole = whole and not end.startswith(_LEFT_OUT)
        told += [f"  {line}" for line in end.splitlines()]
    return "\n".join(told), whole
