"""Profiles about where KV lives: offloaded, shared between servers, handed from one to another, sparse. Pure."""

from __future__ import annotations

import json

from pool.errors import PoolConfigError
from pool.profiles.parts import FLEXKV, HOST_MEMORY, LMCACHE, MOONCAKE, NIXL, Made, Part, wants_gpu
from pool.profiles.pieces import Piece, Variable, Wish, flag, transfer

SIDE_CHANNEL = 5600
BOOTSTRAP = 8998


def offload(wish: Wish) -> Made:
    wants_gpu(wish, "offload")
    backend = wish.connector or "native"
    if backend not in {"native", "lmcache"}:
        raise PoolConfigError(f"profile offload knows the connectors native and lmcache, not {backend!r}")
    size = wish.host_memory or HOST_MEMORY
    pieces = [
        flag("--kv-offloading-size", f"{size:g}", why="GiB of host memory for KV that the GPU drops", must=True),
        flag("--kv-offloading-backend", backend, why="who keeps it", must=True),
    ]
    if backend == "native":
        return Made(parts=(Part(pieces=tuple(pieces)),))
    why = "LMCache's connector asks for the plain KV cache manager"
    pieces.append(flag("--disable-hybrid-kv-cache-manager", why=why, needs=(("connector", "LMCacheMPConnector"),)))
    return Made(parts=(Part(pieces=tuple(pieces)),), first=_lmcache_server(size), modules=(LMCACHE,))


def _lmcache_server(size: float) -> tuple[str, ...]:
    return (f"lmcache server --host localhost --port 5555 --l1-size-gb {size:g}",)


def _mooncake(size: float) -> str:
    """The store's settings for one host, as its connector's guide gives them."""
    told = {
        "mode": "embedded",
        "metadata_server": "P2PHANDSHAKE",
        "master_server_address": "127.0.0.1:50051",
        "global_segment_size": f"{size:g}GB",
        "local_buffer_size": "4GB",
        "protocol": "tcp",
        "device_name": "",
    }
    return json.dumps(told)


def shared_cache(wish: Wish) -> Made:
    wants_gpu(wish, "shared-cache")
    size = wish.host_memory or HOST_MEMORY
    kind = wish.connector or "lmcache"
    env: tuple[Variable, ...] = ()
    first: tuple[str, ...]
    if kind == "lmcache":
        extra = {"lmcache.mp.host": "tcp://localhost", "lmcache.mp.port": 5555}
        pieces: tuple[Piece, ...] = (
            transfer(
                "LMCacheMPConnector", "kv_both", "KV goes to and comes from one LMCache server of this host", **extra
            ),
            flag("--disable-hybrid-kv-cache-manager", why="LMCache's connector asks for the plain KV cache manager"),
        )
        first, module = _lmcache_server(size), LMCACHE
    elif kind == "mooncake":
        pieces = (transfer("MooncakeStoreConnector", "kv_both", "KV goes to and comes from Mooncake's store"),)
        module = MOONCAKE
        first = ("mooncake_master --port 50051", f"write {wish.run}/mooncake.json: {_mooncake(size)}")
        env = (Variable(name="MOONCAKE_CONFIG_PATH", value=f"{wish.run}/mooncake.json", why="where its store is"),)
    elif kind == "flexkv":
        pieces = (transfer("FlexKVConnectorV1", "kv_both", "KV goes to FlexKV's tiers of memory, disk and remote"),)
        first, module = ("configure FlexKV's tiers, as its own guide says",), FLEXKV
    else:
        raise PoolConfigError(f"profile shared-cache knows the connectors lmcache, mooncake and flexkv, not {kind!r}")
    return Made(parts=(Part(pieces=pieces, env=env),), first=first, modules=(module,), share_group=kind)


def prefill_decode(wish: Wish) -> Made:
    wants_gpu(wish, "prefill-decode")
    kind = wish.connector or "nixl"
    if kind == "nixl":
        connector, module, variable, port = "NixlConnector", NIXL, "VLLM_NIXL_SIDE_CHANNEL_PORT", SIDE_CHANNEL
    elif kind == "mooncake":
        connector, module = "MooncakeConnector", MOONCAKE
        variable, port = "VLLM_MOONCAKE_BOOTSTRAP_PORT", BOOTSTRAP
    else:
        raise PoolConfigError(f"profile prefill-decode knows the connectors nixl and mooncake, not {kind!r}")
    prefill = transfer(connector, "kv_producer", "this server makes the KV")
    decode = transfer(connector, "kv_consumer", "this server takes the KV")

    def hand(place: int) -> tuple[Variable, ...]:
        return (Variable(name=variable, value=str(port + place), why="where the two shake hands; a port for each"),)

    return Made(
        parts=(
            Part(role="prefill", pieces=(prefill,), env=hand(0)),
            Part(role="decode", port=1, pieces=(decode,), env=hand(1)),
        ),
        modules=(module,),
        notes=("the two servers need GPUs of their own: CUDA_VISIBLE_DEVICES, or --devices with `swarm pool up`",),
    )


def hisparse(wish: Wish) -> Made:
    wants_gpu(wish, "hisparse")
    if wish.gpu and wish.gpu.maker != "nvidia":
        raise PoolConfigError("profile hisparse runs on NVIDIA GPUs alone")
    if not wish.model.sparse:
        raise PoolConfigError(
            f"profile hisparse needs a model with DeepSeek's sparse attention (index_topk in its config.json); "
            f"{wish.model.name} has none"
        )
    why = "all KV lives in host memory; the GPU holds a small hot buffer for each request and what top-k picks"
    size = wish.host_memory or HOST_MEMORY
    notes = ("VLLM_USE_V2_MODEL_RUNNER=0, pipeline and decode context parallel do not go with it",)
    return Made(parts=(Part(pieces=(transfer("HiSparseConnector", "kv_both", why, host_pool_gib=size),)),), notes=notes)
