"""What a caller hands to the pool and gets back: frozen data, no I/O."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Role = Literal["system", "user", "assistant", "tool"]
ServerKind = Literal["vllm", "llamacpp", "other"]
LifeState = Literal["unknown", "up", "suspect", "down"]
FinishReason = Literal["stop", "length", "tool_calls", "other"]
RequestClass = Literal["interactive", "default", "bulk"]
Capability = Literal[
    "tools", "forced_tools", "reasoning", "json_schema", "stream_usage", "cached_tokens", "priority", "logprobs"
]
"""What an endpoint was seen to do, or was configured to do. Tool calls are two: where a model may make one (``tools``)
and where it must (``forced_tools``: tool_choice is "required" or names one), which a grammar holds it to."""
CALLS: tuple[Capability, ...] = ("tools", "forced_tools")

Verdict = Literal["yes", "no", "unknown"]
"""What was found out; unknown is neither of the others."""
Phase = Literal["unknown", "idle", "busy", "wedged", "dead", "unready", "asleep", "silent"]
"""How an endpoint is, for people: busy moves, wedged holds work and does not, silent did not answer in time."""

CANARY_TOOL = "swarm_canary"
"""Name of the tool that an endpoint is asked to call once, to see whether it really speaks tool calls."""


class Frozen(BaseModel):
    """Base of the room's values: immutable, unknown fields refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class ToolCall(Frozen):
    """One call a model asked for. ``arguments`` is the raw JSON text as the server sent it.

    ``fault`` says why they do not fit the tool's schema; a call that has one must not be run.
    """

    id: str
    name: str
    arguments: str
    fault: str = ""


class Message(Frozen):
    """One chat message, in the shape of OpenAI's chat completions. ``reasoning`` is what a model thought before it."""

    role: Role
    content: str = ""
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None


class ToolSpec(Frozen):
    """A tool offered to the model; ``parameters`` is a JSON schema of an object."""

    name: str
    description: str
    parameters: dict[str, Any]


class Sampling(Frozen):
    """How tokens are drawn, beside the temperature. None leaves it to the server."""

    top_p: float | None = Field(default=None, gt=0, le=1)
    top_k: int | None = Field(default=None, ge=1)
    min_p: float | None = Field(default=None, ge=0, le=1)
    repetition_penalty: float | None = Field(default=None, gt=0, le=3)
    presence_penalty: float | None = Field(default=None, ge=-2, le=2)


Effort = Literal["none", "minimal", "low", "medium", "high"]


class ChatRequest(Frozen):
    """One chat turn asked of a tier.

    ``session`` keeps the turns of one conversation on one endpoint (its KV cache); ``deadline`` is in seconds
    from now and covers every retry. ``program`` names the task tree whose sessions share one fair part of the pool.
    Of ``sampling`` a server gets what it has a word for. ``template`` are switches of the model's chat template (vLLM's
    and llama.cpp's `chat_template_kwargs`), ``effort`` is how much a model should think. ``tool_choice`` "required"
    demands a call of any of the tools, which only goes to endpoints that were seen to make one then.
    """

    tier: str
    messages: tuple[Message, ...]
    session: str
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: Literal["auto", "required"] = "auto"
    max_tokens: int = Field(default=1024, gt=0)
    temperature: float = Field(default=0.2, ge=0)
    n: int = Field(default=1, ge=1)
    stop: tuple[str, ...] = ()
    json_schema: dict[str, Any] | None = None
    deadline: float = Field(default=600.0, gt=0)
    program: str = ""
    request_class: RequestClass = "default"
    cache_salt: str | None = Field(default=None, min_length=1, max_length=1024)
    logprobs: bool = False
    sampling: Sampling = Sampling()
    template: dict[str, Any] = Field(default_factory=dict)
    effort: Effort | None = None


class CompletionRequest(Frozen):
    """One raw text completion asked of a tier (for models whose chat template is of no help)."""

    tier: str
    prompt: str
    session: str
    max_tokens: int = Field(default=64, gt=0)
    temperature: float = Field(default=0.8, ge=0)
    n: int = Field(default=1, ge=1)
    stop: tuple[str, ...] = ()
    json_schema: dict[str, Any] | None = None
    deadline: float = Field(default=600.0, gt=0)
    program: str = ""
    request_class: RequestClass = "default"
    cache_salt: str | None = Field(default=None, min_length=1, max_length=1024)
    logprobs: bool = False


