"""How the known model families want to be sampled and spoken to, as data. Where each value is from: docs/models.md.

Looked up by the name of the served model, for sampling and form alone: what a model can do is what its endpoint was
seen to do (OpenHands/OpenHands#14807). A name that tells nothing gives the neutral family, which leaves all to the
server. The parser that a server needs for a family's calls is advised by pool/profiles.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

from swarm.manners import Manners
from swarm.types import Frozen

THINK = "enable_thinking"


class Family(Frozen):
    """``match`` is searched in the model's name in lower case; the first family that is found counts.

    ``manners`` hold while the model thinks, or always; ``plain`` those that differ where it was told not to.
    ``switch`` is the key of the chat template that turns thinking on or off, empty where there is none; ``thinks``
    tells that it thinks by itself, so that nothing may hold the whole of its answer to a schema.
    """

    name: str
    match: str
    manners: Manners = Manners()
    plain: Manners = Manners()
    switch: str = ""
    thinks: bool = False


def _qwen(temperature: float, top_p: float, **more: Any) -> Manners:
    return Manners(temperature=temperature, top_p=top_p, top_k=20, min_p=0.0, reasoning="loop", **more)


_MISTRAL = Manners(temperature=0.15, strict_turns=True)

FAMILIES: tuple[Family, ...] = (
    Family(name="Qwen3-Coder-Next", match=r"qwen3-coder-next", manners=Manners(temperature=1.0, top_p=0.95, top_k=40)),
    Family(
        name="Qwen3-Coder",
        match=r"qwen3-coder",
        manners=Manners(temperature=0.7, top_p=0.8, top_k=20, repetition_penalty=1.05),
    ),
    Family(
        name="Qwen3.5",
        match=r"qwen-?3\.[5-9]",
        manners=_qwen(0.6, 0.95),
        plain=_qwen(0.7, 0.8),
        switch=THINK,
        thinks=True,
    ),
    Family(name="Qwen3-Thinking", match=r"qwen3-.*thinking", manners=_qwen(0.6, 0.95), thinks=True),
    Family(name="Qwen3-Instruct", match=r"qwen3-.*(?:instruct|2507)", manners=_qwen(0.7, 0.8)),
    Family(name="Qwen3", match=r"qwen-?3", manners=_qwen(0.6, 0.95), plain=_qwen(0.7, 0.8), switch=THINK, thinks=True),
    Family(name="QwQ", match=r"qwq", manners=Manners(temperature=0.6, top_p=0.95, reasoning="drop"), thinks=True),
    Family(name="Qwen2.5", match=r"qwen-?2\.5", manners=Manners(temperature=0.7, top_p=0.8, top_k=20)),
    Family(
        name="GLM-4.7",
        match=r"glm-?4\.7",
        manners=Manners(temperature=0.7, top_p=1.0, reasoning="loop"),
        switch=THINK,
        thinks=True,
    ),
    Family(
        name="GLM-4.6",
        match=r"glm-?(?:4\.6|5)",
        manners=Manners(temperature=1.0, top_p=0.95, reasoning="loop"),
        switch=THINK,
        thinks=True,
    ),
    Family(
        name="GLM-4.5",
        match=r"glm-?4\.5",
        manners=Manners(temperature=0.6, top_p=0.95, reasoning="loop"),
        switch=THINK,
        thinks=True,
    ),
    Family(
        name="gpt-oss", match=r"gpt-oss", manners=Manners(temperature=1.0, top_p=1.0, reasoning="loop"), thinks=True
    ),
    Family(
        name="DeepSeek-R1",
        match=r"deepseek-r1|r1-distill",
        manners=Manners(temperature=0.6, top_p=0.95, reasoning="drop"),
        thinks=True,
    ),
    Family(
        name="DeepSeek-V3.2",
        match=r"deepseek-v3\.2",
        manners=Manners(temperature=1.0, top_p=0.95, reasoning="loop"),
        switch="thinking",
    ),
    Family(
        name="DeepSeek-V3.1",
        match=r"deepseek-v3\.1",
        manners=Manners(temperature=0.6, top_p=0.95, reasoning="drop"),
        switch="thinking",
    ),
    Family(name="DeepSeek-V3", match=r"deepseek-v3", manners=Manners(temperature=0.3)),
    Family(
        name="Magistral",
        match=r"magistral",
        manners=Manners(temperature=0.7, top_p=0.95, reasoning="drop", strict_turns=True),
        thinks=True,
    ),
    Family(name="Mistral", match=r"devstral|mistral|ministral|codestral|mixtral", manners=_MISTRAL),
    Family(name="Llama 4", match=r"llama-?4", manners=Manners(temperature=0.6, top_p=0.9)),
    Family(name="Llama 3", match=r"llama-?3", manners=Manners(temperature=0.6, top_p=0.9)),
    Family(name="Gemma 4", match=r"gemma-?4", manners=Manners(temperature=1.0, top_p=0.95, top_k=64), switch=THINK),
    Family(
        name="Gemma 3",
        match=r"gemma-?3",
        manners=Manners(temperature=1.0, top_p=0.95, top_k=64, min_p=0.0, strict_turns=True),
    ),
    Family(
        name="Phi-4-reasoning",
        match=r"phi-?4.*reasoning",
        manners=Manners(temperature=0.8, top_p=0.95, top_k=50),
        thinks=True,
    ),
    Family(name="Phi-4", match=r"phi-?4"),
    Family(name="SmolLM3", match=r"smollm-?3", manners=Manners(temperature=0.6, top_p=0.95), switch=THINK, thinks=True),
    Family(name="SmolLM2", match=r"smollm-?2", manners=Manners(temperature=0.2, top_p=0.9)),
    Family(name="Granite", match=r"granite", manners=Manners(temperature=0.0)),
    Family(
        name="Kimi-K2-Thinking",
        match=r"kimi-?k2-thinking",
        manners=Manners(temperature=1.0, reasoning="loop"),
        thinks=True,
    ),
    Family(
        name="Kimi-K2.5",
        match=r"kimi-?k2\.[5-9]",
        manners=Manners(temperature=1.0, top_p=0.95, reasoning="loop"),
        thinks=True,
    ),
    Family(name="Kimi-K2", match=r"kimi-?k2", manners=Manners(temperature=0.6)),
    Family(
        name="MiniMax-M2",
        match=r"minimax-?m2",
        manners=Manners(temperature=1.0, top_p=0.95, top_k=40, reasoning="keep"),
        thinks=True,
    ),
)
NEUTRAL = Family(name="neutral", match=r"(?!)")


def family_of(model: str) -> Family:
    """The family that a served model's name tells of; the neutral one where it tells of none."""
    name = re.sub(r"[_\s]+", "-", model.lower())
    return next((family for family in FAMILIES if re.search(family.match, name)), NEUTRAL)


def manners_of(model: str, set_: Mapping[str, Manners]) -> tuple[Family, Manners]:
    """The family of a model, and its manners with what is set for the model laid over them.

    Of several patterns that fit the longest counts, an exact name before all.
    """
    family = family_of(model)
    name = model.lower()
    fitting = [
        key for key in set_ if fnmatchcase(name, key.lower()) or fnmatchcase(name.rpartition("/")[2], key.lower())
    ]
    own = set_[max(fitting, key=lambda key: (key.lower() == name, len(key)))] if fitting else Manners()
    base = family.manners
    if own.thinking is False and family.switch:
        base = laid_over(base, family.plain)
    return family, laid_over(base, own)


def laid_over(base: Manners, over: Manners) -> Manners:
    """The first with all that the second says in place of its own."""
    return base.model_copy(update={key: value for key, value in over if value is not None})
