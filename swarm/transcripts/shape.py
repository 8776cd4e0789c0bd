"""The transcript of one attempt, as data: a header, its steps, an end. docs/transcripts.md has every field.

Steps bear the names of ATIF, the Agent Trajectory Interchange Format (RFC 0001 of Harbor, version 1.7): a step without
its ``type`` is one of ATIF's, and what is ours alone lies under ``extra``.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from swarm.types import Frozen

FORMAT: Literal["agent-swarm-transcript"] = "agent-swarm-transcript"
VERSION: Literal[1] = 1
Extra = dict[str, Any]
Count = Annotated[int, Field(ge=0)]
_FINITE = ConfigDict(allow_inf_nan=False)


class Agent(Frozen):
    """Who did the work."""

    name: str = Field(description="the agent: agent-swarm, mini-swe-agent, …")
    version: str = Field(default="", description="its version; empty where that is not known")
    model_name: str = Field(default="", description="the model that answered most; empty where none is known")
    tool_definitions: tuple[dict[str, Any], ...] = Field(
        default=(), description="the tools it was offered, as OpenAI's function calling writes them"
    )
    extra: Extra = Field(default_factory=dict)


class Header(Frozen):
    """The first line: whose transcript it is."""

    type: Literal["header"] = "header"
    format: Literal["agent-swarm-transcript"] = FORMAT
    version: Literal[1] = VERSION
    agent: Agent
    task: str = Field(default="", description="the task's id, or what the other program called it")
    attempt: str = Field(default="", description="the attempt's id")
    title: str = Field(default="", description="the task in one line")
    repository: str = ""
    base: str = Field(default="", description="the commit that the work stands on")
    strategy: str = ""
    tier: str = Field(default="", description="where the attempt began; a step tells where it is another")
    started: str = Field(default="", description="ISO 8601, UTC")
    origin: str = Field(default="journal", description="what it was made of: journal, atif, mini-swe-agent, swe-agent")
    extra: Extra = Field(default_factory=dict)


class ToolCall(Frozen):
    """One call that the agent asked for. Arguments that are no JSON object stand in ``extra.raw`` as they came."""

    tool_call_id: str
    function_name: str
    arguments: dict[str, Any] = Field(default_factory=dict)
    extra: Extra = Field(default_factory=dict)


class Result(Frozen):
    """What a call gave. ``source_call_id`` is None for one of a protocol that gives its calls no ids."""

    source_call_id: str | None = None
    content: str = ""
    extra: Extra = Field(default_factory=dict, description="exit_code, seconds, tool, changed, at, …")


class Observation(Frozen):
    """All results of a step, in the order in which they came."""

    results: tuple[Result, ...] = ()


class Metrics(Frozen):
    """What one step cost."""

    model_config = _FINITE

    prompt_tokens: Count | None = None
    completion_tokens: Count | None = None
    cached_tokens: Count | None = Field(default=None, description="of the prompt, those that a cache held")
    cost_usd: float | None = None
    extra: Extra = Field(default_factory=dict, description="seconds, waited, prefill, gpu_seconds, …")


class Step(Frozen):
    """One thing that happened: who spoke, what was said and called, what came of it, what it cost."""

    type: Literal["step"] = "step"
    step_id: int = Field(ge=1, description="1, 2, 3 … without a gap")
    timestamp: str | None = Field(default=None, description="ISO 8601, UTC")
    source: Literal["system", "user", "agent"] = Field(
        description="agent: a model's answer; user: the task and what people said; system: all that the program did"
    )
    message: str = ""
    reasoning_content: str | None = None
    model_name: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    observation: Observation | None = None
    metrics: Metrics | None = None
    llm_call_count: Count | None = None
    extra: Extra = Field(default_factory=dict, description="kind, seq, part, tier, endpoint, … of the journal")


class End(Frozen):
    """The last line: how it ended, and sums. One that is still going on, or was cut off, has none."""

    model_config = _FINITE

    type: Literal["end"] = "end"
    ending: str = Field(default="", description="finished, gave_up, limit_hit, …, or the other program's word")
    reason: str = ""
    ended: str = Field(default="", description="ISO 8601, UTC")
    total_prompt_tokens: Count | None = None
    total_completion_tokens: Count | None = None
    total_cached_tokens: Count | None = None
    total_cost_usd: float | None = None
    total_steps: Count | None = None
    submission: str = Field(default="", description="the change as a diff, where the transcript has it")
    extra: Extra = Field(default_factory=dict)


class Transcript(Frozen):
    """All of it."""

    header: Header
    steps: tuple[Step, ...] = ()
    end: End | None = None
