"""Settings of the pool: which servers there are and which tier each serves."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, SecretStr, field_validator, model_validator

from pool.address import base_address, event_address
from pool.types import Frozen, RequestClass

AUTO = "auto"
"""The tier that a policy chooses anew for every request."""
NAME = r"^[a-z0-9][a-z0-9._-]{0,63}$"
"""What an endpoint or a key may be called."""
EMBEDDED = "embedded"
"""The name of the embedded model's endpoint, which no other may have beside it."""


class EndpointConfig(Frozen):
    """One OpenAI-compatible server."""

    name: str = Field(pattern=NAME, description="a short name, shown in logs and evidence")
    url: str = Field(description="base address, with or without /v1, for example http://127.0.0.1:8000/v1")
    tier: str = Field(default="default", description="the tier this endpoint serves")
    model: str | None = Field(default=None, description="model name to ask for; default: the first one it lists")
    api_key: SecretStr | None = Field(default=None, description="sent as a bearer token where the server wants one")
    api_key_env: str | None = Field(
        default=None, description="name of an environment variable that holds the key; read once, at the door"
    )
    tools: Literal["auto", "native", "text"] = Field(
        default="auto", description="how tool calls are spoken: the server's own, or plain text; auto probes"
    )
    scheduling: Literal["fcfs", "priority"] | None = Field(
        default=None,
        description="vLLM's --scheduling-policy; it cannot be seen from outside, so say it where it is set",
    )
    max_in_flight: int = Field(default=64, ge=1, description="requests at a time that we send to it")
    gpus: float = Field(
        default=1.0, ge=0, description="GPUs that it runs on: a second of a request there counts so many GPU-seconds"
    )
    share_group: str | None = Field(
        default=None, description="endpoints of one group share KV blocks, through LMCache or the like"
    )
    transfer_rate: float | None = Field(
        default=None, gt=0, description="tokens a second at which a block comes from another member of the group"
    )
    role: Literal["both", "prefill", "decode"] = Field(
        default="both", description="its part in a prefill/decode pair; prefill ones are never asked directly"
    )
    kv_events: str | None = Field(
        default=None, description="address of its KV events, for example tcp://127.0.0.1:5557; default: none are read"
    )
    kv_replay: str | None = Field(default=None, description="address where missed KV events are asked for again")

    @field_validator("url")
    @classmethod
    def _http(cls, value: str) -> str:
        return base_address(value)

    @field_validator("kv_events", "kv_replay")
    @classmethod
    def _zmq(cls, value: str | None) -> str | None:
        return value if value is None else event_address(value)


class EmbeddedConfig(Frozen):
    """The small model that ships with the project, served as a child process. It proves the plumbing, not skill."""

    enabled: bool = Field(default=False, description="serve the embedded model and join it to the pool")
    tier: str = Field(default="embedded", description="the tier it serves")
    parallel: int = Field(default=8, ge=1, le=64, description="sequences decoded together")
    window: int = Field(default=2048, ge=256, le=8192, description="context of each sequence, in tokens")
    threads: int = Field(default=1, ge=1, description="processor threads; on shared cores more of them only stall")
    weights: str | None = Field(
        default=None, description="path of the GGUF file; default: found in the project's cache"
    )


class KeyConfig(Frozen):
    """One caller of the gateway. Its key is told by hash or by the name of an environment variable, never in clear."""

    name: str = Field(pattern=NAME, description="who calls, as shown in metrics")
    sha256: str | None = Field(
        default=None, pattern=r"^[0-9a-f]{64}$", description="SHA-256 of the key in hex: printf %s KEY | sha256sum"
    )
    env: str | None = Field(default=None, description="name of an environment variable that holds the key instead")
    request_class: RequestClass = Field(default="default", description="the best class that its requests may have")
    tokens_per_minute: int | None = Field(default=None, ge=1, description="tokens a minute, prompt and answer together")
    tokens_per_day: int | None = Field(default=None, ge=1, description="tokens a day, prompt and answer together")
    concurrent: int | None = Field(default=None, ge=1, description="requests at a time")

    @model_validator(mode="after")
    def _one_key(self) -> Self:
        if (self.sha256 is None) == (self.env is None):
            raise ValueError("a gateway key is told by exactly one of sha256 and env")
        return self


