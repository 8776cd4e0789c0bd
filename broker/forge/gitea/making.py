"""A repository on Gitea or Forgejo, put together from its settings."""

from __future__ import annotations

from collections.abc import Callable

from broker.config.repository import Repository
from broker.forge.account import Account
from broker.forge.base import Forge, Tracker
from broker.forge.gitea.forge import GiteaForge
from broker.forge.gitea.site import GITEA, site
from broker.forge.gitea.tracker import GiteaTracker
from broker.forge.rest.door import Door
from broker.forge.rest.pace import Paces
from broker.forge.transport import Transport
from broker.scope import Lend


def gitea(
    name: str, settings: Repository, lend: Lend, push_lend: Lend, paces: Paces, redact: Callable[[str], str]
) -> tuple[Forge, Tracker]:
    """The forge and the tracker of one repository; ``push_lend`` gives the credential for git. Raises ConfigError."""
    place = site(name, settings)
    pace = paces.of(place.address.host)
    door = Door(place.address, GITEA, lend, pace, redact=redact)
    account = Account("login")
    transport = Transport(place.remote, push_lend, redact=redact, pace=pace)
    return GiteaForge(place, door, transport, account), GiteaTracker(place, door, account)
