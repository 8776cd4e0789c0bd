"""Pure: what findings lead to, with and without a person's word."""

from __future__ import annotations

from collections.abc import Sequence

from broker.outbox.rows import Approved
from broker.wire import Finding

_PASSES = "warn"
_NEVER = "fatal"


def left(findings: Sequence[Finding], approved: Approved | None) -> tuple[Finding, ...]:
    """What stands in the way: all that is fatal, and of the rest what no person approved after it was shown to him."""
    covered = approved.covers if approved else frozenset()
    return tuple(
        finding
        for finding in findings
        if finding.severity == _NEVER or (finding.severity != _PASSES and key(finding) not in covered)
    )


def told(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """What passed and is still to be read in the pull request and in the receipt, each as a warning."""
    return tuple(finding.model_copy(update={"severity": _PASSES}) for finding in findings)


def waits(findings: Sequence[Finding]) -> bool:
    """Whether nothing stands in the way but that a person has not spoken yet."""
    return all(finding.severity in {"ask", _PASSES} for finding in findings)


def never_passes(findings: Sequence[Finding]) -> Finding | None:
    """The first that no person can approve."""
    return next((finding for finding in findings if finding.severity == _NEVER), None)


def key(finding: Finding) -> tuple[str, str | None]:
    """What makes two findings the same to the person who approves them."""
    return finding.rule, finding.path
