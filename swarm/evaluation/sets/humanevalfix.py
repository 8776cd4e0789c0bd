"""The set ``humanevalfix``: 82 Python functions with a bug made by hand, shipped with the project.

They are every second one of the 164 of HumanEvalPack's Python part (Muennighoff et al. 2023, OctoPack,
arXiv:2308.07124; MIT, see ``rows/LICENCE-octopack``). The agent has the module, its description and, for 78 of them,
the examples as tests; the hidden tests are those of HumanEval.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

from swarm.evaluation.case import Case
from swarm.evaluation.sets.functions import Function, case_of, module_name, read_checks

NAME = "humanevalfix"
ROWS = "humanevalfix.jsonl.gz"


class HumanEvalFix:
    """The shipped rows as cases."""

    name = NAME
    origin = "HumanEvalPack, Python, every second row (bigcode-project/octopack)"
    licence = "MIT"

    def cases(self) -> Iterator[Case]:
        """All 82, in the order of HumanEval."""
        for row in shipped():
            yield _case(row)


def shipped() -> Iterator[dict[str, Any]]:
    """The rows as they are shipped: of the original fields those that are used, and ``fails``, the places of the
    assertions of ``test`` that the buggy function does not pass, found by running them."""
    packed = files("swarm.evaluation.sets").joinpath("rows", ROWS).read_bytes()
    for line in gzip.decompress(packed).decode().splitlines():
        yield json.loads(line)


def _case(row: dict[str, Any]) -> Case:
    name = row["entry_point"]
    function = Function(
        name=name,
        module=module_name(name),
        buggy=row["prompt"] + row["buggy_solution"],
        sound=row["prompt"] + row["canonical_solution"],
    )
    seen = read_checks(row["example_test"], name) if row["example_test"] else None
    labels = {"bug": row["bug_type"], "symptom": row["failure_symptoms"], "shown": row["shown"]}
    return case_of(row["task_id"], function, seen, read_checks(row["test"], name), row["fails"], labels)
