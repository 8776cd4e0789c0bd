"""A project on GitLab, put together from its settings."""

from __future__ import annotations

from collections.abc import Callable

from broker.config.repository import Repository
from broker.forge.account import Account
from broker.forge.base import Forge, Tracker
from broker.forge.gitlab.forge import GitLabForge
from broker.forge.gitlab.site import GITLAB, site
from broker.forge.gitlab.tracker import GitLabTracker
from broker.forge.rest.door import Door
from broker.forge.rest.pace import Paces
from broker.forge.transport import Transport
from broker.scope import Lend


def gitlab(
    name: str, settings: Repository, lend: Lend, push_lend: Lend, paces: Paces, redact: Callable[[str], str]
) -> tuple[Forge, Tracker]:
    """The forge and the tracker of one project; ``push_lend`` gives the credential for git. Raises ConfigError."""
    place = site(name, settings)
    pace = paces.of(place.address.host)
    door = Door(place.address, GITLAB, lend, pace, redact=redact)
    account = Account("username")
    transport = Transport(place.remote, push_lend, redact=redact, pace=pace)
    return GitLabForge(place, door, transport, account), GitLabTracker(place, door, account)
