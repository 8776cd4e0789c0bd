"""What the coordinator reports and what the broker's judges warn of, as lines of a pull request. Pure."""

from __future__ import annotations

from broker.wire import Evidence, Finding, SandboxProof, TestResult
from broker.words.clean import code, line
from broker.words.dialect import Dialect

CAVEAT = "The tests ran beside the code they judge, which hostile code can abuse to look good: read the diff."
_MOST_NAMES, _MOST_WARNINGS = 20, 20


def evidence_lines(evidence: Evidence, dialect: Dialect) -> str:
    """One line per fact that there is."""
    rows = [
        ("tests before", _result(evidence.before, dialect)),
        ("tests after", _result(evidence.after, dialect)),
        ("fixed", _names(evidence.fixed, dialect)),
        ("broken", _names(evidence.broken, dialect)),
        ("model", code(evidence.model, dialect)),
        ("tier", code(evidence.tier, dialect)),
        ("strategy", code(evidence.strategy, dialect)),
        ("sandbox", _proof(evidence.proof, dialect) if evidence.proof else code(evidence.sandbox, dialect)),
        ("spent", _spent(evidence)),
    ]
    return "\n".join(f"- {name}: {value}" for name, value in rows if value)


def warning_lines(warnings: tuple[Finding, ...], dialect: Dialect) -> str:
    """One line per warning."""
    lines = [f"- {code(found.rule, dialect)}{_place(found, dialect)}: {line(found.message, dialect, 300)}"
             for found in warnings[:_MOST_WARNINGS]]  # fmt: skip
    if len(warnings) > _MOST_WARNINGS:
        lines.append(f"- and {len(warnings) - _MOST_WARNINGS} more")
    return "\n".join(lines)


def _place(found: Finding, dialect: Dialect) -> str:
    return f" in {code(found.path, dialect)}" if found.path else ""


def _spent(evidence: Evidence) -> str:
    parts = [_many(evidence.attempts, "attempt"), f"{evidence.tokens} tokens", f"{evidence.seconds:.0f} s"]
    if evidence.gpu_seconds:
        parts.append(f"{evidence.gpu_seconds:.0f} GPU-seconds")
    if evidence.cost is not None:
        parts.append(
            f"{evidence.cost:.2f} {evidence.currency}"
            if evidence.cost >= 1
            else f"{evidence.cost:.3g} {evidence.currency}"
        )
    return ", ".join(parts)


def _many(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _result(result: TestResult | None, dialect: Dialect) -> str:
    if result is None:
        return ""
    passed = "an unknown number" if result.passed is None else str(result.passed)
    failed = f", {len(result.failed)} failed" + (f": {_names(result.failed, dialect, 5)}" if result.failed else "")
    return f"{code(result.command, dialect)} ended with {result.exit_code}, {passed} passed{failed}"


def _proof(proof: SandboxProof, dialect: Dialect) -> str:
    runtime = proof.detail.get("runtime", "")
    if runtime in proof.detail:  # its version, less what a doctor says of it
        runtime += " " + proof.detail[runtime].partition(" (")[0]
    what = code(proof.version or proof.backend, dialect) + (f" ({code(runtime, dialect)})" if runtime else "")
    claims = f"{_many(len(proof.claims), 'claim')} proved at start" + (": " if proof.claims else "")
    return f"{what}, {claims}{_names(proof.claims, dialect, 6)}, self-test `sha256:{proof.digest[:16] or 'unknown'}`"


def _names(names: tuple[str, ...], dialect: Dialect, most: int = _MOST_NAMES) -> str:
    shown = ", ".join(code(name, dialect) for name in names[:most])
    return shown + (f" and {len(names) - most} more" if len(names) > most else "")