class GatewayConfig(Frozen):
    """The OpenAI-compatible server in front of the pool. Without keys it listens on loopback addresses only."""

    host: str = Field(default="127.0.0.1", description="address to listen on; beyond loopback only with keys")
    port: int = Field(default=8080, ge=0, le=65535, description="TCP port; 0 takes a free one")
    socket: str | None = Field(default=None, description="unix socket for its owner, with the admin routes as well")
    keys: tuple[KeyConfig, ...] = Field(default=(), max_length=10_000, description="who may call")
    max_body: int = Field(default=33_554_432, ge=1024, description="bytes of a request's body")
    max_bodies: int = Field(
        default=1_073_741_824, ge=1024, description="bytes of requests held at a time; of several keys each has half"
    )
    max_connections: int = Field(
        default=8192,
        ge=1,
        description="TCP connections at a time, at most half of `ulimit -n`; of several keys each has half at work",
    )
    max_header: int = Field(default=32_768, ge=1024, description="bytes of a request's head")
    header_timeout: float = Field(default=10.0, gt=0, description="seconds for a request's head to arrive")
    body_timeout: float = Field(default=60.0, gt=0, description="seconds for a request's body to arrive")
    stall_timeout: float = Field(default=60.0, gt=0, description="seconds that a client may read nothing of its answer")
    keep_alive: float = Field(default=75.0, gt=0, description="seconds that an idle connection stays open")
    comment_interval: float = Field(
        default=10.0, gt=0, description="seconds of silence before a virtual model's stream gets a comment line"
    )
    deadline: float = Field(default=600.0, gt=0, description="seconds that a request may take when it names none")
    drain_notice: float = Field(default=1.0, ge=0, description="seconds not ready, yet listening, before it closes")
    drain_timeout: float = Field(default=60.0, ge=0, description="seconds to finish running requests after SIGTERM")

    @model_validator(mode="after")
    def _room_for_one(self) -> Self:
        if self.max_bodies < self.max_body * (1 if len(self.keys) < 2 else 2):
            raise ValueError("max_bodies has no room for one body of max_body (of several keys each may hold half)")
        return self


class AutoConfig(Frozen):
    """When the tier `auto` climbs and steps down. Counts are of a session's answers since its last move.

    A sign of trouble reaches 1 at its count here. A climb whose re-prefill costs more than ``dear`` seconds needs twice
    that: two signs, or one of double strength.
    """

    tiers: tuple[str, ...] = Field(default=(), description="tiers it may use, weakest first; default: all of them")
    bad_answers: int = Field(default=2, ge=1, description="answers out of schema or with unusable tool calls to climb")
    repeats: int = Field(default=3, ge=2, description="rounds of the same tool calls with the same results to climb")
    failed_checks: int = Field(default=2, ge=1, description="failed checks in a row to climb")
    confidence: float = Field(default=-1.5, lt=0, description="mean logprob of a token below which an answer is unsure")
    unsure_answers: int = Field(default=2, ge=1, description="unsure answers in a row to climb")
    ask_logprobs: bool = Field(default=False, description="ask servers for logprobs, so that confidence counts")
    window: int = Field(default=8, ge=2, le=64, description="last answers that are looked at")
    settle: int = Field(default=2, ge=1, description="answers on a tier before it may be left again, overflow aside")
    calm: int = Field(
        default=6, ge=1, description="good answers in a row to step down; doubles with each climb back after one"
    )
    dear: float = Field(default=30.0, gt=0, description="seconds of re-prefill from which a move is dear")
    compact: bool = Field(
        default=True, description="once no window is long enough, leave old tool results out and try again, once"
    )
    sessions: int = Field(default=10_000, ge=1, description="sessions remembered; the longest idle is forgotten first")


class VirtualConfig(Frozen):
    """One virtual model: several requests to real tiers that make one answer, within a budget of tokens."""

    kind: Literal["confidence", "vote", "fuse", "draft-verify"] = Field(description="what it does, see docs/tiers.md")
    tiers: tuple[str, ...] = Field(
        min_length=1, max_length=8, description="the tiers that answer or draft, weakest first; all plain ones"
    )
    judge: str | None = Field(default=None, description="the tier that decides, merges or verifies; default: the last")
    budget: int = Field(default=32_768, ge=256, description="tokens that one answer may cost, read and written")
    samples: int = Field(default=5, ge=2, le=64, description="vote: the most samples that are drawn")
    temperature: float = Field(default=0.7, ge=0, description="vote, fuse: least temperature, so that answers differ")
    compare: Literal["text", "number", "last_line"] = Field(
        default="text", description="vote: what of an answer must be equal; JSON and tool calls are compared by value"
    )
    measure: Literal["mean", "margin", "least"] = Field(
        default="mean", description="confidence: mean logprob, mean margin to the next token, or the least logprob"
    )
    threshold: float | None = Field(
        default=None, description="confidence: keep an answer from here on, in nats; default: -1, 0.5 and -4"
    )
    arguments_only: bool = Field(default=False, description="confidence: look at the tokens of tool arguments alone")
    shrink: float = Field(
        default=0.4, gt=0, lt=1, description="draft-verify: the most of the context that the judge reads at first"
    )
    differ: float = Field(
        default=0.5, ge=0, le=1, description="draft-verify: drafts that differ more than this make the judge read more"
    )


class ClassConfig(Frozen):
    """How one class of requests waits."""

    floor: float = Field(ge=0, le=0.9, description="share of a tier's places that no lower class may take")
    queue: int = Field(ge=0, description="requests of this class that may wait in one tier")
    timeout: float = Field(gt=0, description="seconds that one may wait for a place")
    ageing: float = Field(gt=0, description="seconds of waiting after which one counts as of the next class up")


