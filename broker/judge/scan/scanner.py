"""All scans over one proposal, file by file: what an added line may not hold, and what may not go without a word."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from broker.config.base import Reaction
from broker.config.policy import Policy
from broker.judge.reaction import severity
from broker.judge.scan.content import Content, added_lines, is_binary
from broker.judge.scan.hidden import hidden_in
from broker.judge.scan.licences import Licences
from broker.judge.scan.secrets import Purse, Secrets
from broker.judge.scan.suites import Suites
from broker.wire import Finding, Severity

MAX_PER_FILE, MAX_OF_TESTS = 20, 40
_BOM = b"\xef\xbb\xbf"
_WEIGHTS: tuple[Severity, ...] = ("fatal", "block", "ask", "warn")


class Scanner:
    """Holds compiled detectors, so make one and keep it."""

    def __init__(self) -> None:
        self._secrets = Secrets()

    def begin(self, policy: Policy) -> Scan:
        """The scan of one proposal."""
        return Scan(self._secrets, policy)


class Scan:
    """Give it each changed file, then close it. Base-aware: what the base holds is not held against a proposal."""

    def __init__(self, secrets: Secrets, policy: Policy) -> None:
        self._secrets = secrets
        self._policy = policy
        self._purse = Purse(text=2 * policy.max_total_bytes)
        self._licences = Licences()
        self._suites = Suites()

    def look(self, content: Content) -> tuple[Finding, ...]:
        """Findings about one file. A secret itself is never in one."""
        policy, findings = self._policy, []
        if content.new is not None and not content.moved:
            findings += self._added(content.path, content.old, content.new)
        if severity(policy.licence_headers):
            lost = [(content.path, words) for words in self._licences.look(content)]
            findings += _found("licence-header", policy.licence_headers, lost, "put it back")
        if severity(policy.tests_deleted) or severity(policy.tests_skipped):
            self._suites.look(content)
        return tuple(findings)

    def close(self, *, complete: bool = True) -> tuple[Finding, ...]:
        """Findings about the files together; ``complete`` says whether all were given."""
        policy = self._policy
        licences = _found("licence-header", policy.licence_headers, self._licences.close(), "put it back")
        deleted = _found("tests-deleted", policy.tests_deleted, self._suites.deleted(), "keep the test, or say why not")
        skipped = _found("tests-skipped", policy.tests_skipped, self._suites.skipped(), "let the test run")
        found = (self._unseen(complete=complete), licences, deleted, skipped)
        return tuple(itertools.chain.from_iterable(itertools.islice(each, MAX_OF_TESTS) for each in found))

    def _added(self, path: str, old: bytes, new: bytes) -> list[Finding]:
        secrets, hidden = severity(self._policy.secrets), severity(self._policy.hidden_text)
        hidden = None if is_binary(new) else hidden  # nobody reads it as text; whether it may be there is policy's word
        if not secrets and not hidden:
            return []
        lines = list(added_lines(old.removeprefix(_BOM), new.removeprefix(_BOM)))  # where it belongs, it hides nothing
        found: list[Finding] = []
        if secrets:
            kinds = self._secrets.find(path, lines, self._purse)
            said = ((number, f"what looks like: {kind}") for number, kind in kinds)
            found += _at_lines("secret", secrets, path, said, "take it from the environment at run time")
        if hidden:
            problems = ((number, problem) for number, line in lines if (problem := hidden_in(line)))
            found += _at_lines("hidden-text", hidden, path, problems, "write it as an escape sequence")
        return found

    def _unseen(self, *, complete: bool) -> Iterator[Finding]:
        policy = self._policy
        mend = "propose a smaller change"
        if not complete:
            asked = (
                policy.secrets,
                policy.hidden_text,
                policy.licence_headers,
                policy.tests_deleted,
                policy.tests_skipped,
            )
            weights = [weight for reaction in asked if (weight := severity(reaction))]
            message = "the files together are more than is looked at for what policy forbids in them"
            for weight in sorted(weights, key=_WEIGHTS.index)[:1]:
                yield Finding(rule="not-scanned", severity=weight, message=message, mend=mend)
        elif self._purse.spent and (weight := severity(policy.secrets)):
            message = "the added lines are more than is looked at for secrets, or full of words such as password"
            yield Finding(rule="not-scanned", severity=weight, message=message, mend=mend)


def _at_lines(rule: str, weight: Severity, path: str, said: Iterator[tuple[int, str]], mend: str) -> Iterator[Finding]:
    for number, words in itertools.islice(said, MAX_PER_FILE):
        message = f"line {number} of {path} holds {words}"
        yield Finding(rule=rule, severity=weight, message=message, path=path, mend=mend)


def _found(
    rule: str, reaction: Reaction, said: Iterator[tuple[str, str]] | list[tuple[str, str]], mend: str
) -> Iterator[Finding]:
    weight = severity(reaction)
    for path, words in said if weight else ():
        message = "".join(char if char.isprintable() else "?" for char in f"{path} {words}")
        yield Finding(rule=rule, severity=weight or "warn", message=message, path=path, mend=mend)
