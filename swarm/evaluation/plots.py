"""Draws a report's plots as SVG by matplotlib, the same bytes for the same report. No words of a case or a model are in
them, and nothing in them is asked of the network."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from swarm.evaluation.report import Report
from swarm.evaluation.results import Split, Try

_INK = "#010203"  # stands for the page's own colour of text, light or dark
_WAYS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#bbbbbb")  # Tol's bright scheme
_SPLIT = ("#bbbbbb", "#ccbb44", "#66ccee", "#4477aa", "#228833", "#999933", "#aa3377")
_OUTCOMES = {"solved": "#228833", "unsolved": "#ee6677", "broken": "#ccbb44", "": "none"}
_STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "agent-swarm",
    "text.parse_math": False,
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), _INK),
}
_METADATA: dict[str, None] = dict.fromkeys(("Date", "Creator", "Format", "Type"))


def plots(report: Report) -> tuple[tuple[str, str], ...]:
    """Title and SVG of each plot for which there is something to draw."""
    made: tuple[tuple[str, Callable[[Figure, Report], None]], ...] = (
        ("Solved, with 95 % intervals", _solved),
        ("Solved within so many tokens a try", _tokens),
        ("Where the time of a try went", _split),
        ("Case by case", _grid),
    )
    if not report.scores:
        return ()
    return tuple((title, _svg(draw, report)) for title, draw in made if draw is not _tokens or _spent(report))


def _svg(draw: Callable[[Figure, Report], None], report: Report) -> str:
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(7.2, 0.9 + 0.42 * max(3, len(report.scores))), layout="constrained")
        figure.patch.set_alpha(0)
        draw(figure, report)
        for axis in figure.axes:
            axis.patch.set_alpha(0)
        out = io.StringIO()
        figure.savefig(out, format="svg", metadata=_METADATA)
    text = out.getvalue()
    return text[text.index("<svg") :].replace(_INK, "currentColor")


def _solved(figure: Figure, report: Report) -> None:
    axis = figure.subplots()
    names = [f"{score.name} ({score.solved} of {score.tries})" for score in report.scores]
    shares = [100 * (score.share or 0.0) for score in report.scores]
    axis.barh(names, shares, color=_colours(len(names)), height=0.6)
    for place, score in enumerate(report.scores):
        low, high = score.interval
        if low is not None and high is not None:
            axis.plot([100 * low, 100 * high], [place, place], color=_INK, linewidth=1.5, marker="|", markersize=8)
    axis.set(xlim=(0, 100), xlabel="% of tries")
    axis.invert_yaxis()


def _tokens(figure: Figure, report: Report) -> None:
    axis = figure.subplots()
    most = max(row.tokens for row in report.tries)
    for score, colour in zip(report.scores, _colours(len(report.scores)), strict=True):
        own = [row for row in _of(report.tries, score.strategy, score.tier) if row.outcome != "broken"]
        took = sorted(row.tokens for row in own if row.outcome == "solved")
        if own:
            heights = [100 * place / len(own) for place in range(len(took) + 1)]
            axis.step([0, *took, most], [*heights, heights[-1]], where="post", color=colour, label=score.name)
    axis.set(xlabel="tokens read and written in a try", ylabel="% solved", ylim=(0, 100), xlim=(0, None))
    axis.legend(frameon=False)


def _split(figure: Figure, report: Report) -> None:
    axis = figure.subplots()
    names = [score.name for score in report.scores]
    begin = [0.0] * len(names)
    for part, colour in zip(Split.model_fields, _SPLIT, strict=True):
        widths = [getattr(score.seconds, part) / max(1, score.tries) for score in report.scores]
        axis.barh(names, widths, left=begin, color=colour, label=part, height=0.6)
        begin = [start + width for start, width in zip(begin, widths, strict=True)]
    axis.set(xlabel="seconds a try")
    axis.invert_yaxis()
    axis.legend(frameon=False, ncols=4, loc="upper center", bbox_to_anchor=(0.5, -0.32))


def _grid(figure: Figure, report: Report) -> None:
    """One column a case, one row a way; a case that was tried several times takes the colour of its best try."""
    axis = figure.subplots()
    cases = list(dict.fromkeys(row.case for row in report.tries))
    for place, score in enumerate(report.scores):
        best = {row.case: row.outcome for row in _by_worth(_of(report.tries, score.strategy, score.tier))}
        for outcome, colour in _OUTCOMES.items():
            columns = [column for column, case in enumerate(cases) if best.get(case, "") == outcome]
            if outcome and columns:
                axis.bar(columns, 0.8, width=0.9, bottom=place - 0.4, color=colour)
    axis.set(yticks=range(len(report.scores)), yticklabels=[score.name for score in report.scores])
    axis.set(
        xlabel="cases, in their order: green solved, red not, yellow broken", xlim=(-0.6, len(cases) - 0.4), xticks=[]
    )
    axis.invert_yaxis()


def _by_worth(tries: Sequence[Try]) -> list[Try]:
    return sorted(tries, key=lambda row: ("broken", "unsolved", "solved").index(row.outcome))


def _of(tries: Sequence[Try], strategy: str, tier: str) -> list[Try]:
    return [row for row in tries if (row.strategy, row.tier) == (strategy, tier)]


def _spent(report: Report) -> bool:
    return any(row.tokens for row in report.tries)


def _colours(count: int) -> list[Any]:
    return [_WAYS[place % len(_WAYS)] for place in range(count)]
