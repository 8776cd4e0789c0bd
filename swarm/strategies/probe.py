"""Runs inside the sandbox, beside the tests: notes which lines each test executes. Copied in as text, not imported.

Works as a pytest plugin (``-p swarm_probe``) and, through a ``sitecustomize`` of its own, under unittest. Standard
library alone; coverage's fast tracer is used where the sandbox has it. One line of JSON a test is appended to the file
named by SWARM_PROBE when the process ends.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
import unittest
from pathlib import Path
from typing import Any, Dict, Optional, Set  # noqa: UP035  the sandbox's Python may be an old one

ROOT = str(Path.cwd()) + os.sep
OUT = os.environ.get("SWARM_PROBE", "")

Lines = Dict[str, Dict[str, Set[int]]]  # noqa: UP006  the same


class Plain:
    """Lines by test through sys.settrace."""

    def __init__(self) -> None:
        self.lines: Lines = {}
        self.test = ""

    def switch(self, test: str) -> None:
        """From here on, what runs belongs to this test; to none where the name is empty."""
        self.test = test
        sys.settrace(self._enter if test else None)

    def _enter(self, frame: Any, _event: str, _argument: Any) -> Any:
        return self._line if frame.f_code.co_filename.startswith(ROOT) else None

    def _line(self, frame: Any, event: str, _argument: Any) -> Any:
        if event == "line":
            files = self.lines.setdefault(self.test, {})
            files.setdefault(frame.f_code.co_filename, set()).add(frame.f_lineno)
        return self._line

    def by_test(self) -> Lines:
        """Line numbers by test and file."""
        return self.lines


class Fast:
    """The same through coverage's tracer and its contexts."""

    def __init__(self, coverage: Any) -> None:
        self.coverage = coverage.Coverage(data_file=None, config_file=False, include=[ROOT + "*"], messages=False)
        self.running = False

    def switch(self, test: str) -> None:
        """As for Plain."""
        if not self.running:
            self.running = True
            self.coverage.start()
        self.coverage.switch_context(test)

    def by_test(self) -> Lines:
        """As for Plain."""
        self.coverage.stop()
        data = self.coverage.get_data()
        found: Lines = {}
        for name in data.measured_files():
            for line, tests in data.contexts_by_lineno(name).items():
                for test in tests:
                    found.setdefault(test, {}).setdefault(name, set()).add(line)
        return found


def tracer() -> Any:
    """The best there is here."""
    try:
        # Imported at the first test only: every Python process of the tests passes here, and most of them run none.
        import coverage  # noqa: PLC0415
    except ImportError:
        return Plain()
    return Fast(coverage)


class Recorder:
    """Which tests ran, how they ended and what they executed."""

    def __init__(self) -> None:
        self.tracer: Optional[Any] = None  # noqa: UP045  the same
        self.failed: Dict[str, bool] = {}  # noqa: UP006  the same
        self.under_pytest = False

    def begin(self, test: str) -> None:
        """A test starts."""
        if self.tracer is None:
            self.tracer = tracer()
        self.failed.setdefault(test, False)
        self.tracer.switch(test)

    def end(self) -> None:
        """The test that runs is over."""
        if self.tracer is not None:
            self.tracer.switch("")

    def judge(self, test: str, *, failed: bool) -> None:
        """One of a test's phases ended; a test that failed once has failed."""
        self.failed[test] = self.failed.get(test, False) or failed

    def write(self) -> None:
        """Everything, once, at the end."""
        if self.tracer is None or not OUT:
            return
        by_test = self.tracer.by_test()
        with Path(OUT).open("a", encoding="utf-8") as file:
            for test, failed in self.failed.items():
                lines = {
                    os.path.relpath(name, ROOT): sorted(numbers)
                    for name, numbers in by_test.get(test, {}).items()
                    if "site-packages" not in name
                }
                file.write(json.dumps({"test": test, "failed": failed, "lines": lines}) + "\n")


RECORDER = Recorder()
atexit.register(RECORDER.write)


def pytest_configure() -> None:
    """Pytest leads, so unittest's own entry stays silent."""
    RECORDER.under_pytest = True


def pytest_runtest_logstart(nodeid: str) -> None:
    """A hook of pytest: before a test's setup."""
    RECORDER.begin(nodeid)


def pytest_runtest_logreport(report: Any) -> None:
    """A hook of pytest: after setup, call and teardown each."""
    RECORDER.judge(report.nodeid, failed=report.failed)


def pytest_runtest_logfinish() -> None:
    """A hook of pytest: after a test's teardown."""
    RECORDER.end()


def watch_unittest() -> None:
    """Follow the tests of ``python -m unittest`` in this process."""
    original = unittest.TestCase.run

    def run(self: unittest.TestCase, result: Any = None) -> Any:
        if RECORDER.under_pytest or result is None:
            return original(self, result)
        before = len(result.failures) + len(result.errors)
        RECORDER.begin(self.id())
        try:
            return original(self, result)
        finally:
            RECORDER.end()
            RECORDER.judge(self.id(), failed=len(result.failures) + len(result.errors) > before)

    unittest.TestCase.run = run  # type: ignore[method-assign]
