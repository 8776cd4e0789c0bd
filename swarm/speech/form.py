"""How a conversation speaks to its model, chosen once and journaled with its opening. Frozen data.

A replay and a resumption take the form from the journal, so that they ask and read as the conversation did, whatever
the data of the families or the settings have become since.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import Field

from pool.types import Effort, Frozen, Sampling, ToolSpec, Traits
from swarm.manners import Manners
from swarm.speech.families import manners_of
from swarm.speech.schema import schema

Way = Literal["native", "text", "constrained"]
"""Native tool calls, calls as text, or calls as JSON to whose schema the server holds the model."""
Shape = Literal["fenced", "object"]
"""How a call is written as text: in a ```tool block, or as the whole answer, which is one JSON object."""
Reasoning = Literal["drop", "loop", "keep"]
"""What becomes of thoughts: never sent back, sent back as long as tools are called natively, or always."""


class Form(Frozen):
    """How calls are spoken and answers are sampled, for one model.

    ``family`` names where that comes from. ``strict_turns`` tells of chat templates that refuse two turns of a kind in
    a row, as a user's words right after the result of a tool.
    """

    way: Way = "text"
    shape: Shape = "fenced"
    family: str = "neutral"
    temperature: float | None = None
    sampling: Sampling = Sampling()
    stop: tuple[str, ...] = ()
    template: dict[str, Any] = Field(default_factory=dict)
    effort: Effort | None = None
    reasoning: Reasoning = "drop"
    strict_turns: bool = False

    @property
    def native(self) -> bool:
        """Whether tools are offered in the request and results come back as messages of a tool."""
        return self.way == "native"

    @property
    def keeps_reasoning(self) -> bool:
        """Whether thoughts stay in the history and are sent back.

        Templates of the models that want them back within one tool loop drop them themselves before a user's words;
        in the text form every result is a user's word, so they would never be seen.
        """
        return self.reasoning == "keep" or (self.reasoning == "loop" and self.native)

    def loosened(self) -> Form:
        """The form for after a server refused the schema, or gave an answer that does not keep to it: the same words,
        nothing that holds the model to them."""
        return self.model_copy(update={"way": "text"}) if self.way == "constrained" else self

    def fields(self, tools: Sequence[ToolSpec], *, demanded: bool = False) -> dict[str, Any]:
        """What a `ChatRequest` in this form has beside its messages and whose it is. A native call may be ``demanded``,
        where the tier's endpoints were seen to make one then (`Traits.forced`)."""
        told: dict[str, Any] = {"sampling": self.sampling, "template": self.template, "effort": self.effort}
        if self.temperature is not None:
            told["temperature"] = self.temperature
        if self.stop:
            told["stop"] = self.stop
        if self.way == "native":
            told["tools"] = tuple(tools)
            told |= {"tool_choice": "required"} if demanded else {}
        if self.way == "constrained":
            told["json_schema"] = schema(tools)
        return told


def choose(traits: Traits, manners: Mapping[str, Manners] | None = None) -> Form:
    """The form for a tier, from what its endpoints were seen to do, what the model's family wants and what is set.

    Calls are spoken natively where that works. Else the model is held to a schema where a server really does that,
    unless it thinks within its answer, which a schema would forbid it.
    """
    family, own = manners_of(traits.model, manners or {})
    way: Way = "native" if traits.native else "text"
    held = traits.structured and (not family.thinks or traits.reasoning or own.thinking is False)
    if way == "text" and held:
        way = "constrained"
    if own.speak is not None and (own.speak != "native" or traits.native):
        way = own.speak if own.speak != "constrained" or traits.structured else "text"
    template: dict[str, Any] = {}
    if own.thinking is not None and family.switch:
        template[family.switch] = own.thinking
    return Form(
        way=way,
        shape="object" if way == "constrained" else "fenced",
        family=family.name,
        temperature=own.temperature,
        sampling=Sampling.model_validate({name: getattr(own, name) for name in Sampling.model_fields}),
        stop=own.stop or (),
        template=template,
        effort=own.effort,
        reasoning=own.reasoning or "drop",
        strict_turns=bool(own.strict_turns),
    )
