"""Settings of the hall, read once at the door and passed by hand; nothing below reads a file or the environment.

Long, since it is one list of settings, with what each of them means, and of settings that do not fit together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr

from pool.address import SOCKET_LIMIT
from pool.config import EMBEDDED, NAME, PoolConfig
from pool.tiers.naming import misfits
from sandbox.config import SandboxConfig
from sandbox.errors import ImageError
from sandbox.images.sources import source_of
from sandbox.types import GIB
from swarm.agents import AgentConfig, agent_of, known_agents
from swarm.budgets.prices import Prices
from swarm.budgets.scopes import DayBudgets
from swarm.config_database import Address, address_misfits
from swarm.config_door import TcpConfig, TokenConfig, tcp_misfits
from swarm.config_sandbox import agent_misfits, sandbox_misfits, setup_misfits
from swarm.config_scheduling import SchedulingConfig
from swarm.config_strategies import StrategyConfig, best_of_misfit, is_known, names, strategy_misfits
from swarm.config_text import Problem, dotted, nearest
from swarm.errors import ConfigError
from swarm.manners import Manners
from swarm.telemetry.settings import TelemetryConfig
from swarm.types import STRATEGY, Budget, Frozen


class DaemonConfig(Frozen):
    """Where the daemon lives."""

    model_config = ConfigDict(allow_inf_nan=False)

    state: Path = Field(
        default=Path("/var/lib/agent-swarm"),
        description="folder of the database, git objects and logs; the daemon's user owns it",
    )
    socket: Path = Field(
        default=Path("/run/agent-swarm/swarm.sock"), description="unix socket that the swarm command speaks to"
    )
    workers: int = Field(default=2, ge=1, le=4096, description="attempts at a time")
    disk_floor: int = Field(
        default=2 * GIB,
        ge=0,
        description="bytes that the disks of the state and sandbox folders keep free; below, tasks wait in the queue",
    )
    drain_timeout: float = Field(default=60.0, ge=0, description="seconds to finish running attempts after SIGTERM")
    host: str | None = Field(
        default=None,
        min_length=1,
        max_length=100,
        description="name of this host among those that share a database; default: the machine's own",
    )
    labels: tuple[str, ...] = Field(
        default=(),
        max_length=50,
        description="what this host has that a task may require, as gpu; arch=... is added",
    )
    heartbeat: float = Field(default=5.0, gt=0, le=60, description="seconds between two signs of life of this host")
    lease: float = Field(
        default=30.0,
        gt=0,
        le=3600,
        description="seconds without one until this host stops its attempts by itself",
    )
    grace: float = Field(
        default=30.0, ge=0, le=3600, description="seconds after the lease of a host until others take its tasks over"
    )
    stall: float = Field(
        default=900.0, ge=0, description="seconds without any sign of life after which an attempt is ended; 0: never"
    )
    socket_group: str | None = Field(default=None, description="group that may use the socket besides the owner")
    database: str | None = Field(
        default=None,
        min_length=1,
        description="Postgres database that several daemons share, as postgresql://USER@HOST:PORT/DATABASE, without a "
        "password; default: a SQLite file in the state folder, for one daemon",
    )
    database_password: SecretStr | None = Field(default=None, description="better read from a file or the environment")
    database_password_env: str | None = Field(
        default=None, min_length=1, description="environment variable that holds the password"
    )
    database_password_file: Path | None = Field(
        default=None, description="file that holds the password, readable by the daemon's user alone"
    )
    tcp: TcpConfig | None = Field(
        default=None, description="where the api listens for other machines; default: nowhere"
    )
    tokens: tuple[TokenConfig, ...] = Field(
        default=(), max_length=100, description="who may call over TCP, besides those that swarm token add wrote down"
    )

    @property
    def token_file(self) -> Path:
        """Where swarm token writes."""
        return self.tcp.tokens if self.tcp and self.tcp.tokens else self.state / "tokens.json"

    def where(self) -> Path | Address:
        """The database. Raises ConfigError when its password was named and not found."""
        if self.database is None:
            return self.state / "swarm.db"
        named = self.database_password_file or self.database_password_env
        if self.database_password is None and named:
            what = "file" if self.database_password_file else "environment variable"
            raise ConfigError(
                f"the password of daemon.database was not found: the {what} {named} holds none, or may not be read",
                "put the password there; a file must be readable by the daemon's user and by nobody else",
            )
        password = self.database_password
        return Address(self.database, password.get_secret_value() if password else None)


class BrokerAddress(Frozen):
    """Where the broker listens. Its settings are its own, in broker.toml."""

    model_config = ConfigDict(allow_inf_nan=False)

    socket: Path = Field(default=Path("/run/swarm-broker/broker.sock"), description="the broker's unix socket")
    patience: float = Field(
        default=86_400.0,
        ge=0,
        description="seconds that finished work waits for a broker that is away, before a person is asked",
    )
    person_socket: Path | None = Field(
        default=None, description="its socket for people, who grant tasks; person.sock beside the other if absent"
    )

    @property
    def people(self) -> Path:
        """The broker's socket for people."""
        return self.person_socket or self.socket.with_name("person.sock")


