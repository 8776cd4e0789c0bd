"""Accelerators that a plan may name: memory, bandwidth and what they compute in. Makers' data sheets; pure data."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from pool.errors import PoolConfigError
from pool.types import Frozen

GIB = 1 << 30


class Gpu(Frozen):
    """One accelerator. ``memory`` is what the driver shows, in GiB; ``bandwidth`` is GB/s; None means unknown.

    ``capability`` is CUDA's compute capability, 0 for others. ``fp8``: it multiplies 8-bit floats, ``mxfp4``:
    4-bit ones; without, such weights are read packed and computed in 16 bit. ``linked``: GPUs of a host see one another
    over NVLink or its like rather than PCIe, which is what tensor parallelism asks for.
    """

    name: str
    memory: float
    bandwidth: float | None
    capability: float
    fp8: bool
    mxfp4: bool = False
    linked: bool = False
    maker: str = "nvidia"


_ALL = (
    Gpu(name="h100", memory=79.6, bandwidth=3350, capability=9.0, fp8=True, linked=True),
    Gpu(name="h100-pcie", memory=79.6, bandwidth=2039, capability=9.0, fp8=True),
    Gpu(name="h200", memory=140.4, bandwidth=4800, capability=9.0, fp8=True, linked=True),
    Gpu(name="b200", memory=179.1, bandwidth=7700, capability=10.0, fp8=True, mxfp4=True, linked=True),
    Gpu(name="a100-40", memory=40.0, bandwidth=1555, capability=8.0, fp8=False, linked=True),
    Gpu(name="a100-80", memory=80.0, bandwidth=2039, capability=8.0, fp8=False, linked=True),
    Gpu(name="l40s", memory=45.0, bandwidth=864, capability=8.9, fp8=True),
    Gpu(name="l4", memory=22.5, bandwidth=300, capability=8.9, fp8=True),
    Gpu(name="a10g", memory=22.5, bandwidth=600, capability=8.6, fp8=False),
    Gpu(name="rtx3090", memory=24.0, bandwidth=936, capability=8.6, fp8=False),
    Gpu(name="rtx4090", memory=24.0, bandwidth=1008, capability=8.9, fp8=True),
    Gpu(name="rtx5090", memory=31.8, bandwidth=1792, capability=12.0, fp8=True, mxfp4=True),
    Gpu(name="rtx6000-ada", memory=48.0, bandwidth=960, capability=8.9, fp8=True),
    Gpu(name="rtx6000-pro", memory=95.6, bandwidth=1792, capability=12.0, fp8=True, mxfp4=True),
    Gpu(name="mi300x", memory=192.0, bandwidth=5300, capability=0, fp8=True, linked=True, maker="amd"),
    Gpu(name="cpu", memory=0, bandwidth=None, capability=0, fp8=False, maker="cpu"),
)
GPUS: Mapping[str, Gpu] = MappingProxyType({gpu.name: gpu for gpu in _ALL})

_OTHER_NAMES = {
    "a100": "a100-80", "h100-sxm": "h100", "rtx-3090": "rtx3090", "rtx-4090": "rtx4090", "rtx-5090": "rtx5090",
    "3090": "rtx3090", "4090": "rtx4090", "5090": "rtx5090", "rtx-6000-ada": "rtx6000-ada", "a10": "a10g",
    "rtx-pro-6000": "rtx6000-pro", "rtx-6000-pro": "rtx6000-pro",
}  # fmt: skip


def gpu(name: str) -> Gpu:
    """The accelerator of that name, however it is written. Raises PoolConfigError naming all that are known."""
    key = name.strip().lower().replace("_", "-").replace(" ", "-")
    found = GPUS.get(_OTHER_NAMES.get(key, key))
    if found is None:
        raise PoolConfigError(f"no such GPU is known: {name!r} (known: {', '.join(GPUS)})")
    return found
