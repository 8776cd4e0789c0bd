"""A user id for each sandbox: what the kernel bounds per user (inotify, pipes, keys), no other one can use up."""

from __future__ import annotations

import secrets

from sandbox.rules.profile import AGENT_UID, AGENT_UIDS


class Uids:
    """Gives out one after the other, from a random one on, so that several daemons on one machine differ."""

    def __init__(self) -> None:
        self._next = secrets.randbelow(AGENT_UIDS)

    def take(self) -> int:
        """The next one. After the last comes the first again."""
        self._next = (self._next + 1) % AGENT_UIDS
        return AGENT_UID + self._next
