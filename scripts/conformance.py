"""Runs the conformance suite on every sandbox backend of this machine, and prints the table backend x claim.

    scripts/conformance.py [--only BACKEND]... [--from FILE] [--json]

A cell tells whether the self-test proved the claim, and how many attacks on it failed to break it. A backend that is
not here says why. Exit code 1 when a present one fails; with AGENT_SWARM_NO_SKIP=1 also when docker or bwrap is absent.
--from takes what a pytest run wrote to the file that AGENT_SWARM_CONFORMANCE named, instead of running the tests again.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from sandbox.base import SandboxBackend
from sandbox.bubblewrap.backend import BwrapBackend
from sandbox.config import SandboxConfig
from sandbox.container.backend import ContainerBackend
from sandbox.errors import SandboxError
from sandbox.owner import owner_of
from sandbox.rules.claims import MENDS

ROOT = Path(__file__).resolve().parent.parent
NAMES = ("bwrap", "bwrap-user", "docker", "docker-crun", "docker-runsc")
MUST = ("bwrap", "docker")  # with AGENT_SWARM_NO_SKIP
SUITES = ("test_sandbox*.py", "test_attack_*.py")
UNPRIVILEGED = "tests/sandbox/bubblewrap/test_unprivileged.py::test_the_contract_suites_hold_for_an_unprivileged_user"
PROVES_ALL = "the self-test proves them all"  # a test of it stands for the self-test of a backend not asked from here
_LINE = {"backend": str, "claims": list, "outcome": str, "test": str}
SELF_TEST_ALONE = "docker-runsc"  # another kernel gives other errors: what it keeps is what it proves at start


@dataclass
class Column:
    """One backend: why it is not here, what it proved, and how the attacks on each claim went."""

    absent: str = ""
    version: str = ""
    proved: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    held: Counter[str] = field(default_factory=Counter)
    broken: dict[str, list[str]] = field(default_factory=dict)
    skipped: Counter[str] = field(default_factory=Counter)

    @property
    def fails(self) -> bool:
        """Whether a claim did not hold."""
        return bool(self.failed or self.broken)


async def look(name: str) -> Column:
    """Whether a backend is here, and what it proves of itself."""
    if name == "bwrap-user":
        missing = [tool for tool in ("useradd", "bwrap") if shutil.which(tool) is None]
        if os.geteuid() != 0 or missing:
            return Column(absent=f"needs root to make a user{', and ' + ', '.join(missing) if missing else ''}")
        return Column(version="the same, as a system user with a control group")
    if name == "bwrap" and os.geteuid() != 0:
        return Column(absent="needs root: it makes a user id for each sandbox; run as root")
    with tempfile.TemporaryDirectory() as state:
        backend = make(name, Path(state))
        try:
            runtime = name.partition("-")[2]
            if runtime and runtime not in (await runtimes(backend)):
                return Column(
                    absent=f"the engine has no runtime {runtime}: scripts/start-docker start --runtime {runtime}"
                )
            test = await backend.self_test()
        except SandboxError as error:
            return Column(absent=str(error))
        finally:
            await backend.close()
    return Column(version=test.version, proved=test.proved, failed=test.failed)


def make(name: str, state: Path) -> SandboxBackend:
    """The backend of that name, with the settings of the tests."""
    if name == "bwrap":
        return BwrapBackend(SandboxConfig(), owner_of(state), {})
    return ContainerBackend(SandboxConfig(runtime=name.partition("-")[2] or None), owner_of(state), {})


async def runtimes(backend: SandboxBackend) -> Iterable[str]:
    """The runtimes that the engine knows. Raises SandboxError."""
    assert isinstance(backend, ContainerBackend)  # noqa: S101 - `make` decides it by the same name
    return list((await backend.engine.info())["Runtimes"])


def run(names: Iterable[str], told: Path) -> None:
    """Run the suites on these backends; each test adds a line to the file."""
    wanted = [name for name in names if name not in {"bwrap-user", SELF_TEST_ALONE}]
    env = dict(os.environ) | {"AGENT_SWARM_CONFORMANCE": str(told), "AGENT_SWARM_NO_SKIP": ""}
    suites = [str(path) for pattern in SUITES for path in sorted((ROOT / "tests/contract").glob(pattern))]
    if wanted:
        pytest("-m", "root or docker", *suites, env=env | {"AGENT_SWARM_CONFORMANCE_ONLY": ",".join(wanted)})
    if "bwrap-user" in names:
        pytest("-m", "", UNPRIVILEGED, env=env | {"AGENT_SWARM_CONFORMANCE_AS": "bwrap-user"})


def pytest(*words: str, env: Mapping[str, str]) -> None:
    """Run pytest; what failed stands in the file that it writes."""
    command = [sys.executable, "-m", "pytest", "-q", "-n0", "--tb=short", "-p", "no:cacheprovider", *words]
    subprocess.run(command, cwd=ROOT, env=dict(env), check=False, stdin=subprocess.DEVNULL)


class ToldError(Exception):
    """The file of results cannot be used; the message says why."""


def lines_of(told: Path) -> list[dict[str, Any]]:
    """Each test's line; a last one that is cut, since its run was ended, does not count. Raises ToldError."""
    try:
        text = told.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ToldError(f"{told} cannot be read: {getattr(error, 'strerror', None) or 'it is not text'}") from error
    *lines, last = text.split("\n")
    found = []
    for number, line in enumerate([*lines, last] if last.endswith("}") else lines, 1):
        try:
            seen = json.loads(line)
            good = all(isinstance(seen[name], kind) for name, kind in _LINE.items())
        except (ValueError, KeyError, TypeError):
            good = False
        if not good:
            raise ToldError(f"line {number} of {told} is no result of a test; name what AGENT_SWARM_CONFORMANCE named")
        found.append(seen)
    return found


