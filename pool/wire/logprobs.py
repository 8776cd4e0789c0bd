"""Asks for and reads the log-probabilities of an answer's tokens, in every shape that servers use; pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

CHAT = {"logprobs": True, "top_logprobs": 2}
COMPLETION = {"logprobs": 2}


@dataclass(frozen=True, slots=True)
class Likely:
    """The tokens of an answer, or of a piece of one: text, logprob and margin to the next likely one, in nats."""

    tokens: tuple[str, ...] = ()
    logprobs: tuple[float, ...] = ()
    margins: tuple[float, ...] = ()

    def fields(self) -> dict[str, Any]:
        """The fields of a Choice. Margins are told for all tokens or not at all."""
        margins = self.margins if len(self.margins) == len(self.logprobs) else ()
        return {"tokens": self.tokens, "logprobs": self.logprobs, "margins": margins}


def joined(pieces: Iterable[Likely]) -> Likely:
    """The pieces of one answer as a whole."""
    parts = list(pieces)
    return Likely(
        tuple(token for part in parts for token in part.tokens),
        tuple(logprob for part in parts for logprob in part.logprobs),
        tuple(margin for part in parts for margin in part.margins),
    )


def read_logprobs(told: Any) -> Likely:
    """The tokens in a choice's ``logprobs``: a list of entries (chat, and llama.cpp throughout) or the parallel lists
    of OpenAI's completions. Empty where nothing was told. Raises ValueError, TypeError or KeyError for other shapes."""
    if told is None:
        return Likely()
    body = told if isinstance(told, dict) else told.model_dump()
    if (entries := body.get("content")) is not None:
        return _entries(entries)
    rows = list(zip(body.get("tokens") or (), body.get("token_logprobs") or (), strict=True))
    tops = [sorted((top or {}).values(), reverse=True) for top in body.get("top_logprobs") or ()]
    known = [index for index, (_, logprob) in enumerate(rows) if logprob is not None]
    return Likely(
        tuple(str(rows[index][0]) for index in known),
        tuple(float(rows[index][1]) for index in known),
        tuple(tops[index][0] - tops[index][1] for index in known if index < len(tops) and len(tops[index]) > 1),
    )


def _entries(entries: list[dict[str, Any]]) -> Likely:
    tops = [sorted((top["logprob"] for top in entry.get("top_logprobs") or ()), reverse=True) for entry in entries]
    return Likely(
        tuple(str(entry["token"]) for entry in entries),
        tuple(float(entry["logprob"]) for entry in entries),
        tuple(float(top[0] - top[1]) for top in tops if len(top) > 1),
    )