class SalvageConfig(Frozen):
    """How long what attempts left is kept. What the forge shows as merged may always go."""

    model_config = ConfigDict(allow_inf_nan=False)

    keep_days: float | None = Field(
        default=None, gt=0, description="days after a task's end that swarm salvage prune keeps its work; default: all"
    )
    keep_bytes: int | None = Field(
        default=None,
        gt=0,
        description="bytes of finished tasks' work that it keeps, the oldest goes first; default: all",
    )


class FollowupConfig(Frozen):
    """Whether what happens on a forge starts work here. Which issues, and by whom, the broker's settings say."""

    enabled: bool = Field(
        default=False,
        description="take tasks that people ask for on the forge, go on after reviews, failed checks and conflicts, "
        "and tell there how far it is; the broker says who may ask ([repositories.NAME.intake] in broker.toml)",
    )


class RepositoryConfig(Frozen):
    """What the operator knows about a repository; the broker knows where it is."""

    model_config = ConfigDict(allow_inf_nan=False)

    test_command: str | None = Field(
        default=None,
        min_length=1,
        description="run through /bin/sh in the sandbox; tells whether the work is good. discover: the one that the "
        "base's own files suggest and that was seen to run its tests",
    )
    weakened_tests: Literal["report", "refuse"] = Field(
        default="report",
        description="what becomes of a change that takes something from its tests: told in its pull request, or not "
        "delivered",
    )
    guides: bool | tuple[str, ...] = Field(
        default=True,
        description="tell agents what AGENTS.md, CLAUDE.md and their like say, read at the base commit; or only the "
        "files of these names or paths",
    )
    base: str | None = Field(
        default=None, min_length=1, description="branch to aim at; default: the broker's default for it"
    )
    strategy: str | None = Field(
        default=None,
        pattern=STRATEGY,
        description="how to work: a strategy of ours (swarm strategies), one of [strategies], cli:NAME for an agent of "
        "[agents], or auto, which learns from what became of earlier attempts",
    )
    tier: str | None = Field(default=None, description="tier to start with")
    image: str | None = Field(
        default=None,
        min_length=1,
        description="system of its sandboxes: a name that the Docker engine knows, or the absolute path of a "
        "Dockerfile, of an archive (a file system, or what docker save writes), or of a folder; default: sandbox.image",
    )
    setup: tuple[str, ...] = Field(
        default=(), description="shell commands that install what its tests need, run once with the package registries"
    )
    setup_inputs: tuple[str, ...] = Field(
        default=(),
        description="tracked files, as patterns, that the set-up sees, and whose change makes it run anew "
        "(requirements*.txt); default: the whole checkout",
    )
    setup_network: Literal["packages", "none"] = Field(default="packages", description="what the set-up reaches")
    setup_seconds: float = Field(default=900.0, gt=0, description="seconds that all set-up commands may take together")
    devcontainer: bool = Field(
        default=False,
        description="honour image, variables and commands of its devcontainer.json; sandbox.images.allowed says which "
        "images it may name",
    )


