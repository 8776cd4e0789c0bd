"""Writes a run's report, as data and as a page. Needs the extra [eval]."""

from __future__ import annotations

import json
from pathlib import Path

from swarm.evaluation.page import page
from swarm.evaluation.plots import plots
from swarm.evaluation.report import PAGE, REPORT, Report, report_of
from swarm.evaluation.results import Folder, written


def make(folder: Folder, baseline: Path | None = None) -> Report:
    """Make `report.json` and `report.html` anew from what the run's folder holds. Raises EvaluationError."""
    report = report_of(folder, baseline)
    document = json.dumps(report.model_dump(mode="json"), indent=1, ensure_ascii=True)
    written(folder.path / REPORT, document.encode() + b"\n")
    text = page(report, folder.path, plots(report))
    written(folder.path / PAGE, text.encode("utf-8", "replace"))
    return report
