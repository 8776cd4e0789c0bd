"""The operator's own judge: a command that gets the facts on its standard input and answers by its exit code.

The contract of git-proxy's external hooks: 0 approves, 1 refuses, 2 asks a person. Whatever else happens refuses.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from broker.config import ground
from broker.config.policy import Policy
from broker.judge.command import run
from broker.judge.facts import Change
from broker.judge.names import printable
from broker.wire import Finding, Severity

_MAX_REASON = 300


class HookFile(BaseModel):
    """One changed file; modes as git writes them, None where there is none; the new size in bytes."""

    model_config = ConfigDict(frozen=True)

    path: str
    kind: str
    old_mode: str | None
    new_mode: str | None
    old_id: str | None
    new_id: str | None
    size: int


class HookFacts(BaseModel):
    """What the command reads, as one JSON object. Title, body and paths are an agent's words: data, not to be trusted.

    ``findings`` are all that the broker found itself; the command cannot take one of them back.
    """

    model_config = ConfigDict(frozen=True)

    version: int = 1
    repository: str
    base: str
    base_commit: str
    tree: str
    task: str
    title: str
    body: str
    files: tuple[HookFile, ...]
    findings: tuple[Finding, ...]


def files_of(changes: Sequence[Change], sizes: Mapping[str, int]) -> tuple[HookFile, ...]:
    """The changed files as a hook sees them."""
    return tuple(
        HookFile(
            path=change.path,
            kind=change.kind,
            old_mode=change.old_mode,
            new_mode=change.new_mode,
            old_id=change.old_oid,
            new_id=change.new_oid,
            size=sizes.get(change.new_oid or "", 0),
        )
        for change in changes
    )


def ask(policy: Policy, facts: HookFacts) -> Finding | None:
    """None if there is no hook or it approves. Blocks for at most ``hook_seconds``."""
    if not policy.hook:
        return None
    if problem := ground.program(Path(policy.hook[0]), os.geteuid()):
        return _failed(f"it {problem}")
    ended = run(policy.hook, facts.model_dump_json().encode(), policy.hook_seconds)
    if ended.code == 0:
        return None
    if ended.code in {1, 2}:
        reason = _first_line(ended.said)
        severity: Severity = "block" if ended.code == 1 else "ask"
        default = "it refuses the proposal" if ended.code == 1 else "it wants a person to look"
        return Finding(rule="hook", severity=severity, message=f"the operator's hook: {reason or default}", mend=_MEND)
    return _failed(ended.why or f"it ended with {_code(ended.code)}")


def _failed(why: str) -> Finding:
    return Finding(rule="hook-failed", message=f"the operator's hook gave no verdict: {why}", mend=_MEND_IT)


_MEND = "propose what it accepts, or a person approves it"
_MEND_IT = "the operator mends the command that policy.hook names, or raises hook_seconds"


def _code(code: int | None) -> str:
    return f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"


def _first_line(said: bytes) -> str:
    line = next((line for line in said.splitlines() if line.strip()), b"")
    return printable(line.strip())[:_MAX_REASON]
