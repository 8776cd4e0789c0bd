"""The demo: a real small model fixes a real bug in a real sandbox, and the broker, alone with the key, opens the pull
request. Ends with 0 only if the forge holds the branch, its tests pass there, and the planted secret leaked nowhere.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from rich.console import Console
from rich.syntax import Syntax
from rich.table import Table

from house import BROKER_USER, CHECKOUT, DAEMON_USER, House, HouseError, of_one_user, of_three_users, remove_users
from proof import Claim, Proof
from stack import Layout, Source, Stack, StackError, prepare, prepare_sandbox, weights

HOME_AS_ROOT = Path("/var/lib/agent-swarm-demo")
HOME_ELSE = Path("~/.local/state/agent-swarm-demo").expanduser()
SAMPLE = CHECKOUT / "examples" / "sample-repository"
TESTS = "python3 -m pytest -q"
WORDS = "Some tests of this repository fail. Find the fault in the package and mend it; do not change the tests."

PARTS = {
    "queued": "in the queue",
    "prepare": "prepare",
    "pool": "waiting for the model",
    "prefill": "the model reads",
    "decode": "the model writes",
    "tools": "tools and trial runs",
    "checks": "checks",
    "broker": "broker",
    "away": "no daemon there",
    "other": "the daemon itself, sealing included",
}

console = Console(highlight=False, soft_wrap=True)


def main() -> int:
    """Run the demo, or clean up after it; the exit code."""
    asked = _arguments()
    base = asked.dir or Path(os.environ.get("AGENT_SWARM_DEMO_DIR") or (HOME_AS_ROOT if _root() else HOME_ELSE))
    base = base.absolute()
    if asked.clean:
        return _cleaned(base)
    signal.signal(signal.SIGTERM, _interrupted)
    began = time.monotonic()
    try:
        _require_own(base)
        with _alone(base), _stack(base, house := _house(base)) as (stack, canary):
            _told(stack, house)
            started = time.monotonic()
            good = _show(stack, canary, started - began)
        console.print(f"\nall of it took {time.monotonic() - began:.1f} s; remove it all with: make demo-clean")
    except (HouseError, StackError) as error:
        console.print(f"[red]the demo failed:[/] {error}", markup=True)
        return 1
    return 0 if good else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/demo", description=__doc__)
    parser.add_argument("--dir", type=Path, help="where to keep it all (default: $AGENT_SWARM_DEMO_DIR, then its own)")
    parser.add_argument("--clean", action="store_true", help="remove what the demo made, its users included")
    return parser.parse_args()


def _root() -> bool:
    return os.getuid() == 0


def _interrupted(_signal: int, _frame: object) -> NoReturn:
    raise SystemExit(143)  # unwinds, so that what was started is stopped


def _require_own(base: Path) -> None:
    """Raises HouseError for a folder with things of others in it: what the demo marks as its own it later removes."""
    try:
        foreign = base.exists() and any(path.name != LOCK for path in base.iterdir()) and not (base / MARKER).exists()
    except OSError as error:
        raise HouseError(f"{base} cannot be used ({error.strerror}); name a new folder with --dir") from None
    if foreign:
        raise HouseError(f"{base} holds other things; name a new or empty folder with --dir")


@contextmanager
def _alone(base: Path) -> Iterator[None]:
    """Hold the demo's folder; two demos in one would pull each other's files away. Raises HouseError."""
    base.mkdir(parents=True, exist_ok=True)
    with (base / LOCK).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise HouseError(f"another demo works in {base}; wait for its end, or name a folder with --dir") from None
        yield


def _cleaned(base: Path) -> int:
    marker = base / MARKER
    if base.exists() and not marker.exists():
        console.print(f"{base} was not made by the demo; it is left alone")
        return 1
    try:
        with _alone(base):
            return _clean(base, marker)
    except (HouseError, StackError) as error:
        console.print(f"not removed: {error}", markup=False)
        return 1


def _clean(base: Path, marker: Path) -> int:
    made = marker.read_text("utf-8").split() if marker.exists() else []
    shutil.rmtree(base, ignore_errors=True)
    if _root():
        prepare_sandbox("undo")
        remove_users(name for name in (DAEMON_USER, BROKER_USER) if name in made)
    console.print(f"removed {base}" + (f" and the users {', '.join(made)}" if made else ""))
    return 0


LOCK = ".lock"
MARKER = ".made-by-agent-swarm-demo"  # holds the names of the users that the demo made


def _house(base: Path) -> House:
    """Three users where we may make them, else one; the difference is said plainly."""
    base.mkdir(parents=True, exist_ok=True)
    marker = base / MARKER
    marker.touch()
    if not _root():
        console.print("not root: broker and daemon run as you, so the daemon's user could read the broker's secret.")
        console.print("Run the demo as root to see them parted, each under its own user.\n")
        return of_one_user()
    console.print("making the users and an installation for each; the first time takes longest")
    house, made = of_three_users(base)
    marker.write_text(" ".join({*marker.read_text("utf-8").split(), *made}), "utf-8")
    return house


@contextmanager
def _stack(base: Path, house: House) -> Iterator[tuple[Stack, str]]:
    """A fresh stack with the sample repository on its forge and a canary as the broker's credential."""
    pool = f'[pool.embedded]\nenabled = true\nweights = "{weights()}"'
    console.print("making the sample repository and the settings")
    stack, canary = prepare(Layout(base), house, (Source("sample", SAMPLE, TESTS),), pool)
    try:
        console.print("starting broker and daemon; the daemon proves the sandbox and loads the model first")
        stack.start()
        yield stack, canary
    except BaseException:
        for process in (stack.broker, stack.daemon):
            console.print(process.tail(), markup=False)
        raise
    finally:
        stack.stop()


