"""The broker's process: the parts joined, two sockets, one instance per state folder, a calm end on SIGTERM."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import os
import signal
import sys
import threading
from collections.abc import Collection, Mapping
from types import FrameType

from starlette.applications import Starlette

from broker.audit import Audit
from broker.canary import watch as planted
from broker.capability import Mint
from broker.config import showing
from broker.config.live import Live
from broker.config.repository import Repository
from broker.config.settings import BrokerConfig
from broker.config.settings import Webhook as WebhookSettings
from broker.door.coordinator import CoordinatorDoor
from broker.door.guard import Guard, never
from broker.door.listening import listening, listening_tcp
from broker.door.person import PersonDoor
from broker.door.serving import Place
from broker.door.serving import serve as serve_sockets
from broker.errors import ConfigError, FencedError
from broker.followup.webhook import Webhook
from broker.forge.base import Forge, Tracker
from broker.forge.github.place import place_of
from broker.forge.making import forge_of
from broker.forge.rest.pace import Paces
from broker.instance import alone, end_children, notify
from broker.judge.selftest import prove
from broker.person_wire import StopRequest
from broker.provenance.signing import Signer
from broker.provenance.store import Provenance
from broker.scope import Lend
from broker.service.service import Service, assemble
from broker.service.ward import Current
from broker.sparing import Sparing
from broker.vault.app import Target
from broker.vault.hardening import harden_process
from broker.vault.redaction import RedactingFormatter, Redactor
from broker.vault.vault import Vault

_THREADS = {"coordinator": 8, "person": 4}


def serve(live: Live, *, standby: bool = False) -> None:
    """Runs until SIGTERM or SIGINT; running calls may finish. Raises ConfigError and AuditError before listening.

    ``standby`` waits while another broker works on the same state, and takes over when it is gone.
    """
    harden_process()
    config = live.current()
    if found := showing.obstacles(config, os.geteuid()):
        raise ConfigError("; ".join(found), "swarm-broker config check")
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _leave)  # until the loop takes over: what was begun is reconciled at the next start
    redactor = Redactor()
    _redact_logging(redactor)
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
            service.start()
            left = _serve(service, config, redactor)
        finally:
            service.audit.append("stop", unfinished=left)
            if left:
                end_children()
                os._exit(0)  # a thread that hangs in a call would hold the process; the next start finishes its work


def _serve(service: Service, config: BrokerConfig, redactor: Redactor) -> int:
    """All sockets until a signal; how many calls were still running when their time was over."""
    guards = {
        role: Guard(config.roles, service.audit, threads, redact=redactor, watch=service.desk.watch, fenced=_give_way)
        for role, threads in _THREADS.items()
    }
    ending = threading.Event()
    known = ", ".join(sorted(config.repositories))
    words = f"listening at {config.socket}, for people at {config.people}; repositories: {known}"
    with contextlib.ExitStack() as stack:
        coordinator = stack.enter_context(listening(config.socket, config.socket_group, "socket_group"))
        person = stack.enter_context(listening(config.people, config.person_group, "person_group"))
        places = [
            Place(
                CoordinatorDoor(service, config, guards["coordinator"], ending).app(),
                coordinator,
                config.roles.coordinator.__contains__,
            ),
            Place(PersonDoor(service, guards["person"]).app(), person, config.roles.person.__contains__),
        ]
        if config.webhook is not None:
            hook = _webhook(service, config.webhook, Vault(config.state, redactor))
            places.append(Place(hook, stack.enter_context(listening_tcp(config.webhook.listen))))
        asyncio.run(serve_sockets(tuple(places), config.drain_seconds, ending, functools.partial(_ready, words)))
    return sum(guard.running for guard in guards.values())


def _webhook(service: Service, hook: WebhookSettings, vault: Vault) -> Starlette:
    def secret() -> bytes:
        return vault.secret(hook.secret).get_secret_value().encode()

    def names() -> Collection[str]:
        return service.desk.current().repositories.keys()

    return Webhook(secret, names, service.events.hint).app()


def _redact_logging(redactor: Redactor) -> None:
    """Whatever a library logs, tracebacks too, goes to standard error without a secret."""
    handler = logging.StreamHandler()
    handler.setFormatter(RedactingFormatter(redactor))
    handler.addFilter(Sparing())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("uvicorn").setLevel(logging.ERROR)  # whoever can connect could fill the disk with warnings


def _report(service: Service, event: str, fields: Mapping[str, str]) -> None:
    service.audit.append(event, **fields)
    _say("; ".join(filter(None, (f"{event}: {fields.get('reason') or fields.get('changed', '')}", fields.get("mend")))))


def _leave(_number: int, _frame: FrameType | None) -> None:
    raise SystemExit(0)


def _give_way(error: FencedError) -> None:
    """Another broker owns the state now: not a line more of the log, not a step more on the forge."""
    _say(str(error))
    end_children()
    os._exit(7)


def _ready(words: str) -> None:
    _say(words)
    notify("READY=1")


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
    with contextlib.ExitStack() as opened:
        audit = Audit(config.state / "audit.log", redact=redactor)
        opened.callback(audit.close)
        vault = Vault(config.state, redactor, audit.append)
        if forges is None or trackers is None:
            forges, trackers = _made(config, vault, redactor)
        watch = planted(config.canary, config.state, audit.append) if config.canary else None
        service = assemble(
            current or (lambda: config),
            mint=Mint(vault.signing_key()),
            audit=audit,
            provenance=Provenance(config.state, Signer(vault.provenance_key())),
            forges=forges,
            trackers=trackers,
            watch=watch or never,
            fenced=_give_way,
        )
        opened.pop_all()  # the service closes it from now on
    if watch is not None:
        watch.stop_by(functools.partial(_stop_all, service))
    return service


def _made(config: BrokerConfig, vault: Vault, redactor: Redactor) -> tuple[Mapping[str, Forge], Mapping[str, Tracker]]:
    """Every repository's forge and tracker."""
    paces = Paces()
    made = {
        name: forge_of(name, config, _lends(name, settings, vault), paces, redactor)
        for name, settings in config.repositories.items()
    }
    return {name: forge for name, (forge, _) in made.items()}, {name: tracker for name, (_, tracker) in made.items()}


def forge_for(name: str, config: BrokerConfig) -> Forge:
    """One repository's forge with its credential, for a doctor that reads. Raises ConfigError."""
    harden_process()
    redactor = Redactor()
    lends = _lends(name, config.repositories[name], Vault(config.state, redactor))
    return forge_of(name, config, lends, Paces(), redactor)[0]


def _stop_all(service: Service, reason: str) -> None:
    if not any(stop.repository is None for stop in service.stops.listing().stops):
        service.stops.set(StopRequest(stopped=True, reason=reason), os.geteuid())


def _lends(name: str, settings: Repository, vault: Vault) -> tuple[Lend, Lend]:
    """One repository's credential, for the API and for git."""
    target = _target(name, settings) if settings.forge == "github" else None
    lend = vault.lender(name, settings.credential, target)
    if settings.push_credential is None:
        return lend, lend
    return lend, vault.lender(name, settings.push_credential, target)


def _target(name: str, settings: Repository) -> Target:
    """What a GitHub App's tokens are for."""
    place = place_of(name, settings)
    owner, _, repository = place.full_name.partition("/")
    return Target(place.api.base + place.rest, owner, repository, settings.ca_file)
