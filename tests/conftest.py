"""What all tests share: a run that may not skip, for continuous integration."""

from __future__ import annotations

import os

import pytest

pytest_plugins = ["tests.vllm_server"]


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """With AGENT_SWARM_NO_SKIP set a skipped test fails the run: there, every need of every test was provided."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if not os.environ.get("AGENT_SWARM_NO_SKIP") or reporter is None:
        return
    skipped = reporter.stats.get("skipped", [])
    for report in skipped:
        reporter.write_line(f"may not be skipped here: {report.nodeid}: {report.longrepr}", red=True)
    if skipped and exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
