"""The report of a run as one HTML page: it asks nothing of the network, and no text of others is markup in it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape
from pathlib import Path

from swarm.evaluation.keeping import CHANGE, JOURNAL, JUDGE
from swarm.evaluation.report import Report
from swarm.evaluation.results import TRIES, Split, Try
from swarm.evaluation.scores import Comparison, Score

SHOWN = 6_000  # characters of one change or one judge's word in the page; the files have all
WHOLE = 8_000_000  # characters of all of them together
_HEAD = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ font: 15px/1.5 system-ui, sans-serif; color: light-dark(#1c1c1c, #e4e4e4);
  background: light-dark(#ffffff, #161616); max-width: 70rem; margin: 2rem auto; padding: 0 1rem; }}
table {{ border-collapse: collapse; margin: 1rem 0; display: block; overflow-x: auto; }}
th, td {{ text-align: left; padding: .25rem .7rem; border-bottom: 1px solid light-dark(#d5d5d5, #3a3a3a);
  vertical-align: top; }}
td.n {{ text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }}
pre {{ white-space: pre-wrap; overflow-wrap: anywhere; background: light-dark(#f4f4f4, #222222); padding: .7rem; }}
.solved {{ color: light-dark(#1a6b2a, #6fd08a); }} .unsolved {{ color: light-dark(#a3243b, #ff8fa3); }}
.broken {{ color: light-dark(#7a6200, #e6cf5c); }}
svg {{ max-width: 100%; height: auto; }} details {{ margin: .4rem 0; }} summary {{ overflow-wrap: anywhere; }}
td {{ max-width: 30rem; overflow-wrap: break-word; }}
</style>
</head>
<body>
"""


def page(report: Report, folder: Path, drawn: Iterable[tuple[str, str]]) -> str:
    """The whole page. ``folder`` is the run's, for what its tries left; ``drawn`` are titles and SVG of our own."""
    return "".join(_parts(report, folder, drawn))


def _parts(report: Report, folder: Path, drawn: Iterable[tuple[str, str]]) -> Iterator[str]:
    run = report.run
    yield _HEAD.format(title=escape(f"Evaluation: {run.set}"))
    yield f"<h1>Evaluation: {escape(run.set)}</h1>\n"
    yield f"<p>{escape(run.origin)}; licence {escape(run.licence)}. {len(run.cases)} cases, "
    yield f"{run.repeat} tries at each in each way, seed {run.seed}. A try may spend {escape(_budget(report))}.</p>\n"
    if report.notes:
        yield f"<ul>{''.join(f'<li>{escape(note)}</li>' for note in report.notes)}</ul>\n"
    yield _scores(report.scores)
    yield _comparisons(report.comparisons)
    for title, svg in drawn:
        yield f"<h2>{escape(title)}</h2>\n<figure>{svg}</figure>\n"
    yield _unfit(report)
    yield _cases(report.tries)
    yield "<h2>Tries</h2>\n"
    yield from _details(report.tries, folder)
    yield "</body>\n</html>\n"


def _budget(report: Report) -> str:
    budget = report.run.budget
    return f"{budget.steps} steps, {budget.tokens} tokens and {budget.wall:g} s, unless its case says otherwise"


def _scores(scores: Iterable[Score]) -> str:
    counted = ("way", "solved", "share", "95 %", "tokens per solved", "95 %", "tokens", "of them cached", "steps")
    names = (*counted, "seconds a try", "endings", "models")
    rows = (
        (
            score.name,
            f"{score.solved} of {score.tries}",
            percent(score.share),
            span(score.interval, 100, "%"),
            number(score.tokens_per_solved),
            span(score.tokens_interval),
            number(score.tokens),
            number(score.cached),
            number(score.steps),
            f"{score.wall / score.tries:.1f}" if score.tries else "-",
            ", ".join(f"{count} {ending}" for ending, count in score.endings.items()),
            ", ".join(score.models),
        )
        for score in scores
    )
    return f"<h2>By way</h2>\n{_table(names, rows, numbers=range(1, 10))}{_pass_at(scores)}"


def _pass_at(scores: Iterable[Score]) -> str:
    told = [(score.name, score.pass_at) for score in scores if len(score.pass_at) > 1]
    lines = (f"{name}: " + ", ".join(f"pass@{k} {percent(value)}" for k, value in at.items()) for name, at in told)
    return "".join(f"<p>{escape(line)}</p>\n" for line in lines)


