"""The broker's process: who may connect, one instance per state folder, the parts joined, a calm end on SIGTERM."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import functools
import grp
import os
import signal
import socket
import stat
import struct
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FrameType

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from broker.audit import Audit
from broker.capability import Mint
from broker.config.settings import BrokerConfig
from broker.door.door import Door
from broker.errors import ConfigError, ForgeError
from broker.forge.base import Forge
from broker.forge.local import LocalForge
from broker.service.service import Service
from broker.vault.vault import Vault, harden_process

_CONNECTIONS = 64


class PeerProtocol(H11Protocol):
    """Puts the uid that the kernel vouches for into the state of every request of this connection."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Asks SO_PEERCRED once; it names whoever called connect()."""
        super().connection_made(transport)  # type: ignore[arg-type]
        peer = transport.get_extra_info("socket")
        credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        _pid, uid, _gid = struct.unpack("3i", credentials)
        self.app_state = {**self.app_state, "peer_uid": uid}


def serve(config: BrokerConfig) -> None:
    """Runs until SIGTERM or SIGINT; running calls may finish. Raises ConfigError and AuditError before listening."""
    harden_process()
    os.umask(0o077)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _leave)  # until the loop takes over: what was begun is reconciled at the next start
    with _alone(config.state), contextlib.closing(build(config)) as service:
        service.audit.append("start", uid=os.geteuid(), repositories=",".join(sorted(config.repositories)))
        try:
            service.reconcile()
            with _listening(config) as listener:
                asyncio.run(_run(service, config, listener))
        finally:
            service.audit.append("stop")


def _leave(_number: int, _frame: FrameType | None) -> None:
    raise SystemExit(0)


async def _run(service: Service, config: BrokerConfig, listener: socket.socket) -> None:
    settings = uvicorn.Config(
        Door(service, config).app(),
        http=PeerProtocol,
        ws="none",
        lifespan="off",
        log_level="warning",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        limit_concurrency=_CONNECTIONS,
        timeout_graceful_shutdown=int(config.drain_seconds),
    )
    server = _Server(settings)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, server.handle_exit, number, None)
    known = ", ".join(sorted(config.repositories))
    sys.stderr.write(f"swarm-broker: listening at {config.socket}; repositories: {known}\n")
    await server.serve(sockets=[listener])


class _Server(uvicorn.Server):
    """Leaves the signals to the loop: uvicorn would raise them again at the end, before the last line of the log."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Nothing: see above."""
        yield


def build(config: BrokerConfig, forges: Mapping[str, Forge] | None = None) -> Service:
    """Joins the parts: the one place where the vault meets a forge. Raises ConfigError and AuditError.

    ``forges`` by repository replaces the ones that the settings name.
    """
    vault = Vault(config.state)
    forges = forges or {name: _forge(name, config, vault) for name in config.repositories}
    for name, forge in forges.items():
        if (path := config.repositories[name].path) is not None:
            _require_usable(name, path, forge)
    audit = Audit(config.state / "audit.log")
    return Service(config, mint=Mint(vault.signing_key()), audit=audit, forges=forges)


def _forge(name: str, config: BrokerConfig, vault: Vault) -> Forge:
    settings = config.repositories[name]
    lend = functools.partial(vault.lend, settings.credential)
    if settings.path is None:
        raise ConfigError(f"repositories.{name}: {settings.forge} is not supported yet")
    return LocalForge(name, settings.path, config.state / "pulls" / name, config.identity, lend)


def _require_usable(name: str, path: Path, forge: Forge) -> None:
    try:
        forge.object_format()
    except ForgeError as error:
        mend = f"make it as uid {os.geteuid()}: git init --bare {path}"
        raise ConfigError(f"repositories.{name}.path = {path} cannot be used: {error}", mend) from None
    if path.stat().st_uid != os.geteuid():  # git would refuse to read it, yet only once a task is under way
        mend = f"chown -R {os.geteuid()} {path}"
        raise ConfigError(f"repositories.{name}.path = {path} does not belong to the broker's user", mend)


@contextlib.contextmanager
def _alone(state: Path) -> Iterator[None]:
    """Holds the state folder for this process. Raises ConfigError if it is another's or open to others."""
    try:
        state.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        mend = f"as root: install -d -m 700 -o {os.geteuid()} {state}"
        raise ConfigError(f"the state folder {state} cannot be made: {error.strerror}", mend) from None
    info = state.stat()
    if info.st_uid != os.geteuid() or info.st_mode & 0o077:
        mend = f"chown {os.geteuid()} {state}; chmod 700 {state}"
        raise ConfigError(f"the state folder {state} must belong to the broker's user alone", mend)
    with (state / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(f"another broker works in {state}", "stop it first") from None
        yield


def _mark(path: Path) -> tuple[int, ...] | None:
    """Which socket lies there. The time is among it since a file system gives a freed inode away again."""
    try:
        found = path.lstat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns


@contextlib.contextmanager
def _listening(config: BrokerConfig) -> Iterator[socket.socket]:
    """The socket, open to the group if one is named, else to all: the kernel names the caller either way."""
    path = config.socket
    try:
        if not path.parent.exists():
            path.parent.mkdir(parents=True)
            path.parent.chmod(0o755)  # the umask would keep the callers out
        if path.parent.stat().st_mode & 0o022:
            mend = f"chmod go-w {path.parent}"
            raise ConfigError(f"others can write to {path.parent} and put a socket of their own there", mend)
        if path.exists() and stat.S_ISSOCK(path.lstat().st_mode):
            path.unlink()  # the lock on the state folder says that no living broker listens there
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            listener.bind(str(path))
            if config.socket_group is not None:
                os.chown(path, -1, grp.getgrnam(config.socket_group).gr_gid)
            path.chmod(0o660 if config.socket_group is not None else 0o666)
            listener.listen(_CONNECTIONS)
            ours = _mark(path)
            try:
                yield listener
            finally:
                if _mark(path) == ours:  # a broker with another state folder may have taken the place
                    path.unlink(missing_ok=True)
    except KeyError:
        raise ConfigError(f"there is no group {config.socket_group!r}", "correct socket_group") from None
    except OSError as error:
        mend = "its folder must exist and be writable for the broker's user"
        raise ConfigError(f"cannot listen on {path}: {error.strerror}", mend) from None
