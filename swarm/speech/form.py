"""How a conversation speaks to its model, chosen once and journaled with its opening. Frozen data.

A replay and a resumption take the form from the journal, so that they ask and read as the conversation did, whatever
the data of the families or the settings have become since.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from pool.types import Effort, Frozen, Sampling

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
