"""Names misconfigurations of model servers from what is known of them; pure. Each says why, and how to mend it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

from pool.config import EndpointConfig
from pool.types import Capability, EndpointStatus, Frozen, Trait
from pool.wire.capability import Record
from pool.wire.metrics import Snapshot

Level = Literal["ok", "warn", "fail"]

CLIENT_IDLE = 3.0  # seconds for which our own client keeps an idle connection
TINY, SMALL = 2048, 8192  # tokens of window: below the one no agent gets anywhere, below the other not far
OLD, OLDER = (0, 30), (0, 12)  # vLLM: bounded queues and session ids since; structured outputs since
THRASH, ENOUGH = 0.2, 100_000  # a hit rate that is bad for agents, once so many prompt tokens were looked up
WHITE_SPACE = '--structured-outputs-config \'{"backend":"xgrammar","disable_any_whitespace":true}\''
SENT_ON = "it was refused with 3"  # how a redirect looks to OpenAI's client
LOCAL = ("127.0.0.1", "localhost", "::1")


class Finding(Frozen):
    """One thing about one subject: what is so, why it matters, and what to do about it."""

    subject: str
    level: Level
    what: str
    why: str = ""
    mend: str = ""


@dataclass(frozen=True, slots=True)
class Patient:
    """One endpoint as the doctor sees it. ``idle`` are seconds after which it closes an idle connection.

    ``idle`` is infinite for one that did not within the time that was watched, None where nobody looked; ``plain`` is
    why an unmodified OpenAI client gets no answer there, empty where it does.
    """

    config: EndpointConfig
    status: EndpointStatus
    record: Record | None = None
    snapshot: Snapshot | None = None
    idle: float | None = None
    plain: str | None = None


def diagnose(patients: Sequence[Patient]) -> tuple[Finding, ...]:
    """All findings: each endpoint's, one "ok" for those that have none, then those about several together."""
    found: list[Finding] = []
    for patient in patients:
        own = list(_examine(patient))
        found += own or [Finding(subject=f"endpoint {patient.config.name}", level="ok", what=_healthy(patient))]
    return (*found, *_together(patients))


def failed(found: Iterable[Finding]) -> bool:
    """Whether something must be mended."""
    return any(finding.level == "fail" for finding in found)


def _examine(patient: Patient) -> Iterator[Finding]:
    rules = LIFE if patient.record is None or patient.status.state == "down" else (*LIFE, *RULES)
    for rule in rules:
        for level, what, why, mend in rule(patient):
            name = f"endpoint {patient.config.name}"
            yield Finding(subject=name, level=level, what=what, why=why, mend=mend)


Found = Iterator[tuple[Level, str, str, str]]


def _alive(patient: Patient) -> Found:
    status = patient.status
    told = status.last_error.removeprefix(f"endpoint {status.name}: ") or "it did not answer yet"
    if status.phase == "wedged":
        why = "its health answers, yet requests in it will never end"
        yield "fail", "its engine stands still with work in hand", why, "start it anew, and look into its log"
    elif status.phase == "asleep":
        yield "fail", "its engine sleeps", "requests to it would wait for ever", "wake it: POST /wake_up"
    elif "a web page" in told or "with 404" in told:
        why = "it answers, yet not as a model server: this is no OpenAI-compatible address"
        yield "fail", told, why, "mend url of this endpoint: GET url/v1/models must list its models"
    elif status.state == "down" or status.phase == "unknown":
        yield "fail", told, "nothing can be sent to it", "start it, or mend url (or api_key) of this endpoint"
    elif status.phase == "silent":
        why = "a busy server answers a probe late; one that hangs does not at all"
        yield "warn", told, why, "look whether it works; a second look tells more"


def _misfit(patient: Patient) -> Found:
    """What requests were told, or OpenAI's own client: an answer that no request of anybody can mend."""
    if patient.status.misfit:
        told = patient.status.misfit.removeprefix(f"endpoint {patient.config.name}: ")
        yield "fail", told, "every request to it fails, and goes to another endpoint", "mend url or api_key"
    elif patient.plain and patient.plain.startswith(SENT_ON):
        what = f"it sends requests elsewhere ({patient.plain.removeprefix('it was refused with ')})"
        why = "nothing is sent on to another address, least of all with its key"
        yield "fail", what, why, "set url of this endpoint to the address that answers itself"