class AdmissionConfig(Frozen):
    """Who may send now. Beyond what an endpoint's KV cache holds, more sessions at a time make all of them slower."""

    interactive: ClassConfig = Field(
        default=ClassConfig(floor=0.1, queue=256, timeout=60.0, ageing=15.0), description="a person waits for it"
    )
    default: ClassConfig = Field(
        default=ClassConfig(floor=0.1, queue=2048, timeout=600.0, ageing=30.0), description="agents at work"
    )
    bulk: ClassConfig = Field(
        default=ClassConfig(floor=0.0, queue=4096, timeout=3600.0, ageing=60.0), description="whatever has time"
    )
    headroom: float = Field(
        default=0.9,
        gt=0,
        le=1,
        description="share of an endpoint's KV cache that its live sessions may be forecast to need",
    )
    max_live_sessions: int | None = Field(
        default=None, ge=1, description="live sessions of one endpoint, whatever its KV cache; default: no such limit"
    )
    turns_ahead: int = Field(default=1, ge=0, le=50, description="turns of growth that a session's forecast holds")
    hold: float = Field(
        default=30.0, gt=0, description="seconds that a session between turns keeps its place, until speeds are learned"
    )
    max_hold: float = Field(
        default=300.0, gt=0, description="most seconds that a session between turns keeps its place"
    )
    force_after: float = Field(
        default=6.0,
        gt=0,
        description="seconds after which waiting sessions go by arrival and may displace others between turns",
    )
    swap_share: float = Field(
        default=0.15,
        gt=0,
        le=1,
        description="share of an endpoint's time that may go into prefilling displaced sessions anew",
    )
    most_waste: float = Field(
        default=0.08,
        ge=0,
        le=1,
        description="share of an endpoint's prompt tokens prefilled a second time, above which nobody is displaced",
    )
    half_life: float = Field(
        default=300.0, gt=0, description="seconds after which tokens that a task tree got count half in its fair part"
    )

    @model_validator(mode="after")
    def _leave_room(self) -> Self:
        if self.interactive.floor + self.default.floor > 0.9:
            raise ValueError("the floors of the classes leave less than a tenth of the places to the lowest one")
        return self


class PoolConfig(Frozen):
    """All endpoints, and how patient the pool is."""

    endpoints: tuple[EndpointConfig, ...] = Field(default=(), description="the servers")
    embedded: EmbeddedConfig = Field(
        default=EmbeddedConfig(), description="the small model that ships with the project"
    )
    gateway: GatewayConfig = Field(default=GatewayConfig(), description="the server in front of the pool")
    admission: AdmissionConfig = Field(default=AdmissionConfig(), description="who may send now, and who waits")
    default_tier: str | None = Field(default=None, description="tier of a task that names none; default: the first")
    tier_order: tuple[str, ...] = Field(
        default=(), description="all tiers from the weakest up; default: the embedded one, then as configured"
    )
    auto: AutoConfig = Field(default=AutoConfig(), description="when the tier auto climbs and steps down")
    virtual: dict[str, VirtualConfig] = Field(
        default_factory=dict, max_length=32, description="virtual models, by the name that a request asks for"
    )
    connect_timeout: float = Field(default=5.0, gt=0, description="seconds to connect")
    first_byte_timeout: float = Field(
        default=300.0, gt=0, description="seconds until an answer begins; queue and prompt add to it"
    )
    idle_timeout: float = Field(
        default=90.0, gt=0, description="seconds between two pieces of an answer whose engine stands still"
    )
    retries: int = Field(default=4, ge=0, description="further tries of one request, failover included")
    canaries: bool = Field(
        default=True, description="ask each server a few tiny requests when it joins, to see what it can do"
    )
    probe_interval: float = Field(default=2.0, gt=0, description="seconds between probes of health and metrics")

    @property
    def tiers(self) -> tuple[str, ...]:
        """Names of the tiers, in the order of the configuration."""
        names = [endpoint.tier for endpoint in self.endpoints]
        if self.embedded.enabled:
            names.append(self.embedded.tier)
        return tuple(dict.fromkeys(names))

    @property
    def ladder(self) -> tuple[str, ...]:
        """The tiers from the weakest up: as ordered, else the embedded one first and the others as configured."""
        embedded = (self.embedded.tier,) if self.embedded.enabled else ()
        known = self.tiers
        ordered = (*(tier for tier in self.tier_order if tier in known), *embedded, *known)
        return tuple(dict.fromkeys(ordered))

    @property
    def askable(self) -> tuple[str, ...]:
        """Every name that a request may put for a tier: the tiers, the virtual models, and `auto` where it has any."""
        return tuple(dict.fromkeys((*self.tiers, *self.virtual, *((AUTO,) if self.tiers else ()))))
