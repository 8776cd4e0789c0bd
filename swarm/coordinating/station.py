"""Which host a coordinator works as, and by which rules. Pure data."""

from __future__ import annotations

import os
import secrets
import socket
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from swarm.coordinating.pace import Pace
from swarm.errors import StoreError
from swarm.scheduling.facts import HostFacts
from swarm.store.hosts import Member


@dataclass(frozen=True)
class Station:
    """``ladder`` are the tiers from the weakest up, for tasks that name none."""

    member: Member
    pace: Pace
    ladder: tuple[str, ...] = ()

    @property
    def workers(self) -> int:
        """Attempts at a time."""
        return self.member.facts.slots


def home_of(state: Path) -> str:
    """The random name of a state folder, made at its first use. Raises StoreError."""
    path = state / "home"
    try:
        state.mkdir(parents=True, exist_ok=True, mode=0o700)
        with suppress(FileExistsError), path.open("x") as new:
            new.write(secrets.token_hex(8))
        return path.read_text().strip()
    except OSError as error:
        raise StoreError(f"the state folder {state} cannot be used: {error.strerror}", "see daemon.state") from error


def station(
    name: str = "",
    *,
    workers: int,
    home: str = "alone",
    labels: frozenset[str] = frozenset(),
    pace: Pace | None = None,
    ladder: tuple[str, ...] = (),
) -> Station:
    """A life that begins now, under the machine's name where none is given."""
    paced = pace or Pace()
    facts = HostFacts(name or socket.gethostname() or "local", labels, workers, paced.lease)
    patience = paced.lease + paced.grace
    return Station(Member(facts, home, secrets.token_hex(8), os.getpid(), patience=patience), paced, ladder)