class Settings(Frozen):
    """One swarm.toml."""

    daemon: DaemonConfig = DaemonConfig()
    broker: BrokerAddress = BrokerAddress()
    pool: PoolConfig = PoolConfig()
    repositories: dict[str, RepositoryConfig] = Field(
        default_factory=dict, description="what is known of each repository, by the broker's name for it"
    )
    agents: dict[Annotated[str, Field(pattern=NAME)], AgentConfig] = Field(
        default_factory=dict, max_length=64, description="agents of others that may do the work, by your name for each"
    )
    strategies: dict[Annotated[str, Field(pattern=NAME)], StrategyConfig] = Field(
        default_factory=dict, max_length=64, description="ways to work that are made of others, by your name for each"
    )
    models: dict[Annotated[str, Field(min_length=1, max_length=200)], Manners] = Field(
        default_factory=dict,
        max_length=256,
        description="how models are sampled and spoken to, by their served names or patterns of these",
    )
    sandbox: SandboxConfig = SandboxConfig()
    limits: Budget = Field(default=Budget(), description="what a task may spend when it names nothing else")
    budgets: DayBudgets = DayBudgets()
    prices: Prices = Prices()
    followup: FollowupConfig = FollowupConfig()
    scheduling: SchedulingConfig = SchedulingConfig()
    salvage: SalvageConfig = SalvageConfig()
    telemetry: TelemetryConfig = TelemetryConfig()

    @property
    def strategy_names(self) -> tuple[str, ...]:
        """Every way to work that a task may name: our own, those of [strategies], then one for each agent."""
        return names(self.strategies, known_agents(self.agents))

    def knows(self, strategy: str) -> bool:
        """Whether a task may name this way to work; of `best-of-N` only one is among the names."""
        return is_known(strategy, self.strategies, known_agents(self.agents))


def secrets_of(value: object) -> frozenset[str]:
    """Every secret in the settings, wherever it stands."""
    if isinstance(value, SecretStr):
        return frozenset({value.get_secret_value()})
    if isinstance(value, BaseModel):
        return secrets_of([getattr(value, name) for name in type(value).model_fields])
    if isinstance(value, Mapping):
        return secrets_of([*value.values()])
    if isinstance(value, (list, tuple)):
        return frozenset(secret for each in value for secret in secrets_of(each))
    return frozenset()


def secrets_known(settings: Settings, environ: Mapping[str, str]) -> frozenset[str]:
    """Every secret of the settings, with those that they only name and that stand in this environment."""
    found = {environ[name] for name in _named(settings).values() if environ.get(name)}
    return secrets_of(settings) | found | frozenset(settings.telemetry.headers(environ).values())


