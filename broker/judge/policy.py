"""Pure judgement: what changed, under which policy, gives every finding at once. No I/O, no clock."""

from __future__ import annotations

import fnmatch
import functools
import hashlib
import re
import unicodedata
from collections.abc import Mapping, Sequence

from broker.config.base import Reaction
from broker.config.policy import Policy
from broker.judge.facts import EXECUTABLE, SUBMODULE, SYMLINK, Change
from broker.judge.reaction import severity
from broker.wire import Finding, Severity


def judge(changes: Sequence[Change], sizes: Mapping[str, int], policy: Policy) -> tuple[Finding, ...]:
    """All findings about what the proposal changes. ``sizes`` gives the bytes of each new object by id."""
    findings: list[Finding] = []
    if not changes:
        message = "nothing differs from the base"
        findings.append(Finding(rule="no-change", severity="fatal", message=message, mend="propose a change"))
    findings += _quantity(changes, sizes, policy)
    for change in changes:
        findings += _workflow(change, policy)
        findings += _place(change, policy)
        findings += _watched(change, policy)
        findings += _kind(change, policy)
        findings += _size(change, sizes, policy)
    return tuple(findings)


def fingerprint(policy: Policy) -> str:
    """Names the exact policy that a verdict was made under; goes into the log."""
    return hashlib.sha256(policy.model_dump_json().encode()).hexdigest()[:16]


def matches(path: str, pattern: str) -> bool:
    """Whether a pattern that protects covers a path; what any file system could take for the name counts as it.

    Without a slash at any depth, with one from the top. Names are compared case-folded in NFKC.
    """
    return _covers(_plain(path), _plain(pattern))


def permits(path: str, pattern: str) -> bool:
    """The same for a pattern that allows: exactly what it says, to the case."""
    return _covers(path, pattern)


def may_aim_at(base: str, default: str, policy: Policy) -> bool:
    """Whether a pull request may go to a branch: the default one, and what ``bases`` names."""
    parts = tuple(base.split("/"))
    return base == default or any(_matched(parts, tuple(pattern.split("/"))) for pattern in policy.bases)


@functools.lru_cache(maxsize=4096)  # every path is held against every pattern
def _plain(text: str) -> str:
    return unicodedata.normalize("NFKC", text).casefold()


def _covers(path: str, pattern: str) -> bool:
    parts = tuple(path.split("/"))
    if "/" not in pattern:
        return any(fnmatch.fnmatchcase(part, pattern) for part in parts)
    wanted = tuple(pattern.strip("/").split("/"))
    return any(_matched(parts[:end], wanted) for end in range(len(parts), 0, -1))


def _matched(parts: tuple[str, ...], wanted: tuple[str, ...]) -> bool:
    # All places in the pattern that the path could have come to; never more of them than the pattern has parts.
    places = _past_stars({0}, wanted)
    for part in parts:
        stay = {at for at in places if at < len(wanted) and wanted[at] == "**"}
        step = {at + 1 for at in places if at < len(wanted) and fnmatch.fnmatchcase(part, wanted[at])}
        places = _past_stars(stay | step, wanted)
    return len(wanted) in places


def _past_stars(places: set[int], wanted: tuple[str, ...]) -> set[int]:
    found = set(places)
    for at in range(len(wanted)):
        if at in found and wanted[at] == "**":
            found.add(at + 1)
    return found


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


def _workflow(change: Change, policy: Policy) -> list[Finding]:
    pattern = _first(change.path, policy.workflow_paths)
    if policy.allow_workflows or pattern is None:
        return []
    message = f"{change.path} is run by the forge's CI ({pattern})"
    mend = "leave it as it is; nobody can approve it before the operator sets allow_workflows = true"
    return [_finding("workflow", "fatal", change, message, mend)]


def _place(change: Change, policy: Policy) -> list[Finding]:
    found = []
    if pattern := _first(change.path, policy.protected_paths):
        message = f"{change.path} is protected ({pattern})"
        found += _reaction(policy.protected, "protected-path", change, message)
    if pattern := _first(change.path, policy.excluded_paths):
        message = f"{change.path} is excluded from what proposals change ({pattern})"
        found.append(_finding("path-excluded", "block", change, message, _LEAVE))
    elif policy.allowed_paths and not any(permits(change.path, pattern) for pattern in policy.allowed_paths):
        message = f"{change.path} lies outside the allowed paths"
        found.append(_finding("path-not-allowed", "block", change, message, _LEAVE))
    return found


_LEAVE = "leave it as it is; a person changes such files"


def _watched(change: Change, policy: Policy) -> list[Finding]:
    if pattern := _first(change.path, policy.watched_paths):
        return _reaction(policy.watched, "watched-path", change, f"{change.path} deserves a second look ({pattern})")
    return []


def _first(path: str, patterns: Sequence[str]) -> str | None:
    names, placed = _sorted_out(tuple(patterns))
    if any(names.match(part) for part in _plain(path).split("/")) or any(matches(path, one) for one in placed):
        return next((pattern for pattern in patterns if matches(path, pattern)), None)
    return None


@functools.lru_cache(maxsize=256)
def _sorted_out(patterns: tuple[str, ...]) -> tuple[re.Pattern[str], tuple[str, ...]]:
    """One expression for all patterns of a name, since nearly every path matches none of them; and the others."""
    names = [fnmatch.translate(_plain(pattern)) for pattern in patterns if "/" not in _plain(pattern)]
    return re.compile("|".join(names) or r"(?!)"), tuple(pattern for pattern in patterns if "/" in _plain(pattern))


def _kind(change: Change, policy: Policy) -> list[Finding]:
    modes = {change.old_mode, change.new_mode}
    if SYMLINK in modes and not policy.allow_symlinks:
        message = f"{change.path} is or was a symbolic link"
        return [_finding("symlink", "block", change, message, "use a plain file")]
    if SUBMODULE in modes and not policy.allow_submodules:
        message = f"{change.path} is or was a submodule"
        return [_finding("submodule", "block", change, message, "leave submodules as they are")]
    became = change.new_mode == EXECUTABLE and change.old_mode != EXECUTABLE
    if became and not policy.allow_executables:
        message = f"{change.path} becomes executable"
        return [_finding("executable", "block", change, message, f"chmod -x {change.path}")]
    return []


def _size(change: Change, sizes: Mapping[str, int], policy: Policy) -> list[Finding]:
    size = sizes.get(change.new_oid or "", 0)
    if size <= policy.max_file_bytes:
        return []
    message = f"{change.path} has {size} bytes, {policy.max_file_bytes} are allowed"
    return [_finding("file-too-large", "block", change, message, "make it smaller or leave it out")]


def _reaction(reaction: Reaction, rule: str, change: Change, message: str) -> list[Finding]:
    level = severity(reaction)
    return [] if level is None else [_finding(rule, level, change, message, _LEAVE)]


def _finding(rule: str, level: Severity, change: Change, message: str, mend: str) -> Finding:
    return Finding(rule=rule, severity=level, message=message, path=change.path, mend=mend)
