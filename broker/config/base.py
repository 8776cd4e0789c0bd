"""What all settings are made of."""

from __future__ import annotations

import types
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field

Bytes = Annotated[int, Field(ge=1, le=1 << 32)]
Reaction = Literal["block", "ask", "warn", "allow"]
"""What a finding leads to: refusal, a wait for a person, a line in the pull request, or nothing."""


class Settings(BaseModel):
    """Base of all settings: immutable, unknown keys refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def model_in(annotation: Any) -> type[BaseModel] | None:
    """The table that a key stands for; None for a plain value."""
    candidates = [annotation]
    if get_origin(annotation) in (dict, Union, types.UnionType, Annotated):
        candidates = list(get_args(annotation))
    return next((one for one in candidates if isinstance(one, type) and issubclass(one, BaseModel)), None)