def secrets_missing(settings: Settings, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Where the settings name a secret that is not to be had here, as KEY (VARIABLE): nobody strikes these."""
    daemon, pool = settings.daemon, settings.pool
    had = {f"pool.endpoints[{number}].api_key_env" for number, each in enumerate(pool.endpoints) if each.api_key}
    had |= {"daemon.database_password_env"} if daemon.database_password else set()
    missing = [f"{key} ({name})" for key, name in _named(settings).items() if key not in had and not environ.get(name)]
    if daemon.database_password_file and not daemon.database_password:
        missing.append(f"daemon.database_password_file ({daemon.database_password_file})")
    return tuple(missing)


def _named(settings: Settings) -> dict[str, str]:
    """The environment variables that hold secrets, by their setting."""
    named = {
        "daemon.database_password_env": settings.daemon.database_password_env,
        "telemetry.otlp_headers_env": settings.telemetry.otlp_headers_env,
        "sandbox.egress.model.api_key_env": settings.sandbox.egress.model.api_key_env,
    }
    named |= {
        f"pool.endpoints[{number}].api_key_env": each.api_key_env for number, each in enumerate(settings.pool.endpoints)
    }
    return {key: name for key, name in named.items() if name}


def impossible(settings: Settings) -> tuple[Problem, ...]:
    """Settings that are each well formed and cannot work together."""
    pool = settings.pool
    return (
        *_no_endpoint(pool),
        *_twice(pool),
        *_unserved(settings),
        *_unknown_strategies(settings),
        *strategy_misfits(settings.strategies, known_agents(settings.agents), pool.askable),
        *(Problem(key=f"pool.{key}", line=None, message=words) for key, words in misfits(pool)),
        *_long_sockets(settings),
        *_late_heartbeat(settings.daemon),
        *(address_misfits(settings.daemon.database) if settings.daemon.database else ()),
        *tcp_misfits(settings.daemon.tcp, settings.daemon.tokens),
        *_odd_images(settings),
        *sandbox_misfits(settings.sandbox),
        *_odd_setups(settings),
        *agent_misfits(settings.agents),
    )


def missing_keys(settings: Settings) -> tuple[Problem, ...]:
    """Endpoints whose key should have come from the environment and did not; only who calls a model needs to care."""
    return tuple(
        Problem(
            key=f"pool.endpoints[{number}].api_key_env",
            line=None,
            message=f"{endpoint.name}: the environment variable {endpoint.api_key_env} is not set",
        )
        for number, endpoint in enumerate(settings.pool.endpoints)
        if endpoint.api_key_env and endpoint.api_key is None
    )


def _no_endpoint(pool: PoolConfig) -> tuple[Problem, ...]:
    if pool.endpoints or pool.embedded.enabled:
        return ()
    words = "there is no endpoint; add [[pool.endpoints]] or set pool.embedded.enabled = true (swarm init finds them)"
    return (Problem(key="pool", line=None, message=words),)


def _twice(pool: PoolConfig) -> tuple[Problem, ...]:
    seen: dict[str, int] = {}
    found: list[Problem] = []
    for number, endpoint in enumerate(pool.endpoints):
        first = seen.setdefault(endpoint.name, number)
        if first != number:
            words = f'"{endpoint.name}" is taken by pool.endpoints[{first}]; give every endpoint its own name'
            found.append(Problem(key=dotted(("pool", "endpoints", number, "name")), line=None, message=words))
        if endpoint.name == EMBEDDED and pool.embedded.enabled:
            words = f'"{EMBEDDED}" is the name of the embedded model, which [pool.embedded] enabled = true starts; '
            words += "give this endpoint another name, or set pool.embedded.enabled = false"
            found.append(Problem(key=dotted(("pool", "endpoints", number, "name")), line=None, message=words))
    return tuple(found)


def _unserved(settings: Settings) -> tuple[Problem, ...]:
    wanted = [("pool.default_tier", settings.pool.default_tier)]
    wanted += [(f"repositories.{name}.tier", known.tier) for name, known in settings.repositories.items()]
    served = settings.pool.askable
    return tuple(
        Problem(key=key, line=None, message=_no_tier(tier, served))
        for key, tier in wanted
        if tier not in {None, *served}
    )


def _no_tier(tier: str | None, served: tuple[str, ...]) -> str:
    like = nearest(tier or "", served)
    return f'no endpoint serves the tier "{tier}"; ' + (
        f'did you mean "{like}"?' if like else f"served are: {', '.join(served) or 'none'}"
    )


def _unknown_strategies(settings: Settings) -> tuple[Problem, ...]:
    return tuple(
        Problem(
            key=f"repositories.{name}.strategy", line=None, message="; ".join(no_strategy(known.strategy, settings))
        )
        for name, known in settings.repositories.items()
        if known.strategy is not None and not settings.knows(known.strategy)
    )


def no_strategy(wanted: str | None, settings: Settings, more: Sequence[str] = ()) -> tuple[str, str]:
    """That there is no such way to work, and the mend; ``more`` are there besides those of tasks."""
    agent, agents = agent_of(wanted or ""), tuple(known_agents(settings.agents))
    if agent is not None:
        like = nearest(agent, agents)
        mend = f"known are: {', '.join(agents)}; another one is set up in [agents.NAME] of swarm.toml"
        return f'there is no agent "{agent}"', f'did you mean "{like}"?' if like else mend
    if too_many := best_of_misfit(wanted or ""):
        return f'there is no strategy "{wanted}"', too_many
    there = (*settings.strategy_names, *more)
    like = nearest(wanted or "", there)
    known = f"known are: {', '.join(there)}"
    return f'there is no strategy "{wanted}"', f'did you mean "{like}"?' if like else known


def _late_heartbeat(daemon: DaemonConfig) -> Iterator[Problem]:
    if daemon.heartbeat * 2 > daemon.lease:
        words = (
            f"is {daemon.heartbeat:g} s, and daemon.lease is {daemon.lease:g} s: a host whose one sign of life is late "
        )
        words += "would stop its attempts; let a lease last two heartbeats at least"
        yield Problem(key="daemon.heartbeat", line=None, message=words)


def _odd_images(settings: Settings) -> Iterator[Problem]:
    for name, known in settings.repositories.items():
        try:
            source_of(known.image or "image")
        except ImageError as error:
            yield Problem(key=dotted(("repositories", name, "image")), line=None, message=str(error))


def _odd_setups(settings: Settings) -> Iterator[Problem]:
    for name, known in settings.repositories.items():
        yield from setup_misfits(("repositories", name), known.setup, known.setup_inputs)


def _long_sockets(settings: Settings) -> tuple[Problem, ...]:
    sockets = {
        "daemon.socket": settings.daemon.socket,
        "broker.socket": settings.broker.socket,
        "broker.person_socket": settings.broker.people,
    }
    if settings.pool.gateway.socket:
        sockets["pool.gateway.socket"] = Path(settings.pool.gateway.socket)
    return tuple(
        Problem(key=key, line=None, message=f"is {size} bytes long; a socket's path has at most {SOCKET_LIMIT}")
        for key, socket in sockets.items()
        if (size := len(bytes(socket))) > SOCKET_LIMIT
    )
