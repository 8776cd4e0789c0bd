"""The words of a pull request: the proposal's, cleaned, and below them what is known and by whom. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from broker.wire import Evidence, Finding
from broker.words.clean import MAX_BODY, clean, code, fitted
from broker.words.dialect import Dialect
from broker.words.evidence import CAVEAT, evidence_lines, warning_lines
from broker.words.marker import proposal_marker
from broker.words.sections import DID, EVIDENCE, WARNINGS, fill, without_claims

_CUT = "\n\n(The rest is left out: it is longer than a pull request may be.)"


@dataclass(frozen=True)
class Page:
    """What is to be said. ``body`` and ``template`` as they came; ``facts`` are the broker's own.

    ``closes`` is the task's own issue where policy wants it closed; nothing else is ever closed. ``base`` is the commit
    that the work was begun on.
    """

    body: str
    evidence: Evidence
    proposal: str
    warnings: tuple[Finding, ...] = ()
    facts: Mapping[str, str] = field(default_factory=dict)
    digest: str = ""
    template: str = ""
    closes: int | None = None
    task: str = ""
    base: str = ""


def pull_request_body(page: Page, dialect: Dialect) -> str:
    """The whole text, at most MAX_BODY characters, of which the proposal's own are as many as the dialect allows.

    The hidden marker is its last line.
    """
    below = "\n\n".join(part for part in _below(page, dialect) if part)
    own = _own(page, dialect, min(dialect.body_chars, MAX_BODY - len(below) - 2))
    return "\n\n".join(part for part in (own, below) if part)


def _own(page: Page, dialect: Dialect, room: int) -> str:
    text = without_claims(fill(page.template, page.body, dialect))
    if len(text) <= room:
        return text
    return fitted(text[: room - len(_CUT)], room - len(_CUT), lambda cut: without_claims(clean(cut, dialect))) + _CUT


def _below(page: Page, dialect: Dialect) -> list[str]:
    claimed, warned = evidence_lines(page.evidence, dialect), warning_lines(page.warnings, dialect)
    facts = "\n".join(f"- {name}: {code(value, dialect)}" for name, value in page.facts.items() if value)
    checked = "Its signed record leads from this page to the sealed tree: `swarm-broker verify`."
    return [
        f"### {EVIDENCE}\n\n{claimed}\n\n{CAVEAT}" if claimed else "",
        f"### {WARNINGS}\n\n{warned}" if warned else "",
        f"### {DID}\n\n{facts}\n\n{checked}" if facts else "",
        f"Closes #{page.closes}" if page.closes is not None else "",
        proposal_marker(page.proposal, task=page.task, base=page.base, digest=page.digest),
    ]
