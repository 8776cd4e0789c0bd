"""The profiles by name: what each is for, and what makes it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from pool.errors import PoolConfigError
from pool.profiles.engine import afd, agents, cpu, layerwise, long_context, small_gpu, speculative
from pool.profiles.kv import hisparse, offload, prefill_decode, shared_cache
from pool.profiles.parts import Made
from pool.profiles.pieces import Wish
from pool.types import Frozen


class Profile(Frozen):
    """A named recipe."""

    name: str
    about: str
    make: Callable[[Wish], Made]


_ALL = (
    (
        "agents",
        "a server of coding agents: prefix cache, tool calls, priorities, bounded queue, everything told",
        agents,
    ),
    ("long-context", "the whole window: long prompts in pieces, KV spread over the GPUs", long_context),
    ("offload", "KV that the GPU drops stays in host memory (--connector native or lmcache)", offload),
    ("shared-cache", "servers of one host share KV (--connector lmcache, mooncake or flexkv)", shared_cache),
    ("prefill-decode", "one server reads prompts, one writes answers (--connector nixl or mooncake)", prefill_decode),
    (
        "speculative",
        "several tokens a step: n-grams of the prompt, or --draft-model with an EAGLE-3 head",
        speculative,
    ),
    ("cpu", "a small model without a GPU", cpu),
    ("small-gpu", "a card of 8 to 24 GiB", small_gpu),
    ("hisparse", "sparse-attention models with all KV in host memory", hisparse),
    ("afd", "attention and experts on different GPUs, with vLLM's AFD plugin", afd),
    ("layerwise", "weights, or with --connector lmcache KV, moved layer by layer", layerwise),
)
PROFILES: Mapping[str, Profile] = MappingProxyType({name: Profile(name=name, about=a, make=m) for name, a, m in _ALL})


def profile(name: str) -> Profile:
    """The profile of that name. Raises PoolConfigError naming all."""
    if name not in PROFILES:
        raise PoolConfigError(f"no such profile: {name!r} (there are: {', '.join(PROFILES)})")
    return PROFILES[name]
