"""Draws a sweep for a terminal. The library is an extra; without it the figures are there and the drawing is not."""

from __future__ import annotations

from collections.abc import Sequence

from pool.bench.verdict import Level
from pool.errors import PoolConfigError

MISSING = "needs {} (from the checkout: pip install '.[bench]')"


def terminal(levels: Sequence[Level], width: int = 76, height: int = 16) -> str:
    """Tokens a second, and p50 and p99 of the first token, by concurrency. Raises PoolConfigError without plotext."""
    try:
        import plotext  # noqa: PLC0415  an extra; its absence is told in words
    except ImportError:
        raise PoolConfigError("a drawing in the terminal " + MISSING.format("plotext")) from None
    at = [level.concurrency for level in levels]
    drawings = []
    for title, lines in _charts(levels):
        figure = plotext.figure
        figure.clear()
        figure.plot_size(width, height)
        figure.title(title)
        figure.label("at once")
        figure.ruler("x").ticks(at)
        for (name, values), marker in zip(lines, ("\u2022", "x"), strict=False):
            known = [(x, y) for x, y in zip(at, values, strict=True) if y is not None]
            if known:
                figure.draw(figure.signal(*zip(*known, strict=True), marker=marker).lines().label(name))
        drawings.append(str(plotext.uncolorize(str(figure.build()))))
    return "\n".join(drawings)


def _charts(levels: Sequence[Level]) -> list[tuple[str, list[tuple[str, list[float | None]]]]]:
    return [
        ("output tokens a second", [("tokens/s", [level.summary.tokens_per_second for level in levels])]),
        (
            "seconds to the first token",
            [
                ("p50", [level.summary.ttft.p50 for level in levels]),
                ("p99", [level.summary.ttft.p99 for level in levels]),
            ],
        ),
    ]
