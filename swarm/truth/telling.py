"""What a reviewer has to know of a change's tests, in the words of a pull request. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from swarm.types import CheckReport

MOST = 20  # findings that are named
_LEAD = "**The checks found that this change takes something from its tests. Look at that first:**"


def for_review(report: CheckReport | None) -> str:
    """To be put before the agent's own words, where a long text is not cut; empty where there is nothing to say."""
    if report is None or not (report.weakened or report.flaky):
        return ""
    parts = [f"{_LEAD}\n\n{_list([f'{_code(each.where)}: {each.kind}: {each.text}' for each in report.weakened])}"]
    parts = parts if report.weakened else []
    if report.flaky:
        names = ", ".join(map(_code, report.flaky[:MOST]))
        parts.append(f"Failed once and passed when run again, in files that this change does not touch: {names}")
    return "\n\n".join(parts) + "\n\n"


def _list(lines: Sequence[str]) -> str:
    more = [f"and {len(lines) - MOST} more"] if len(lines) > MOST else []
    return "\n".join(f"- {' '.join(line.split())}" for line in [*lines[:MOST], *more])


def _code(words: str) -> str:
    return "`" + " ".join(words.replace("`", "'").split()) + "`"