class Usage(Frozen):
    """Tokens of one reply. ``cached_tokens`` is None where the server does not tell, which is not zero."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int | None = None


class Choice(Frozen):
    """One sampled answer.

    Where ``logprobs`` were asked for and told there is one for each token, with the ``tokens`` as text and the
    ``margins`` to the next likely one, all in nats; empty where the server does not tell, which is not certainty.
    ``torn`` are calls whose arguments are no whole JSON object: cut off, or written badly. They are never run as such.
    """

    content: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    torn: tuple[ToolCall, ...] = ()
    reasoning: str = ""
    finish_reason: FinishReason = "stop"
    logprobs: tuple[float, ...] = ()
    tokens: tuple[str, ...] = ()
    margins: tuple[float, ...] = ()


class Part(Frozen):
    """One request that a virtual model made, and what it cost. ``failed`` says why nothing came of it.

    ``waited``, ``prefill`` and ``gpu_seconds`` are as in `Reply`.
    """

    role: str
    tier: str
    endpoint: str = ""
    model: str = ""
    usage: Usage = Usage()
    seconds: float = 0.0
    samples: int = 1
    failed: str = ""
    waited: float = 0.0
    prefill: float | None = None
    gpu_seconds: float = 0.0


class Report(Frozen):
    """What a virtual model did for one answer: its parts, what they cost and what was gained.

    ``spent`` and ``budget`` are tokens, read and written. ``stopped`` tells why it ended: all was done, the answer was
    decided ``early``, the budget or the deadline would not have covered the next part, or a part failed that the rest
    needed. ``figures`` are measures of the kind: agreement of a vote, confidence of a draft, share of a context read.
    """

    name: str
    kind: str
    parts: tuple[Part, ...]
    spent: int
    budget: int
    stopped: Literal["done", "early", "budget", "deadline", "failed"] = "done"
    gained: str = ""
    figures: dict[str, float] = {}


class Reply(Frozen):
    """What came back, from which endpoint, and how long it took (seconds).

    ``request`` is the id by which the pool explains where it went. ``tier`` is the one that answered and ``why`` it was
    asked, where a policy chose it; ``report`` is told by virtual models, whose ``usage`` is the sum of all parts.
    Of the ``seconds``, ``waited`` passed before it was sent where it was answered (the queue, tries elsewhere), then
    ``prefill`` until the first token, which is None where nothing was heard before the end. ``gpu_seconds`` are those
    since it was sent, times the endpoint's GPUs; the parts of a virtual model are summed.
    """

    choices: tuple[Choice, ...]
    usage: Usage
    endpoint: str
    model: str
    seconds: float
    attempts: int = 1
    request: str = ""
    tier: str = ""
    why: str = ""
    report: Report | None = None
    waited: float = 0.0
    prefill: float | None = None
    gpu_seconds: float = 0.0


class Traits(Frozen):
    """What all who may answer for a tier have in common, so that a request shaped by it fits wherever it goes.

    ``model`` is the name that they serve, empty where they serve several. ``window`` (tokens) is the smallest that is
    known, ``longest`` the largest. The others were seen to work, or an operator vouches for them: ``native`` tool
    calls, ``forced`` ones (a call is made where one is demanded), ``structured`` answers (a JSON schema is really kept
    to), ``reasoning`` that comes apart from the answer.
    """

    model: str = ""
    window: int | None = None
    longest: int | None = None
    native: bool = False
    forced: bool = False
    structured: bool = False
    reasoning: bool = False

    @classmethod
    def common(cls, all_of: Sequence[Traits]) -> Traits:
        """The least that several have in common; of none, nothing."""
        if not all_of:
            return cls()
        models = {one.model for one in all_of}
        return cls(
            model=models.pop() if len(models) == 1 else "",
            window=min((one.window for one in all_of if one.window), default=None),
            longest=max((one.longest or one.window or 0 for one in all_of), default=0) or None,
            native=all(one.native for one in all_of),
            forced=all(one.forced for one in all_of),
            structured=all(one.structured for one in all_of),
            reasoning=all(one.reasoning for one in all_of),
        )


class Trait(Frozen):
    """One capability of an endpoint: the finding, what it rests on, and the flag that would enable what is missing."""

    verdict: Verdict = "unknown"
    evidence: str = ""
    mend: str = ""


class Card(Frozen):
    """One entry of a server's list of models; an adapter names its ``parent``."""

    id: str
    parent: str | None = None
    window: int | None = None


class Served(Frozen):
    """What an endpoint told when it was discovered. ``window`` is the real context length in tokens.

    ``slots`` is the most samples of one request that llama.cpp decodes; ``cards`` are all the models that it lists.
    """

    kind: ServerKind
    model: str
    window: int | None = None
    slots: int | None = None
    version: str | None = None
    cards: tuple[Card, ...] = ()


class EndpointStatus(Frozen):
    """Where one endpoint stands. None means unknown, never zero. ``age`` is of the last scrape, in seconds.

    ``native_tools`` tells whether its tool calls were seen to work; ``cooling`` are the seconds for which it asked to
    be left alone; ``in_flight`` are our own requests in it, ``running`` and ``waiting`` everybody's. ``hit_rate`` is
    the share of prompt tokens that its prefix cache gave, ``restarts`` counts those that its counters gave away;
    ``misfit`` is what requests found to be wrong with its configuration, until one succeeds.
    """

    name: str
    tier: str
    url: str
    state: LifeState
    kind: ServerKind | None = None
    model: str | None = None
    window: int | None = None
    native_tools: bool | None = None
    in_flight: int = 0
    sessions: int = 0
    running: int | None = None
    waiting: int | None = None
    kv_usage: float | None = None
    age: float | None = None
    cooling: float = 0.0
    last_error: str = ""
    misfit: str = ""
    phase: Phase = "unknown"
    draining: bool = False
    version: str | None = None
    models: tuple[Card, ...] = ()
    slots: int | None = None
    block_tokens: int | None = None
    kv_tokens: int | None = None
    hit_rate: float | None = None
    waiting_by_reason: dict[str, int] = Field(default_factory=dict)
    restarts: int = 0
    traits: dict[Capability, Trait] = Field(default_factory=dict)
