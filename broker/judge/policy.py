"""Pure judgement: what changed, under which policy, gives every finding at once. No I/O, no clock."""

from __future__ import annotations

import fnmatch
import hashlib
import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath

from broker.config.policy import Policy
from broker.judge.facts import EXECUTABLE, SUBMODULE, SYMLINK, Change
from broker.wire import Finding


def judge(changes: Sequence[Change], sizes: Mapping[str, int], policy: Policy) -> tuple[Finding, ...]:
    """All findings about what the proposal changes. ``sizes`` gives the bytes of each new object by id."""
    findings: list[Finding] = []
    if not changes:
        findings.append(Finding(rule="no-change", message="nothing differs from the base", mend="propose a change"))
    findings += _quantity(changes, sizes, policy)
    for change in changes:
        findings += _place(change, policy)
        findings += _kind(change, policy)
        findings += _size(change, sizes, policy)
    return tuple(findings)


def fingerprint(policy: Policy) -> str:
    """Names the exact policy that a verdict was made under; goes into the log."""
    return hashlib.sha256(policy.model_dump_json().encode()).hexdigest()[:16]


def matches(path: str, pattern: str) -> bool:
    """Whether a pattern covers a path: without a slash at any depth, with one from the top. Case never matters."""
    path, pattern = _plain(path), _plain(pattern)
    if "/" not in pattern:
        return any(fnmatch.fnmatchcase(part, pattern) for part in path.split("/"))
    pattern = pattern.strip("/")
    return any(fnmatch.fnmatchcase(str(whole), pattern) for whole in (path, *PurePosixPath(path).parents))


def _plain(text: str) -> str:
    return unicodedata.normalize("NFKC", text).casefold()


def _quantity(changes: Sequence[Change], sizes: Mapping[str, int], policy: Policy) -> list[Finding]:
    total = sum(sizes.get(change.new_oid or "", 0) for change in changes)
    found = []
    if len(changes) > policy.max_files:
        message = f"{len(changes)} files are changed, {policy.max_files} are allowed"
        found.append(Finding(rule="too-many-files", message=message, mend="propose fewer at a time"))
    if total > policy.max_total_bytes:
        message = f"the changed files have {total} bytes, {policy.max_total_bytes} are allowed"
        found.append(Finding(rule="too-many-bytes", message=message, mend="propose less at a time"))
    return found


def _place(change: Change, policy: Policy) -> list[Finding]:
    for pattern in policy.protected_paths:
        if matches(change.path, pattern):
            message = f"{change.path} is protected ({pattern})"
            return [_finding("protected-path", change, message, "leave it as it is; a person changes such files")]
    if policy.allowed_paths and not any(matches(change.path, pattern) for pattern in policy.allowed_paths):
        return [
            _finding("path-not-allowed", change, f"{change.path} lies outside the allowed paths", "leave it as it is")
        ]
    return []


def _kind(change: Change, policy: Policy) -> list[Finding]:
    modes = {change.old_mode, change.new_mode}
    if SYMLINK in modes and not policy.allow_symlinks:
        return [_finding("symlink", change, f"{change.path} is or was a symbolic link", "use a plain file")]
    if SUBMODULE in modes and not policy.allow_submodules:
        return [_finding("submodule", change, f"{change.path} is or was a submodule", "leave submodules as they are")]
    became = change.new_mode == EXECUTABLE and change.old_mode != EXECUTABLE
    if became and not policy.allow_executables:
        return [_finding("executable", change, f"{change.path} becomes executable", f"chmod -x {change.path}")]
    return []


def _size(change: Change, sizes: Mapping[str, int], policy: Policy) -> list[Finding]:
    size = sizes.get(change.new_oid or "", 0)
    if size <= policy.max_file_bytes:
        return []
    message = f"{change.path} has {size} bytes, {policy.max_file_bytes} are allowed"
    return [_finding("file-too-large", change, message, "make it smaller or leave it out")]


def _finding(rule: str, change: Change, message: str, mend: str) -> Finding:
    return Finding(rule=rule, message=message, path=change.path, mend=mend)