def gather(columns: Mapping[str, Column], told: Path) -> None:
    """Read the lines that the tests wrote into the columns. Raises ToldError where they are something else."""
    for seen in lines_of(told):
        if (column := columns.get(seen["backend"])) is None:
            continue
        for claim in seen["claims"]:
            if seen["outcome"] == "passed":
                column.held[claim] += 1
                if claim == PROVES_ALL and not column.proved:
                    column.proved = tuple(name for name in MENDS if name != "really gVisor")
            elif seen["outcome"] == "skipped":
                column.skipped[claim] += 1
            else:
                column.broken.setdefault(claim, []).append(seen["test"])


def cell(column: Column, claim: str) -> tuple[str, str]:
    """What a cell says, and its style."""
    if column.absent:
        return "not here", "dim"
    if claim in column.failed or claim in column.broken:
        return f"FAILS ({len(column.broken.get(claim, ())) or 'self-test'})", "bold red"
    proof = ["proved"] if claim in column.proved else []
    attacks = [f"{column.held[claim]} held"] if column.held[claim] else []
    return (", ".join(proof + attacks) or "-"), "green" if proof or attacks else "dim"


def claims_of(columns: Mapping[str, Column]) -> list[str]:
    """All claims, those of the self-test first, in its order."""
    more = {claim for column in columns.values() for claim in (*column.held, *column.broken, *column.proved)}
    return [*(name for name in MENDS if name in more), *sorted(more - set(MENDS))]


def show(columns: Mapping[str, Column]) -> None:
    """Print the table, then why backends are not here, and what failed."""
    table = Table(title="what each backend keeps: proved by its self-test, attacks that it held")
    table.add_column("claim")
    for name in columns:
        table.add_column(name)
    for claim in claims_of(columns):
        table.add_row(claim, *(Text(*cell(column, claim)) for column in columns.values()))
    console = Console(width=None if sys.stdout.isatty() else 150, soft_wrap=False)
    console.print(table)
    for name, column in columns.items():
        state = f"not here: {column.absent}" if column.absent else column.version
        console.print(Text(f"{name}: {state}"))
        for claim, tests in sorted(column.broken.items()):
            console.print(Text(f"  {claim}: {', '.join(tests)}", style="red"))


def verdict(columns: Mapping[str, Column], *, no_skip: bool = False) -> int:
    """The exit code: 1 where a present backend fails, or with ``no_skip`` where one that must be here is not."""
    missing = [name for name in MUST if no_skip and name in columns and columns[name].absent]
    for name in missing:
        sys.stderr.write(f"{name} must be here, and is not\n")
    untested = [n for n, c in columns.items() if not c.absent and n != SELF_TEST_ALONE and not c.held]
    for name in untested:
        sys.stderr.write(f"{name} is here, and no test ran on it\n")
    return 1 if missing or untested or any(column.fails for column in columns.values()) else 0


def main(arguments: list[str] | None = None) -> int:
    """Look, run, show."""
    about = f"{(__doc__ or '').splitlines()[0]} It takes about 10 to 20 minutes; --from and a file, some seconds."
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--only", action="append", choices=NAMES, help="this backend alone; may be repeated")
    parser.add_argument("--from", dest="told", type=Path, help="results that a pytest run has written already")
    parser.add_argument("--json", action="store_true", help="print JSON, for programs")
    asked = parser.parse_args(arguments)
    try:
        if asked.told is not None:
            lines_of(asked.told)  # before the backends are asked
    except ToldError as error:
        parser.error(str(error))
    columns = {name: asyncio.run(look(name)) for name in asked.only or NAMES}
    with tempfile.TemporaryDirectory() as folder:
        told = asked.told or Path(folder) / "told"
        if asked.told is None:
            Path(folder).chmod(0o755)
            told.touch()
            told.chmod(0o666)
            run([name for name, column in columns.items() if not column.absent], told)
        gather(columns, told)
    if asked.json:
        print(json.dumps({name: vars(column) for name, column in columns.items()}, indent=2))
    else:
        show(columns)
    return verdict(columns, no_skip=bool(os.environ.get("AGENT_SWARM_NO_SKIP")))


if __name__ == "__main__":
    sys.exit(main())
