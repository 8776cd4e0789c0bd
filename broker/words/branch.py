"""Which names the broker uses for branches."""

from __future__ import annotations

import re

# Stricter than git: check-ref-format accepts bidi characters, forty hex digits and leading dashes.
_BRANCH = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*(?:[./][A-Za-z0-9][A-Za-z0-9_-]*)*")


def is_branch_name(name: str) -> bool:
    """Whether a name is plain enough for a ref: letters, digits, dash, underscore, single dots and slashes."""
    parts = name.split("/")
    return len(name) <= 200 and bool(_BRANCH.fullmatch(name)) and not any(part.endswith(".lock") for part in parts)
