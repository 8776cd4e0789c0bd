"""What all settings are made of."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Bytes = Annotated[int, Field(ge=1, le=1 << 32)]
Reaction = Literal["block", "ask", "warn", "allow"]
"""What a finding leads to: refusal, a wait for a person, a line in the pull request, or nothing."""


class Settings(BaseModel):
    """Base of all settings: immutable, unknown keys refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")
