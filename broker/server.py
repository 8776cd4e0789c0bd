"""The broker's process: the parts joined, two sockets, one instance per state folder, a calm end on SIGTERM."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import signal
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from urllib.parse import urlsplit

from broker.audit import Audit
from broker.canary import watch as planted
from broker.capability import Mint
from broker.config.live import Live
from broker.config.repository import Repository
from broker.config.settings import BrokerConfig
from broker.door.coordinator import CoordinatorDoor
from broker.door.guard import Guard, never
from broker.door.listening import listening
from broker.door.person import PersonDoor
from broker.door.serving import serve as serve_sockets
from broker.errors import ConfigError, ForgeError
from broker.forge.base import Forge, Tracker
from broker.forge.local import LocalForge
from broker.forge.local_tracker import LocalTracker
from broker.instance import alone
from broker.judge.selftest import prove
from broker.person_wire import StopRequest
from broker.provenance.signing import Signer
from broker.provenance.store import Provenance
from broker.service.service import Service, assemble
from broker.service.ward import Current
from broker.vault.app import Target
from broker.vault.hardening import harden_process
from broker.vault.redaction import Redactor
from broker.vault.vault import Vault

_THREADS = {"coordinator": 8, "person": 4}


def serve(live: Live, *, standby: bool = False) -> None:
    """Runs until SIGTERM or SIGINT; running calls may finish. Raises ConfigError and AuditError before listening.

    ``standby`` waits while another broker works on the same state, and takes over when it is gone.
    """
    harden_process()
    config = live.current()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _leave)  # until the loop takes over: what was begun is reconciled at the next start
    redactor = Redactor()
    waiting = functools.partial(_say, f"waiting for the broker that works in {config.state}")
    with (
        alone(config.state, standby=standby, waiting=waiting),
        contextlib.closing(build(config, current=live.current, redactor=redactor)) as service,
    ):
        live.listen(lambda event, fields: _report(service, event, fields))
        service.audit.append("start", uid=os.geteuid(), repositories=",".join(sorted(config.repositories)))
        service.audit.append("git-proved", **prove(config.state).fields())
        left = 0
        try:
            service.reconcile()
            left = _serve(service, config, redactor)
        finally:
            service.audit.append("stop", unfinished=left)
            if left:
                os._exit(0)  # a thread that hangs in a call would hold the process; the next start finishes its work


def _serve(service: Service, config: BrokerConfig, redactor: Redactor) -> int:
    """Both sockets until a signal; how many calls were still running when their time was over."""
    guards = {
        role: Guard(config.roles, service.audit, threads, redact=redactor, watch=service.desk.watch)
        for role, threads in _THREADS.items()
    }
    ending = threading.Event()
    known = ", ".join(sorted(config.repositories))
    ready = functools.partial(
        _say, f"listening at {config.socket}, for people at {config.people}; repositories: {known}"
    )
    with (
        listening(config.socket, config.socket_group, "socket_group") as coordinator,
        listening(config.people, config.person_group, "person_group") as person,
    ):
        places = (
            (CoordinatorDoor(service, config, guards["coordinator"], ending).app(), coordinator),
            (PersonDoor(service, guards["person"]).app(), person),
        )
        asyncio.run(serve_sockets(places, config.drain_seconds, ending, ready))
    return sum(guard.running for guard in guards.values())


def _report(service: Service, event: str, fields: Mapping[str, str]) -> None:
    service.audit.append(event, **fields)
    _say(f"{event}: {fields.get('reason') or fields.get('changed', '')}")


def _leave(_number: int, _frame: FrameType | None) -> None:
    raise SystemExit(0)


def _say(text: str) -> None:
    sys.stderr.write(f"swarm-broker: {text}\n")


def build(
    config: BrokerConfig,
    forges: Mapping[str, Forge] | None = None,
    trackers: Mapping[str, Tracker] | None = None,
    current: Current | None = None,
    *,
    redactor: Redactor | None = None,
) -> Service:
    """Joins the parts: the one place where the vault meets a forge. Raises ConfigError and AuditError.

    ``forges`` with ``trackers``, by repository, replace the ones that the settings name; ``current`` gives the
    settings as they are now.
    """
    redactor = redactor or Redactor()
    audit = Audit(config.state / "audit.log", redact=redactor)
    vault = Vault(config.state, redactor, audit.append)
    if forges is None or trackers is None:
        made = {name: _parts(name, config, vault) for name in config.repositories}
        forges = {name: forge for name, (forge, _) in made.items()}
        trackers = {name: tracker for name, (_, tracker) in made.items()}
    for name, forge in forges.items():
        if (path := config.repositories[name].path) is not None:
            _require_usable(name, path, forge)
    watch = planted(config.canary, config.state, audit.append) if config.canary else None
    mint = Mint(vault.signing_key())
    provenance = Provenance(config.state, Signer(vault.provenance_key()))
    service = assemble(
        current or (lambda: config),
        mint=mint,
        audit=audit,
        provenance=provenance,
        forges=forges,
        trackers=trackers,
        watch=watch or never,
    )
    if watch is not None:
        watch.stop_by(functools.partial(_stop_all, service))
    return service


def _stop_all(service: Service, reason: str) -> None:
    if not any(stop.repository is None for stop in service.stops.listing().stops):
        service.stops.set(StopRequest(stopped=True, reason=reason), os.geteuid())


def _parts(name: str, config: BrokerConfig, vault: Vault) -> tuple[Forge, Tracker]:
    settings = config.repositories[name]
    lend = vault.lender(name, settings.credential, _target(settings))
    if settings.path is None:
        raise ConfigError(f"repositories.{name}: {settings.forge} is not supported yet")
    forge = LocalForge(name, settings.path, config.state / "pulls" / name, config.identity, lend)
    return forge, LocalTracker(forge)


def _target(settings: Repository) -> Target | None:
    """What a GitHub App's tokens are for; None where there are no Apps."""
    if settings.forge != "github" or settings.url is None:
        return None
    place = urlsplit(settings.url)
    usual = "https://api.github.com" if place.netloc == "github.com" else f"{place.scheme}://{place.netloc}/api/v3"
    owner, _, repository = place.path.strip("/").partition("/")
    return Target(settings.api or usual, owner, repository, settings.ca_file)


def _require_usable(name: str, path: Path, forge: Forge) -> None:
    try:
        forge.object_format()
    except ForgeError as error:
        mend = f"make it as uid {os.geteuid()}: git init --bare {path}"
        raise ConfigError(f"repositories.{name}.path = {path} cannot be used: {error}", mend) from None
    if path.stat().st_uid != os.geteuid():  # git would refuse to read it, yet only once a task is under way
        mend = f"chown -R {os.geteuid()} {path}"
        raise ConfigError(f"repositories.{name}.path = {path} does not belong to the broker's user", mend)
