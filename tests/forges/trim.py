"""Cuts an OpenAPI description down to the paths that are asked for and what they refer to: Prism loads it in seconds.

python trim.py FULL.json TRIMMED.json
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_REPO = "/repos/{owner}/{repo}"
PATHS = (
    "/user",
    "/app/installations/{installation_id}/access_tokens",
    "/installation/token",
    f"{_REPO}/installation",
    _REPO,
    f"{_REPO}/git/ref/{{ref}}",
    f"{_REPO}/rules/branches/{{branch}}",
    f"{_REPO}/pulls",
    f"{_REPO}/pulls/{{pull_number}}",
    f"{_REPO}/pulls/{{pull_number}}/requested_reviewers",
    f"{_REPO}/pulls/{{pull_number}}/reviews",
    f"{_REPO}/pulls/{{pull_number}}/comments",
    f"{_REPO}/issues",
    f"{_REPO}/issues/comments",
    f"{_REPO}/issues/comments/{{comment_id}}",
    f"{_REPO}/issues/{{issue_number}}",
    f"{_REPO}/issues/{{issue_number}}/labels",
    f"{_REPO}/issues/{{issue_number}}/assignees",
    f"{_REPO}/issues/{{issue_number}}/comments",
    f"{_REPO}/issues/{{issue_number}}/events",
    f"{_REPO}/collaborators/{{username}}/permission",
    f"{_REPO}/statuses/{{sha}}",
    f"{_REPO}/commits/{{ref}}/status",
    f"{_REPO}/commits/{{ref}}/check-runs",
    f"{_REPO}/actions/runs",
)
"""Every path of GitHub's REST API that the broker calls, and no other."""


def trimmed(full: dict[str, Any], paths: tuple[str, ...] = PATHS) -> dict[str, Any]:
    """The description of these paths. Raises KeyError for one that it has not."""
    small = {key: full[key] for key in ("openapi", "info", "servers") if key in full}
    small["paths"] = {path: full["paths"][path] for path in paths}
    parts: dict[str, dict[str, Any]] = {}
    open_ends = list(_references(small["paths"]))
    while open_ends:
        kind, name = open_ends.pop().removeprefix("#/components/").split("/", 1)
        if name not in parts.setdefault(kind, {}):
            parts[kind][name] = full["components"][kind][name]
            open_ends += _references(parts[kind][name])
    return {**small, "components": parts}


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for item in value.values():
            yield from _references(item)
    elif isinstance(value, list):
        for item in value:
            yield from _references(item)


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(json.dumps(trimmed(json.loads(Path(sys.argv[1]).read_text()))))
