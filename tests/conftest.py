"""What all tests share: a run that may not skip, for continuous integration."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from house import python_for_all

pytest_plugins = [
    "tests.vllm_server",
    "tests.postgres_server",
    "tests.contract.engine_stage",
    "tests.forges.git_server",
    "tests.forges.parts",
    "tests.forges.gitolite",
    "tests.forges.prism",
    "tests.forges.remote",
    "tests.forges.replica",
    "tests.forges.whole",
]

settings.register_profile("quick", max_examples=40, deadline=None)  # a busy machine is no failure
settings.register_profile("thorough", max_examples=400, deadline=None)  # --hypothesis-profile=thorough
settings.load_profile("quick")


def pytest_configure() -> None:
    """A shell starts what it runs in the background deaf to Ctrl-C, and nohup deaf to the hangup; tests send both."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(scope="session")
def python_of_all() -> Iterator[str]:
    """A Python with the four rooms for children under another user; the checkout may lie where only we can read."""
    with tempfile.TemporaryDirectory(prefix="swarm-python-") as base:
        Path(base).chmod(0o755)
        yield str(python_for_all(Path(base)))


@pytest.fixture
def processes_with() -> Callable[[str], list[int]]:
    """Host processes whose command line holds a mark, this one apart."""

    def find(mark: str) -> list[int]:
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                line = (entry / "cmdline").read_bytes()
            except OSError:  # it ended while we looked
                continue
            if mark.encode() in line and int(entry.name) != os.getpid():
                found.append(int(entry.name))
        return found

    return find


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
