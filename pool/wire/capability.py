"""What one endpoint was found to be able to do, and the flag that would enable what it lacks; pure."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import get_args

from pydantic import Field

from pool.types import Capability, Card, Frozen, Served, ServerKind, Trait, Verdict

CAPABILITIES: tuple[Capability, ...] = get_args(Capability)

# vLLM: its command line reference; llama.cpp: the README of its server.
MENDS: dict[ServerKind, dict[Capability, str]] = {
    "vllm": {
        "tools": "--enable-auto-tool-choice --tool-call-parser NAME (the parser of this model's family)",
        "forced_tools": "--tool-call-parser NAME (the parser of this model's family)",
        "reasoning": "--reasoning-parser NAME (the parser of this model's family)",
        "json_schema": '--structured-outputs-config \'{"backend":"xgrammar","disable_any_whitespace":true}\'',
        "stream_usage": "--enable-force-include-usage",
        "cached_tokens": "--enable-prompt-tokens-details (and not --no-enable-prefix-caching)",
        "priority": "--scheduling-policy priority",
        "logprobs": "--max-logprobs 20",
    },
    "llamacpp": {
        "tools": "--jinja, with a chat template that knows tools (--chat-template-file FILE)",
        "forced_tools": "--jinja, with a chat template that knows tools (--chat-template-file FILE)",
        "reasoning": "--jinja --reasoning-format deepseek",
        "json_schema": "a newer llama-server",
        "stream_usage": "a newer llama-server",
        "cached_tokens": "a newer llama-server (and not --no-cache-prompt)",
        "priority": "serve the model with vLLM and --scheduling-policy priority",
        "logprobs": "a newer llama-server",
    },
    "other": {
        "tools": "serve the model with vLLM, --enable-auto-tool-choice and --tool-call-parser NAME",
        "forced_tools": "serve the model with vLLM and --tool-call-parser NAME",
        "reasoning": "serve the model with vLLM and --reasoning-parser NAME",
        "json_schema": "serve the model with vLLM or llama.cpp",
        "stream_usage": "serve the model with vLLM or llama.cpp",
        "cached_tokens": "serve the model with vLLM and --enable-prompt-tokens-details",
        "priority": "serve the model with vLLM and --scheduling-policy priority",
        "logprobs": "serve the model with vLLM or llama.cpp",
    },
}


class Record(Frozen):
    """Everything that discovery and the canaries told of one endpoint. None means that it did not say.

    ``families`` are the names of its metrics. ``block_tokens`` and ``kv_tokens`` size its KV cache, ``slots`` is the
    most samples of one request that llama.cpp decodes, ``on_cpu`` tells a vLLM whose engine has no accelerator,
    ``events`` that it publishes KV events, ``routes`` which of its optional routes answer.
    """

    kind: ServerKind
    model: str
    version: str | None = None
    window: int | None = None
    cards: tuple[Card, ...] = ()
    slots: int | None = None
    block_tokens: int | None = None
    kv_tokens: int | None = None
    families: frozenset[str] = frozenset()
    routes: frozenset[str] = frozenset()
    on_cpu: bool | None = None
    events: bool | None = None
    prefix_caching: bool | None = None
    traits: dict[Capability, Trait] = Field(default_factory=dict)

    @classmethod
    def of(cls, served: Served) -> Record:
        """A record of what a list of models told, with nothing tried."""
        return cls(
            kind=served.kind,
            model=served.model,
            version=served.version,
            window=served.window,
            cards=served.cards,
            slots=served.slots,
        )

    def verdict(self, capability: Capability) -> Verdict:
        """What is known of one capability."""
        trait = self.traits.get(capability)
        return trait.verdict if trait else "unknown"

    @property
    def able(self) -> frozenset[str]:
        """The capabilities that were seen to work, or that the operator vouches for."""
        return frozenset(name for name, trait in self.traits.items() if trait.verdict == "yes")

    def older_than(self, *version: int) -> bool:
        """Whether this is a vLLM known to be older; one that hides its version counts as new."""
        told = numbers(self.version)
        return self.kind == "vllm" and bool(told) and told < version


@lru_cache(maxsize=256)  # every request asks for it
def numbers(version: str | None) -> tuple[int, ...]:
    """The leading numbers of a version, three at most: "0.32.1rc2+cpu" gives (0, 32, 1)."""
    head = re.match(r"v?(\d+(?:\.\d+){0,2})", version or "")
    return tuple(int(part) for part in head[1].split(".")) if head else ()


def trait(kind: ServerKind, capability: Capability, verdict: Verdict, evidence: str) -> Trait:
    """A finding, with the mend where something is missing."""
    return Trait(verdict=verdict, evidence=evidence, mend="" if verdict == "yes" else mend(kind, capability))


def mend(kind: ServerKind, capability: Capability) -> str:
    """The flag (or else) that would enable a capability on a server of this kind."""
    return MENDS[kind][capability]
