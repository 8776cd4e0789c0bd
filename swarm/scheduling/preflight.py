"""What has to be right before anything is spent: of the machinery, for which tasks wait, and of the request. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from swarm.scheduling.facts import Hold


@dataclass(frozen=True)
class Disk:
    """A folder on a disk and the bytes that are free there; None where that cannot be told."""

    folder: str
    free: int | None


@dataclass(frozen=True)
class Server:
    """A model server as the pool sees it: ``window`` in tokens, where it is known."""

    name: str
    tier: str
    up: bool
    window: int | None = None
    detail: str = ""


def disks(found: Sequence[Disk], floor: int) -> tuple[Hold, ...]:
    """Nothing starts while a disk is nearly full: a sandbox or the database would break in the middle of the work."""
    return tuple(
        Hold("fleet", f"waits for disk space: {one.folder} has {_size(one.free)} free; {_size(floor)} are to stay free")
        for one in found
        if one.free is not None and one.free < floor
    )


def tiers(servers: Sequence[Server], wanted: Sequence[str], least: int) -> tuple[Hold, ...]:
    """A tier's tasks wait while none of its servers is up, or none has a window of ``least`` tokens.

    Tiers of which no server is known are left alone: they stand for others, which answer for them.
    """
    by_tier: dict[str, list[Server]] = {}
    for one in servers:
        by_tier.setdefault(one.tier, []).append(one)
    return tuple(Hold(f"tier:{tier}", why) for tier in wanted if (why := _tier(tier, by_tier.get(tier, []), least)))


def images(missing: Mapping[str, str]) -> tuple[Hold, ...]:
    """A repository's tasks wait while its image is not there. ``missing`` are the reasons, by repository."""
    return tuple(Hold(f"repository:{name}", f"waits for its image: {why}") for name, why in missing.items())


def broker(trouble: str) -> tuple[Hold, ...]:
    """Nothing begins while the broker does not answer: no base could be had. What had begun has one, and goes on."""
    return (Hold("fleet", f"waits for the broker: {trouble}", fresh=True),) if trouble else ()


def _tier(tier: str, servers: Sequence[Server], least: int) -> str:
    if not servers:
        return ""
    up = [one for one in servers if one.up]
    if not up:
        told = "; ".join(f"{one.name}: {one.detail or 'down'}" for one in servers[:3])
        return f'waits for a model server of tier "{tier}": none is up ({told})'
    known = [one for one in up if one.window is not None]
    if len(known) == len(up) and all((one.window or 0) < least for one in known):
        return f'waits for a model server of tier "{tier}" with a window of {least} tokens: the largest has ' + str(
            max(one.window or 0 for one in known)
        )
    return ""


def _size(count: int | None) -> str:
    return f"{(count or 0) / 2**30:.1f} GiB"