def _comparisons(comparisons: tuple[Comparison, ...]) -> str:
    if not comparisons:
        return ""
    lines = "".join(f"<li>{escape(told.words)} ({told.cases} cases)</li>" for told in comparisons)
    return f"<h2>Side by side</h2>\n<ul>{lines}</ul>\n"


def _unfit(report: Report) -> str:
    rows = [
        (row.case, "cannot be run here" if row.blocked else "broken", row.broken)
        for row in (*report.broken, *report.blocked)
    ]
    return f"<h2>Cases that count nowhere</h2>\n{_table(('case', 'state', 'why'), rows)}" if rows else ""


def _cases(tries: Iterable[Try]) -> str:
    head = "".join(f"<th>{name}</th>" for name in ("case", "way", "try", "", "ending", "why", "steps", "tokens", "s"))
    body = []
    for row in tries:
        why = escape(row.reason[:200])
        cells = (
            f"<td>{escape(row.case)}</td><td>{escape(_way(row))}</td>"
            f'<td class="n"><a href="#{row.key}">{row.number}</a></td>'
            f'<td class="{row.outcome}">{row.outcome}</td><td>{escape(row.ending)}</td><td>{why}</td>'
            f'<td class="n">{row.steps}</td><td class="n">{row.tokens}</td><td class="n">{row.split.total:.1f}</td>'
        )
        body.append(f"<tr>{cells}</tr>\n")
    return f'<h2>By case</h2>\n<table id="cases"><tr>{head}</tr>\n{"".join(body)}</table>\n'


def _details(tries: Iterable[Try], folder: Path) -> Iterator[str]:
    left = WHOLE
    for row in tries:
        change, word = (_read(folder / TRIES / row.folder / name, min(SHOWN, max(0, left))) for name in (CHANGE, JUDGE))
        left -= len(change) + len(word)
        where = f"{TRIES}/{row.folder}/{JOURNAL}"
        times = ", ".join(f"{name} {getattr(row.split, name):.1f} s" for name in Split.model_fields)
        yield f'<details id="{escape(row.key)}"><summary>{escape(row.case)}: {escape(_way(row))}, try {row.number}: '
        yield f'<span class="{row.outcome}">{row.outcome}</span></summary>\n'
        yield f"<p>{escape(row.reason)}</p>\n<p>{escape(times)}.</p>\n"
        yield f"<p>It said: {escape(row.said)}</p>\n" if row.said else ""
        if row.judged and row.judged.put_back:
            yield f"<p>Put back before the hidden tests: {escape(', '.join(row.judged.put_back[:20]))}</p>\n"
        yield f'<p>Journal: <a href="{escape(where)}">{escape(where)}</a></p>\n'
        yield f"<h4>Change</h4><pre>{escape(change)}</pre>\n"
        yield f"<h4>Hidden tests</h4><pre>{escape(word)}</pre>\n</details>\n"


def _read(path: Path, most: int) -> str:
    """The beginning of a text that a try left; nothing where it left none."""
    try:
        with path.open("rb") as file:
            data = file.read(4 * most + 1)
    except OSError:
        return ""
    text = data.decode("utf-8", "replace")
    return text if len(text) <= most else f"{text[:most]}\n[the rest is in {path.name}]"


def _table(names: Iterable[str], rows: Iterable[Iterable[str]], numbers: Iterable[int] = ()) -> str:
    right = set(numbers)
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    body = "".join(
        "<tr>"
        + "".join(f"<td{_CLASS if place in right else ''}>{escape(cell)}</td>" for place, cell in enumerate(row))
        + "</tr>\n"
        for row in rows
    )
    return f"<table><tr>{head}</tr>\n{body}</table>\n"


_CLASS = ' class="n"'


def _way(row: Try) -> str:
    return row.strategy if row.tier == "-" else f"{row.strategy} on {row.tier}"


def percent(share: float | None) -> str:
    """A share for people."""
    return "-" if share is None else f"{100 * share:.1f} %"


def number(value: float | None) -> str:
    """A count for people."""
    return "-" if value is None else f"{value:,.0f}".replace(",", "\u202f")


def span(interval: tuple[float | None, float | None], times: float = 1.0, unit: str = "") -> str:
    """An interval for people; a side without a bound is open."""
    low, high = interval
    if low is None and high is None:
        return "-"
    ends = ["..." if end is None else f"{times * end:.0f}" for end in (low, high)]
    return f"[{ends[0]}, {ends[1]}]{f' {unit}' if unit else ''}"
