"""Draws a sweep or a replay into a PNG file. matplotlib is an extra, and is loaded when a picture is asked for."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pool.bench.drawing import MISSING
from pool.bench.replay import Replayed
from pool.bench.verdict import Level, Verdict
from pool.errors import PoolConfigError


def ready(path: Path) -> None:
    """Raises PoolConfigError where a picture could not be drawn or kept there, which is better told before a bench."""
    if find_spec("matplotlib") is None:
        raise PoolConfigError("a PNG " + MISSING.format("matplotlib"))
    if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise PoolConfigError(f"{path} cannot be written; name a file in a folder of yours with --png")


def of_sweep(path: Path, name: str, levels: Sequence[Level], verdict: Verdict) -> None:
    """Three charts by concurrency: rate, first token, gaps. Raises PoolConfigError where it cannot be drawn or kept."""
    figure = _figure()
    at = [level.concurrency for level in levels]
    rate, first, gaps = figure.subplots(1, 3)
    rate.plot(at, [level.summary.tokens_per_second for level in levels], marker="o")
    rate.set(title="output tokens a second", xlabel="at once", ylim=(0, None), xticks=at)
    if verdict.since is not None:
        rate.axvline(verdict.since, linestyle=":", color="grey")
    for axis, title, field in ((first, "first token, s", "ttft"), (gaps, "between tokens, s", "itl")):
        for point in ("p50", "p90", "p99"):
            values = [getattr(getattr(level.summary, field), point) for level in levels]
            axis.plot(at, [float("nan") if v is None else v for v in values], marker="o", label=point)
        axis.set(title=title, xlabel="at once", ylim=(0, None), xticks=at)
        axis.legend()
    figure.suptitle(f"{name}: {verdict.flat}")
    _save(figure, path)


def of_replay(path: Path, name: str, replayed: Replayed) -> None:
    """The percentiles of first token and end as bars. Raises PoolConfigError as `of_sweep` does."""
    figure = _figure()
    for axis, title, field in zip(
        figure.subplots(1, 2), ("first token, s", "whole answer, s"), ("ttft", "e2e"), strict=True
    ):
        told = getattr(replayed.summary, field)
        known = {point: value for point in ("p50", "p90", "p95", "p99") if (value := getattr(told, point)) is not None}
        axis.bar(list(known), list(known.values()))
        axis.set(title=title)
    lost = f", {replayed.summary.lost} lost" if replayed.summary.lost else ""
    figure.suptitle(f"{name}: {replayed.summary.tokens_per_second:.1f} tokens/s{lost}")
    _save(figure, path)


def _figure() -> Any:
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415  an extra, and a second to load
    except ImportError:
        raise PoolConfigError("a PNG " + MISSING.format("matplotlib")) from None
    return Figure(figsize=(12, 4), layout="constrained")


def _save(figure: Any, path: Path) -> None:
    try:
        figure.savefig(path, format="png", dpi=120)
    except OSError as error:
        raise PoolConfigError(f"{path} cannot be written: {error}") from None
