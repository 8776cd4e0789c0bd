"""What a profile is made of: its servers, and what must be there before them. Pure data."""

from __future__ import annotations

from typing import Literal

from pool.errors import PoolConfigError
from pool.profiles.pieces import Piece, Variable, Wish
from pool.types import Frozen

Role = Literal["both", "prefill", "decode", "ffn"]
HOST_MEMORY = 32.0
"""GiB of host memory where a profile takes some and nothing was said."""


LMCACHE = ("lmcache", "pip install lmcache")
MOONCAKE = ("mooncake", "pip install mooncake-transfer-engine")
NIXL = ("nixl", "pip install nixl")
FLEXKV = ("flexkv", "install it from its sources, github.com/taco-project/FlexKV")
AFD = ("afd_plugin", "install vllm-afd-plugin from its sources, github.com/vllm-project/afd-plugin")


class Part(Frozen):
    """One server of a profile, beyond what every server has. ``port`` counts from the recipe's own."""

    role: Role = "both"
    port: int = 0
    pieces: tuple[Piece, ...] = ()
    env: tuple[Variable, ...] = ()


class Made(Frozen):
    """What a profile makes of a wish. ``first`` are programs to start and packages to install beforehand.

    ``modules`` are what vLLM's Python must have, each with how to get it. ``only`` is the one release that it runs on,
    where there is but one.
    """

    parts: tuple[Part, ...]
    first: tuple[str, ...] = ()
    modules: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()
    only: str | None = None
    share_group: str | None = None


def wants_gpu(wish: Wish, profile: str) -> None:
    """Raises PoolConfigError where the wish is for a CPU."""
    if wish.gpu is not None and wish.gpu.maker == "cpu":
        raise PoolConfigError(f"profile {profile} needs a GPU; on a CPU take profile cpu")
