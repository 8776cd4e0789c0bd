"""Settings of the sandbox room."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from sandbox.mounts import refusal
from sandbox.types import MIB, Frozen, Limits

MODEL_PATHS = (
    *("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages", "/v1/messages/count_tokens"),
    *("/v1/models", "/v1/models/*", "/v1/budget", "/tokenize", "/detokenize", "/health"),
)
MODEL_FIELDS = (  # of a request; the session headers are those that the gateway places by
    *("accept", "accept-encoding", "accept-language", "content-type", "user-agent", "openai-*", "anthropic-*"),
    *("x-stainless-*", "x-request-id", "x-request-deadline", "x-session-id", "x-claude-code-*", "x-app", "thread-id"),
    *("session-id", "session_id", "x-session-affinity", "x-conversation-id", "x-parent-session-id", "x-correlation-id"),
)
REGISTRIES = (
    *("pypi.org", "files.pythonhosted.org", "registry.npmjs.org", "registry.yarnpkg.com"),
    *("crates.io", "static.crates.io", "index.crates.io", "proxy.golang.org", "sum.golang.org"),
    *("rubygems.org", "index.rubygems.org", "repo.maven.apache.org", "repo1.maven.org"),
    *("deb.debian.org", "archive.ubuntu.com", "security.ubuntu.com", "dl-cdn.alpinelinux.org"),
)
LOOPBACK = r"^(unix:/\S+|http://(127\.0\.0\.1|localhost|\[::1\])(:[0-9]{1,5})?/?)$"
GROUP = r"^[A-Za-z0-9_-][A-Za-z0-9._-]*(/[A-Za-z0-9_-][A-Za-z0-9._-]*)*$"
INDEX = r"^https?://"


class ModelExitConfig(Frozen):
    """The way out to the model gateway, for sandboxes whose network is ``model``."""

    gateway: str | None = Field(
        default=None,
        pattern=LOOPBACK,
        description="unix:/path/of/its.sock or http://127.0.0.1:8080, for sandboxes outside of tasks; a task's agents "
        "always ask the daemon's own pool, which charges them",
    )
    api_key_env: str | None = Field(
        default=None, description="environment variable that holds the gateway's key; it never gets inside"
    )
    port: int = Field(default=8088, ge=1024, le=65535, description="port inside, on 127.0.0.1")
    paths: tuple[str, ...] = Field(default=MODEL_PATHS, description="paths passed on; /* at the end is all below")
    headers: dict[str, str] = Field(
        default={"x-program-id": "task", "x-user-id": "task"},
        description="headers that tell the gateway whose a request is, and the label that each is set from",
    )
    passed: tuple[str, ...] = Field(
        default=MODEL_FIELDS,
        description="headers of a request that are passed on, in small letters; x-* is all that begin so",
    )
    body: int = Field(default=32 * MIB, ge=1024, description="bytes that one request may hold")
    requests: int = Field(default=16, ge=1, description="requests of one sandbox at a time")
    idle: float = Field(default=900.0, gt=0, description="seconds without a byte after which an answer is given up")


class PackageRule(Frozen):
    """What may be asked of one host."""

    methods: tuple[str, ...] = Field(default=("GET", "HEAD"), description="methods passed on")
    paths: tuple[str, ...] = Field(default=("/",), description="beginnings of paths passed on, whole segments")


class PackagesExitConfig(Frozen):
    """The way out to package registries, for the set-up phase (network ``packages``)."""

    hosts: tuple[str, ...] = Field(
        default=REGISTRIES, description="host, host:port or *.suffix; an empty list lets nothing out"
    )
    mirrors: tuple[str, ...] = Field(
        default=(), description="the same, beside hosts; host:port may be at a private address"
    )
    rules: dict[str, PackageRule] = Field(
        default_factory=dict,
        description="by a line of hosts or mirrors: other methods and paths than GET and HEAD of all",
    )
    pip_index: str | None = Field(default=None, pattern=INDEX, description="index that pip inside is told of")
    port: int = Field(default=8089, ge=1024, le=65535, description="port inside, on 127.0.0.1")
    answer: int = Field(default=2048 * MIB, ge=1024, description="bytes of one answer")
    total: int = Field(default=8192 * MIB, ge=1024, description="bytes of all answers to one sandbox")
    seconds: float = Field(default=600.0, gt=0, description="seconds that one request may take")
    connections: int = Field(default=64, ge=1, description="connections of one sandbox at a time")

    @model_validator(mode="after")
    def _rules_are_of_listed_hosts(self) -> PackagesExitConfig:
        if strangers := sorted(self.rules.keys() - {*self.hosts, *self.mirrors}):
            raise ValueError(f"rules of hosts that are not listed: {', '.join(strangers)}")
        return self


class EgressConfig(Frozen):
    """The ways out. A sandbox has none of them, or the one that its task asks for."""

    model: ModelExitConfig = ModelExitConfig()
    packages: PackagesExitConfig = PackagesExitConfig()


class WarmConfig(Frozen):
    """Sandboxes held ready, each for one use."""

    max: int = Field(default=4, ge=0, le=64, description="most sandboxes held ready at a time; 0 holds none")
    memory: int = Field(default=256 * MIB, ge=0, description="bytes that they may take, at 32 MiB each")
    idle: float = Field(default=300.0, gt=0, description="seconds without a demand after which none is held")


class ImagesConfig(Frozen):
    """Where systems other than the base come from, and what is kept of images and set-ups."""

    pull: Literal["never", "missing"] = Field(
        default="never", description="missing lets the Docker engine fetch an image that it does not have"
    )
    allowed: tuple[str, ...] = Field(
        default=(),
        description="image names that a repository's devcontainer.json may choose; * is any text between two slashes",
    )
    builds: bool = Field(
        default=False,
        description="build the Dockerfile of a repository whose devcontainer is honoured; its RUN lines run as root in "
        "an ordinary container of the engine, which is locked down less than a sandbox",
    )
    build_network: Literal["none", "default"] = Field(
        default="none", description="network of RUN lines in the operator's own Dockerfiles; repositories' have none"
    )
    cache: int = Field(default=20 * 1024 * MIB, ge=0, description="bytes of images and of set-ups that are kept, each")
    disk_floor: int = Field(
        default=1024 * MIB, ge=0, description="bytes free on the state folder's disk below which nothing new is kept"
    )
    templates: int = Field(
        default=2, ge=0, le=64, description="sandboxes held ready with a set-up in them; each takes the set-up's memory"
    )


class SandboxConfig(Frozen):
    """Which backend, which image, which limits."""

    backend: Literal["auto", "docker", "bwrap"] = Field(
        default="auto", description="auto takes Docker where an engine answers, else bubblewrap, else refuses"
    )
    image: str = Field(default="agent-swarm/base:1", description="local Docker image; scripts/build-image makes it")
    runtime: str | None = Field(default=None, description="OCI runtime for Docker, for example crun; default: its own")
    cgroup: str = Field(
        default="agent-swarm",
        pattern=GROUP,
        description="bubblewrap: control group below which sandboxes are limited; must be ours",
    )
    env: dict[str, str] = Field(default_factory=dict, description="variables set inside; nothing else gets in")
    images: ImagesConfig = ImagesConfig()
    mounts: dict[str, str] = Field(
        default_factory=dict,
        max_length=32,
        description="the machine's folders shown read-only inside: path inside = path here; no place of secrets",
    )
    limits: Limits = Field(default=Limits(), description="bounds of every sandbox; bytes and seconds")
    warm: WarmConfig = Field(default=WarmConfig(), description="sandboxes started before they are asked for")
    egress: EgressConfig = Field(default=EgressConfig(), description="the ways out of a sandbox")

    @model_validator(mode="after")
    def _mounts_show_no_secrets(self) -> SandboxConfig:
        reasons = [reason for inside, host in self.mounts.items() if (reason := refusal(inside, host))]
        if reasons:
            raise ValueError(f"sandbox.mounts: {'; '.join(reasons)}")
        return self
