"""The operator's doctor: settings, state, git, sockets, the log and each forge, every line with its mend."""

from __future__ import annotations

import json as json_module
import os
import socket
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

import typer

from broker import audit
from broker.cli.screen import DEFAULT_CONFIG, Config, Json, say
from broker.client import Client
from broker.config import loading, showing
from broker.config.repository import Repository
from broker.config.settings import BrokerConfig
from broker.errors import BrokerError, ConfigError, ForgeError
from broker.forge.base import Checked, Examiner, Forge
from broker.judge.selftest import Claim, examine
from broker.server import forge_for

commands = typer.Typer()
ForgeNamed = Callable[[str, BrokerConfig], Forge]
TestGit = Callable[[Path], tuple[Claim, ...]]
_AS_BROKER = "run doctor as the broker's user, who owns the state folder"
_MARKS = {"ok": "ok  ", "warn": "warn", "fail": "FAIL"}


@commands.command()
def doctor(config_file: Config = DEFAULT_CONFIG, json: Json = False) -> None:
    """Look at everything a delivery needs, as the broker's user: it reads the credential and asks the forge."""
    failed = False
    for place, found in examined(config_file, forge_for):
        failed = failed or found.state == "fail"
        if json:
            sys.stdout.write(json_module.dumps({"place": place, **asdict(found)}) + "\n")
        else:
            say(f"{_MARKS[found.state]} {place}: {found.name}: {found.message}")
            if found.mend:
                say(f"       mend: {found.mend}")
    raise typer.Exit(1 if failed else 0)


def examined(config_file: Path, forge_named: ForgeNamed, test_git: TestGit = examine) -> Iterator[tuple[str, Checked]]:
    """What was looked at and where, in order; ``forge_named`` makes a repository's forge and may raise ConfigError."""
    try:
        config = loading.load(config_file)
    except ConfigError as error:
        yield "settings", Checked("loaded", "fail", str(error), error.mend)
        return
    for here, found in (
        ("settings", _settings(config, config_file)),
        ("state", _state(config)),
        ("git", _git(test_git)),
        ("socket", _sockets(config)),
    ):
        yield from ((here, one) for one in found)
    for name in config.repositories:
        yield from ((name, one) for one in _repository(name, config, forge_named))


def _settings(config: BrokerConfig, config_file: Path) -> Iterator[Checked]:
    for warning in showing.warnings(config, os.geteuid()):
        yield Checked("weak", "warn", warning, "see docs/broker-policy.md; it may be meant")
    found = showing.obstacles(config, os.geteuid())
    for obstacle in found:
        yield Checked("refused by serve", "fail", obstacle)
    if not found:
        yield Checked("loaded", "ok", f"{config_file}; repositories: {', '.join(config.repositories)}")


def _state(config: BrokerConfig) -> Iterator[Checked]:
    try:
        info = config.state.stat()
    except FileNotFoundError:
        yield Checked("folder", "warn", f"{config.state} is not there yet", "serve makes it, if it may write beside it")
        return
    except OSError as error:
        yield Checked("folder", "fail", f"{config.state} cannot be looked at: {error.strerror}")
        return
    if info.st_uid != os.geteuid() or stat.S_IMODE(info.st_mode) & 0o077:
        mend = f"run doctor as the broker's user; else chown {os.geteuid()} {config.state}; chmod 700 {config.state}"
        yield Checked("folder", "fail", f"{config.state} must belong to the broker's user alone", mend)
        return
    yield Checked("folder", "ok", f"{config.state} is the broker's alone")
    try:
        head = audit.verify(config.state / "audit.log")
        yield Checked("log", "ok", f"{head.number} lines, unbroken")
    except BrokerError as error:
        yield Checked("log", "fail", str(error), error.mend)


def _git(test_git: TestGit) -> Iterator[Checked]:
    with tempfile.TemporaryDirectory(prefix="swarm-broker-") as scratch:
        claims = test_git(Path(scratch))
    for claim in claims:
        if not claim.ok:
            yield Checked(claim.name, "fail", claim.message, claim.mend)
    if all(claim.ok for claim in claims):
        yield Checked("self-test", "ok", f"{len(claims)} claims about this git hold")


def _sockets(config: BrokerConfig) -> Iterator[Checked]:
    for path in (config.socket, config.people):
        with socket.socket(socket.AF_UNIX) as probe:
            silent = probe.connect_ex(str(path))
        if silent:
            yield Checked(
                "answers", "warn", f"no broker answers on {path} ({os.strerror(silent)})", "swarm-broker serve"
            )
            continue
        try:
            with Client(path) as client:
                seen = client.health()
            yield Checked("answers", "ok", f"{path}, to uid {seen.uid} as {' and '.join(seen.role) or 'in no role'}")
        except BrokerError as error:
            yield Checked("answers", "fail", str(error), error.mend)


def _repository(name: str, config: BrokerConfig, forge_named: ForgeNamed) -> Iterator[Checked]:
    settings = config.repositories[name]
    try:
        yield from _forge(forge_named(name, config), settings)
    except (ConfigError, ForgeError) as error:
        yield Checked("forge", "fail", str(error), error.mend)
        return
    except OSError as error:
        yield Checked("forge", "fail", f"{error.filename or name}: {error.strerror or error}", _AS_BROKER)
        return
    if not settings.enabled or not config.enabled:
        yield Checked("enabled", "warn", "it is stopped in broker.toml", "enabled = true")


def _forge(forge: Forge, settings: Repository) -> Iterator[Checked]:
    base, prefix = settings.default_base, settings.branch_prefix
    if forge.head(base) is None:
        yield Checked("default-branch", "fail", f"there is no branch {base}", "correct default_base in broker.toml")
    else:
        yield Checked("default-branch", "ok", f"{base} can be read")
    steps = prefix.rstrip("/").split("/")
    for taken in ("/".join(steps[: end + 1]) for end in range(len(steps))):
        if forge.head(taken) is not None:  # git keeps refs like files: a/b cannot be where a is one
            yield Checked("branches", "fail", f"a branch is called {taken}, so none can begin with {taken}/",
                          "rename that branch, or set another branch_prefix")  # fmt: skip
    yield _visibility(forge, settings)
    if isinstance(forge, Examiner):
        yield from forge.examine(base, prefix)


def _visibility(forge: Forge, settings: Repository) -> Checked:
    if settings.visibility != "forge":
        return Checked("visibility", "ok", f"{settings.visibility}, as broker.toml says")
    seen = forge.visibility()
    if seen == "unknown":
        return Checked("visibility", "warn", "the forge does not say who can read it", "it counts as public: set it")
    return Checked("visibility", "ok", f"the forge says {seen}")
