"""What may be set for a model: how its tokens are drawn, how it is spoken to, what becomes of its thoughts. Data."""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict, Field

from pool.types import Effort
from swarm.types import Frozen


class Manners(Frozen):
    """One [models.NAME] of the settings; NAME is that of a served model or a pattern with * and ?.

    What is left out is as the model's family has it, see docs/models.md, or as the server does.
    """

    model_config = ConfigDict(allow_inf_nan=False)

    temperature: float | None = Field(default=None, ge=0, le=5, description="temperature of the agent's answers")
    top_p: float | None = Field(default=None, gt=0, le=1, description="share of the probability that tokens come from")
    top_k: int | None = Field(default=None, ge=1, description="number of the likeliest tokens that are drawn from")
    min_p: float | None = Field(default=None, ge=0, le=1, description="least probability, as a share of the best")
    repetition_penalty: float | None = Field(default=None, gt=0, le=3, description="penalty on tokens said before")
    presence_penalty: float | None = Field(
        default=None, ge=-2, le=2, description="penalty on tokens said in the answer"
    )
    stop: tuple[str, ...] | None = Field(default=None, max_length=8, description="texts at which an answer ends")
    thinking: bool | None = Field(
        default=None, description="whether it is told to think, where its template has a switch for that"
    )
    effort: Effort | None = Field(default=None, description="how much it is to think, where it knows degrees of that")
    reasoning: Literal["drop", "loop", "keep"] | None = Field(
        default=None, description="whether its thoughts are sent back: never, with native tool calls, or always"
    )
    speak: Literal["native", "text", "constrained"] | None = Field(
        default=None, description="how tools are called; default: by what the tier's endpoints were seen to do"
    )
    strict_turns: bool | None = Field(
        default=None, description="whether its template refuses two turns of a kind in a row, as Mistral's does"
    )
