"""The daemon's systemd unit: systemd finds no fault in it, and it takes away nothing that sandboxes are made of."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from swarm.cli.exits import Code
from swarm.config import DaemonConfig

ROOT = Path(__file__).parents[2]
UNITS = ROOT / "examples" / "systemd"
UNIT = UNITS / "swarm.service"


def service() -> dict[str, str]:
    lines = UNIT.read_text().partition("[Service]")[2].partition("[Install]")[0].splitlines()
    pairs = (line.partition("=") for line in lines if line and not line.startswith("#"))
    return {key: value for key, _, value in pairs}


def test_it_leaves_the_daemon_time_to_drain_and_sandboxes_what_they_are_made_of() -> None:
    found = service()
    assert float(found["TimeoutStopSec"]) > DaemonConfig().drain_timeout + 60
    assert found["Delegate"] == "yes"
    assert found["User"] == "swarm"
    assert not {"NoNewPrivileges", "RestrictNamespaces", "SystemCallFilter", "ProtectControlGroups"} & set(found)


def test_what_no_restart_mends_is_not_restarted() -> None:
    assert service()["RestartPreventExitStatus"].split() == [str(Code.CONFIG.value), str(Code.SANDBOX.value)]


def test_nothing_of_the_brokers_is_for_it() -> None:
    assert service()["InaccessiblePaths"] == "-/etc/swarm-broker -/var/lib/swarm-broker"


@pytest.mark.parametrize(
    ("unit", "document"), [("swarm.service", "many-hosts.md"), ("swarm-broker.service", "broker-install.md")]
)
def test_the_documents_steps_make_all_that_a_unit_names(unit: str, document: str) -> None:
    """Its program, its user and its groups: systemd refuses a unit whose group is not there (216/GROUP)."""
    named = dict(
        line.split("=", 1) for line in (UNITS / unit).read_text().splitlines() if "=" in line and line[0] != "#"
    )
    steps = (ROOT / "docs" / document).read_text()
    folder = named["ExecStart"].partition("/bin/")[0]
    for step in (
        f"useradd --system {named['User']}",
        f"groupadd --system {named['SupplementaryGroups']}",
        f"python3 -m venv {folder} && {folder}/bin/pip install .",
        f"cp examples/systemd/{unit} /etc/systemd/system/",
    ):
        assert step in steps, step


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_itself_finds_no_fault(tmp_path: Path) -> None:
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace("/opt/swarm/bin/swarm", sys.executable))
    found = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False)
    assert (found.returncode, found.stdout + found.stderr) == (0, "")
