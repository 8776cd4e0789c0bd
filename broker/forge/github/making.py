"""Joins the parts of one repository on GitHub."""

from __future__ import annotations

from collections.abc import Callable

from broker.config.repository import Repository
from broker.forge.github.account import Account
from broker.forge.github.forge import GitHubForge
from broker.forge.github.place import DIALECT, place_of
from broker.forge.github.tracker import GitHubTracker
from broker.forge.rest.door import Door
from broker.forge.rest.pace import Paces
from broker.forge.transport import Transport
from broker.scope import Lend


def github(
    name: str,
    settings: Repository,
    lend: Lend,
    push_lend: Lend,
    paces: Paces,
    redact: Callable[[str], str] = str,
) -> tuple[GitHubForge, GitHubTracker]:
    """Its forge and its tracker. Raises ConfigError for an address that is none, or certificates that are none."""
    place = place_of(name, settings)
    pace = paces.of(place.api.host)
    door = Door(place.api, DIALECT, lend, pace, redact=redact)
    account = Account(place)
    git = Transport(place.git, push_lend, redact=redact, pace=pace)
    return GitHubForge(place, door, git, account), GitHubTracker(place, door, account)
