"""What a lent credential is for: the least right that one operation on a forge needs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from enum import StrEnum

from pydantic import SecretStr


class Scope(StrEnum):
    """One operation's right. A forge that cannot scope a token gives the whole one."""

    READ = "read"  # metadata, contents, issues, pull requests and checks, to read
    PUSH = "push"  # contents: write
    PULLS = "pulls"  # pull requests: write
    ISSUES = "issues"  # issues and comments: write
    STATUS = "status"  # commit statuses: write


Lend = Callable[[Scope], AbstractContextManager[SecretStr | None]]
"""Gives a credential for the length of one operation, and revokes it at the end where that can be done; None where the
repository names none. Raises ConfigError if it cannot be had."""
