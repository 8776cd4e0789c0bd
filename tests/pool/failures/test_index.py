"""The index of public reports is whole, and names only tests that exist and that cite what it says."""

from __future__ import annotations

import re
from pathlib import Path

HERE = Path(__file__).parent
ROW = re.compile(r"^\| (\d+) \| (.+?) \| (.+) \|$", re.MULTILINE)


def test_every_report_is_listed_with_tests_that_exist() -> None:
    rows = ROW.findall((HERE / "README.md").read_text("utf-8"))
    assert [int(number) for number, _, _ in rows] == list(range(1, 56))
    for number, _, tests in rows:
        named = re.findall(r"`([^`]+\.py)`", tests)
        assert named, number
        missing = [name for name in named if name.startswith(("test_", "..")) and not (HERE / name).exists()]
        assert missing == [], number


def test_every_report_of_the_request_path_is_cited_by_a_test_named_for_it() -> None:
    for number, reports, tests in ROW.findall((HERE / "README.md").read_text("utf-8")):
        if int(number) == 55:  # wishes of users, not faults
            continue
        told = "".join(
            (HERE / name).read_text("utf-8")
            for name in re.findall(r"`([^`]+\.py)`", tests)
            if name.startswith(("test_", ".."))
        )
        wanted = re.findall(r"#\d+", reports)
        assert not wanted or any(report in told for report in wanted), number
