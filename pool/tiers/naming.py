"""Which names a request may ask for, and which settings of tiers cannot work together; pure."""

from __future__ import annotations

from collections.abc import Iterator

from pool.config import AUTO, PoolConfig, VirtualConfig

CASCADE = 2  # tiers that a cascade needs at least
DRAFTS = 2  # that a fusion merges at least


def misfits(config: PoolConfig) -> tuple[tuple[str, str], ...]:
    """What is wrong with the tiers' settings: the setting's name below `pool`, and what to mend."""
    served = config.tiers
    return (*_names(config, served), *_order(config, served), *_virtual(config, served))


def _names(config: PoolConfig, served: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    if AUTO in served:
        yield "endpoints", f'the tier "{AUTO}" is the one that a policy chooses; give this tier another name'
    for name in config.virtual:
        if name == AUTO:
            mend = "give the virtual model another name"
            yield f"virtual.{name}", f'"{AUTO}" is asked for the tier that a policy chooses; {mend}'
        elif name in served:
            yield f"virtual.{name}", f'"{name}" is the name of a tier; give the virtual model one of its own'


def _order(config: PoolConfig, served: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    if config.tier_order:
        wrong = [tier for tier in config.tier_order if tier not in served]
        left_out = [tier for tier in served if tier not in config.tier_order]
        if wrong:
            yield "tier_order", _unserved(wrong, served)
        if left_out:
            yield "tier_order", f"leaves out {_listed(left_out)}; name every tier once, the weakest first"
        if len(set(config.tier_order)) < len(config.tier_order):
            yield "tier_order", "names a tier twice; name every tier once, the weakest first"
    wrong = [tier for tier in config.auto.tiers if tier not in served]
    if wrong:
        yield "auto.tiers", _unserved(wrong, served)


def _virtual(config: PoolConfig, served: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    for name, model in config.virtual.items():
        parts = (*model.tiers, *((model.judge,) if model.judge else ()))
        if wrong := [tier for tier in dict.fromkeys(parts) if tier not in served]:
            yield f"virtual.{name}", _unserved(wrong, served)
        if model.kind == "confidence" and len(set(model.tiers)) < CASCADE:
            yield f"virtual.{name}.tiers", "a cascade needs two tiers or more, the weakest first"
        if model.kind == "fuse" and len(model.tiers) < DRAFTS:
            yield f"virtual.{name}.tiers", "there is nothing to merge in one draft; name two tiers or more"
        if model.kind == "draft-verify" and judge_of(model) == model.tiers[0]:
            yield f"virtual.{name}.judge", "the judge must be another tier than the one that drafts"


def judge_of(model: VirtualConfig) -> str:
    """The tier that decides, merges or verifies."""
    return model.judge or model.tiers[-1]


def _unserved(wrong: list[str], served: tuple[str, ...]) -> str:
    return f"no endpoint serves {_listed(wrong)}; served are: {', '.join(served) or 'none'}"


def _listed(names: list[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)