def _told(stack: Stack, house: House) -> None:
    console.rule("the stack")
    for process, owner in ((stack.broker, house.broker), (stack.daemon, house.daemon)):
        console.print(f"{process.name:7} pid {process.pid}, user {owner.name}", markup=False)
    if house.parted:
        console.print(f"{'':7} the daemon's installation has no file of the broker but its wire types")
    console.print(stack.swarm("status").stdout.rstrip(), markup=False)


def _show(stack: Stack, canary: str, starting: float) -> bool:
    """Submit, watch, show and prove; whether all is true."""
    console.rule("swarm submit")
    command = ("submit", "--repo", "sample", "--wait", WORDS)
    console.print(f"$ swarm submit --repo sample --wait {WORDS!r}\n", markup=False)
    sys.stdout.flush()
    began = time.monotonic()
    ended = stack.watch(*command)
    took = time.monotonic() - began
    view = stack.newest()
    if ended != 0:
        console.print(stack.swarm("show", view["task"]["id"]).stdout, markup=False)
        raise StackError(f"the task ended as {view['state']}: {view['reason']}")
    _pull_request(stack, view)
    _evidence(view["report"])
    _clock(view["timings"], starting, took)
    return _proved(Proof(stack, canary, view).claims())


def _pull_request(stack: Stack, view: dict[str, Any]) -> None:
    console.rule("the pull request")
    number = view["pull_request"].rpartition("#")[2]
    shown = stack.swarm_broker("pr", "show", "sample", number)
    if shown.returncode != 0:
        raise StackError(f"swarm-broker pr show: {shown.stderr}")
    text, mark, diff = shown.stdout.partition("diff --git")
    console.print(text.rstrip(), markup=False)
    console.print(Syntax(mark + diff, "diff", background_color="default"))


def _evidence(report: dict[str, Any]) -> None:
    console.rule("the evidence")
    table = Table("", "before", "after", box=None)
    before, after = report["base"], report["proposal"]
    table.add_row("tests passed", str(len(before["passed"])), str(len(after["passed"])))
    table.add_row("tests failed", str(len(before["failed"])), str(len(after["failed"])))
    table.add_row("exit code", str(before["exit_code"]), str(after["exit_code"]))
    table.add_row("seconds", f"{before['seconds']:.1f}", f"{after['seconds']:.1f}")
    console.print(table)
    for name in report["fixed"]:
        console.print(f"fixed: {name}", markup=False)
    for name in report["broken"]:
        console.print(f"broken: {name}", markup=False)


def _clock(timings: dict[str, float], starting: float, took: float) -> None:
    console.rule("where the wall clock went")
    table = Table("part", "seconds", box=None)
    table.add_row("start broker, daemon and model", f"{starting:.1f}")
    for part, words in PARTS.items():
        if part in timings:
            table.add_row(words, f"{timings[part]:.1f}")
    table.add_row("submit to the end, by the person's clock", f"{took:.1f}")
    console.print(table)


def _proved(claims: Iterator[Claim]) -> bool:
    console.rule("is it true?")
    good = True
    for claim in claims:
        good = good and claim.holds
        console.print(f"{'yes' if claim.holds else 'NO '}  {claim.text}", markup=False)
        if claim.detail and not claim.holds:
            console.print(claim.detail, markup=False)
    return good


if __name__ == "__main__":
    try:
        sys.exit(main())
    except subprocess.SubprocessError as error:
        console.print(f"the demo failed: {error}", markup=False)
        sys.exit(1)