def _key(patient: Patient) -> Found:
    url = urlsplit(patient.config.url)
    if patient.config.api_key is not None and url.scheme == "http" and url.hostname not in LOCAL:
        yield "warn", "its key travels unencrypted", "whoever sees the traffic can use the server", "serve it by https"


def _metrics(patient: Patient) -> Found:
    record = patient.record
    if record is None or record.families:
        return
    why = "its load is unknown, so it is judged by our own requests alone, and a hung engine looks like a busy one"
    mends = {"llamacpp": "--metrics", "vllm": "let /metrics through, and do not --disable-log-stats"}
    yield "warn", "it has no metrics", why, mends.get(record.kind, "serve the model with vLLM or llama.cpp")


def _window(patient: Patient) -> Found:
    record = patient.record
    if record is None:
        return
    mend = {"vllm": "--max-model-len N", "llamacpp": "-c N (shared among --parallel slots)"}.get(
        record.kind, "start it with a longer context"
    )
    if record.window is None:
        why = "a prompt that is too long is noticed only when the server refuses it"
        yield "warn", "it does not tell its context window", why, "serve the model with vLLM or llama.cpp"
    elif record.window < SMALL:
        level: Level = "fail" if record.window < TINY else "warn"
        yield level, f"a window of {record.window} tokens", "an agent's history outgrows it within a few turns", mend


def _cache(patient: Patient) -> Found:
    record, seen = patient.record, patient.snapshot or Snapshot()
    if record is None:
        return
    if record.prefix_caching is False:
        why = "each turn of an agent is computed from its first token"
        yield "warn", "prefix caching is off", why, "start it without --no-enable-prefix-caching"
    if record.kv_tokens and record.window and record.kv_tokens < 2 * record.window:
        what = f"its KV cache holds {record.kv_tokens} tokens, {record.kv_tokens / record.window:.1f} whole windows"
        mend = "more memory for it (--gpu-memory-utilization, --kv-cache-dtype fp8), or a shorter --max-model-len"
        yield "warn", what, "two long sessions push one another out", mend
    if (rate := seen.hit_rate()) is not None and rate < THRASH and (seen.prefix_queries or 0) > ENOUGH:
        why = "sessions push one another out of the cache, or something at the start of each prompt changes"
        mend = "fewer live sessions (max_in_flight), more KV memory, or KV offload (--kv-offloading-size GiB)"
        yield "warn", f"only {rate:.0%} of its prompt tokens came from the cache", why, mend


def _version(patient: Patient) -> Found:
    record = patient.record
    if record is None or not record.older_than(*OLD):
        return
    if record.older_than(*OLDER):
        why = "it has no structured_outputs, and its other fields are guesses"
        yield "fail", f"vLLM {record.version} is old", why, "update it to 0.30 or newer"
    else:
        why = "no bound on its queue, no session ids on its KV events"
        yield "warn", f"vLLM {record.version} is old", why, "update it to 0.30 or newer"


WHY: dict[Capability, str] = {
    "tools": "agents must speak tool calls as text, which costs tokens and mistakes",
    "forced_tools": "a client that demands a tool call (tool_choice) is refused",
    "reasoning": "the thinking ends up in the answer and in the history",
    "json_schema": "an answer may be anything, and is asked for again until it fits",
    "stream_usage": "the tokens of streamed answers cannot be counted",
    "cached_tokens": "nobody can see whether a session's cache is still there",
    "logprobs": "a cascade by confidence cannot judge its answers",
}


def _traits(patient: Patient) -> Found:
    record = patient.record
    for name, why in WHY.items():
        trait = record.traits.get(name, Trait()) if record else Trait()
        if name == "forced_tools" and record and record.verdict("tools") == "no":
            continue  # one finding for one cause
        if trait.verdict == "no" and not (name == "tools" and patient.config.tools == "text"):
            level: Level = "fail" if "came as text" in trait.evidence or "came inside" in trait.evidence else "warn"
            yield level, f"{name}: {trait.evidence}", why, trait.mend
        elif name == "json_schema" and "white space" in trait.evidence:
            told = "small models spend all their tokens on white space that the schema allows"
            yield "warn", f"{name}: {trait.evidence}", told, WHITE_SPACE


