"""What the follow-up of one repository works with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from broker.audit import Audit
from broker.config.repository import Repository
from broker.followup.ledger import Ledger
from broker.forge.base import Forge, Tracker
from broker.wire import Grant, GrantRequest


class Own(Protocol):
    """A pull request that the broker itself opened, by its own records: nothing on a forge makes one its own."""

    @property
    def number(self) -> int:
        """On the forge."""

    @property
    def task(self) -> str:
        """That it came from."""

    @property
    def branch(self) -> str:
        """That it leads from."""

    @property
    def commits(self) -> frozenset[str]:
        """All that the broker put on its branch."""


@dataclass(frozen=True)
class Followed:
    """One repository: its forge and conversations, its settings as they are now, and what the rest of the broker does.

    ``own`` are the delivered pull requests. ``grant(request, by)`` gives a right; ``running`` raises StoppedError while
    a person, or the settings, stopped the repository, ``newest`` raises FencedError once another broker has taken over;
    ``tidy`` gives back what the repository's mirror needs no more.
    """

    name: str
    forge: Forge
    tracker: Tracker
    settings: Callable[[], Repository]
    own: Callable[[], tuple[Own, ...]]
    grant: Callable[[GrantRequest, str], Grant]
    running: Callable[[], None]
    newest: Callable[[], None]
    tidy: Callable[[], None]
    ledger: Ledger
    audit: Audit
    clock: Callable[[], float]
