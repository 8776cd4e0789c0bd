"""How a conversation speaks to its model, chosen once and journaled with its opening. Frozen data."""

from __future__ import annotations

from typing import Literal

from pool.types import Frozen

Way = Literal["native", "text", "constrained"]
"""Native tool calls, calls as text, or calls as JSON to whose schema the server holds the model."""


class Form(Frozen):
    """How calls are spoken."""

    way: Way = "text"

    @property
    def native(self) -> bool:
        """Whether tools are offered in the request and results come back as messages of a tool."""
        return self.way == "native"