def _word(patient: Patient) -> Found:
    """What the configuration says against what was seen."""
    record, config = patient.record, patient.config
    if record is None:
        return
    if config.scheduling == "priority" and record.kind != "vllm":
        why = "this kind of server has no priorities: it would serve first come, first served"
        yield "fail", "scheduling = 'priority', yet it is no vLLM", why, "take scheduling out of this endpoint"
    if config.scheduling is None and record.kind == "vllm":
        why = "under fcfs vLLM takes the field priority and ignores it, so the pool does not send it"
        mend = '--scheduling-policy priority, and scheduling = "priority" of this endpoint; else scheduling = "fcfs"'
        yield "warn", "whether it honours priority cannot be seen", why, mend
    if config.kv_events and record.events is False and "kv_event_sources" in record.routes:
        why = "the pool listens and hears nothing"
        mend = '--kv-events-config \'{"enable_kv_cache_events":true,"publisher":"zmq"}\', or take kv_events out'
        yield "fail", "kv_events is set, yet it publishes none", why, mend
    if record.slots and config.max_in_flight > record.slots:
        usual = "" if "max_in_flight" in config.model_fields_set else " (the default)"
        what = f"max_in_flight = {config.max_in_flight}{usual}, yet it decodes {record.slots} at a time"
        mend = f"max_in_flight = {record.slots}, or --parallel {config.max_in_flight}"
        yield "warn", what, "the others wait inside it, where the pool cannot order them", mend
    if config.model is None and len([card for card in record.cards if card.parent is None]) > 1:
        yield "warn", f"it serves several models; {record.model} is asked for", "it was its first", "set model"


def _keep_alive(patient: Patient) -> Found:
    if patient.idle is not None and patient.idle <= CLIENT_IDLE:
        what = (
            f"it closes an idle connection after {patient.idle:.1f} s, and the client keeps one for {CLIENT_IDLE:g} s"
        )
        why = "both may use and close it at the same moment: now and then a request breaks for no reason"
        mends = {"vllm": "VLLM_HTTP_TIMEOUT_KEEP_ALIVE=30 in its environment"}
        kind = patient.record.kind if patient.record else "other"
        yield "fail", what, why, mends.get(kind, "a longer keep-alive in the server, or in the proxy before it")


def _plain(patient: Patient) -> Found:
    if patient.plain and not patient.plain.startswith(SENT_ON):
        why = "other people's agents speak to servers through OpenAI's client"
        mend = "look at what stands between, and put swarm pool serve in front of it"
        yield "warn", f"OpenAI's own client gets no answer from it: {patient.plain}", why, mend


LIFE: tuple[Callable[[Patient], Found], ...] = (_alive, _misfit, _key)
RULES: tuple[Callable[[Patient], Found], ...] = (
    _version, _metrics, _window, _cache, _traits, _word, _keep_alive, _plain,
)  # fmt: skip


def _together(patients: Sequence[Patient]) -> Iterator[Finding]:
    """What is wrong between endpoints."""
    for url, count in Counter(patient.config.url for patient in patients).items():
        if count > 1:
            why = "each counts its own requests, so the server gets more than either allows"
            yield Finding(
                subject=url, level="warn", what=f"{count} endpoints name it", why=why, mend="keep one of them"
            )
    tiers: dict[str, set[str]] = {}
    for patient in patients:
        if patient.record is not None:
            tiers.setdefault(patient.config.tier, set()).add(patient.record.model)
    for tier, models in tiers.items():
        if len(models) > 1:
            what = f"its endpoints serve {', '.join(sorted(models))}"
            why = "a session that moves goes on with another model"
            yield Finding(subject=f"tier {tier}", level="warn", what=what, why=why, mend="one tier for each model")
    groups = Counter(patient.config.share_group for patient in patients if patient.config.share_group)
    for group, count in groups.items():
        if count == 1:
            what, mend = "one endpoint alone is in it", "name its other members, or take share_group out"
            yield Finding(
                subject=f"share_group {group}", level="warn", what=what, why="it shares with nobody", mend=mend
            )


def _healthy(patient: Patient) -> str:
    record = patient.record
    if record is None:
        return "it answers"
    window = f", window {record.window}" if record.window else ""
    return f"{record.kind} {record.version or ''} serves {record.model}{window}; nothing to mend".replace("  ", " ")
