"""What must be true after a delivered task, found out anew from the forge, a fresh sandbox and the machine."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from house import Account
from sandbox.config import SandboxConfig
from sandbox.factory import chosen_backend
from sandbox.types import Command, Outcome, SandboxSpec
from stack import Stack, StackError, environment, git, identity

SCANNER = Path(__file__).with_name("canary.py")


@dataclass(frozen=True)
class Claim:
    """Something said, whether it holds, and what was seen."""

    text: str
    holds: bool
    detail: str = ""


class Proof:
    """Looks at one delivered task; ``canary`` is the secret that only the broker may have."""

    def __init__(self, stack: Stack, canary: str, view: dict[str, Any]) -> None:
        self._stack = stack
        self._canary = canary
        self._view = view
        self._repository = stack.layout.repository(view["task"]["request"]["repository"])
        self._command = view["report"]["proposal"]["command"]

    def claims(self) -> Iterator[Claim]:
        """Every claim, one after the other."""
        yield self._branch()
        yield self._one_commit()
        yield self._tests("main", good=False)
        yield self._tests(self._view["branch"], good=True)
        yield from leaks(self._stack, self._canary)

    def _branch(self) -> Claim:
        branch, commit = self._view["branch"], self._view["commit"]
        head = git(self._repository, "rev-parse", "--verify", f"refs/heads/{branch}")
        pull = git(self._repository, "rev-parse", "--verify", "refs/pull/1/head")
        return Claim(
            f"the forge holds the branch {branch}, and it is the pull request's head",
            head == pull == commit,
            f"{head} {pull}",
        )

    def _one_commit(self) -> Claim:
        count = git(self._repository, "rev-list", "--count", f"main..refs/heads/{self._view['branch']}")
        return Claim("the branch is exactly one commit on its base", count == "1", count)

    def _tests(self, branch: str, *, good: bool) -> Claim:
        with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:  # leaves any loop of the caller alone
            outcome = runner.run(tests_of(self._repository, branch, self._command))
        said = f"in a fresh sandbox, the tests of {branch} " + ("pass" if good else "fail, as they did before")
        return Claim(said, (outcome.exit_code == 0) is good, outcome.text[-2000:])


def _archive(repository: Path, branch: str) -> bytes:
    command = ["git", "--git-dir", str(repository), "archive", "--format=tar", f"refs/heads/{branch}"]
    return subprocess.run(command, check=True, capture_output=True).stdout


async def tests_of(repository: Path, branch: str, command: str) -> Outcome:
    """Run the test command on a clean checkout of a branch, in a sandbox: what a model wrote is not run outside one."""
    tar = await asyncio.to_thread(_archive, repository, branch)

    async def stream() -> AsyncIterator[bytes]:
        yield tar

    with tempfile.TemporaryDirectory() as state:
        async with (
            chosen_backend(SandboxConfig(), state=Path(state)) as backend,
            backend.open(SandboxSpec(), stream()) as sandbox,
        ):
            return await sandbox.run(Command(argv=("/bin/sh", "-c", command)))


def leaks(stack: Stack, canary: str) -> Iterator[Claim]:
    """That the broker's secret is where it was put and nowhere else; asked as root or you, and as the daemon's user."""
    layout, house = stack.layout, stack.house
    kept = str(layout.credential)
    folders = [str(layout.base / name) for name in ("etc", "log", "swarm", "broker", "broker-run", "person")]
    memory = [stack.daemon.pid] if house.parted else []  # else the kernel may not let us look
    found = scan(house.person, canary, folders=folders, memory=memory, trees=[stack.daemon.pid, stack.broker.pid])
    yield Claim(
        "the planted credential lies in the broker's file and in no other file, argument, environment or daemon memory",
        found == [kept],
        "\n".join(found),
    )
    if not house.parted:
        return
    shut = [kept, str(layout.broker_toml), str(layout.broker_state), *private_of(stack.broker.pid)]
    found = scan(house.daemon, canary, folders=folders, shut=shut)
    yield Claim("the daemon's user can read neither it nor the broker's process", found == [], "\n".join(found))


def leaks_inside(stack: Stack, canary: str, pid: int) -> Iterator[Claim]:
    """That the sandbox which process ``pid`` is in holds no secret, and none of the stack's folders. Needs root."""
    root = Path("/proc") / str(pid) / "root"
    shown = [path for path in (root / str(layout)[1:] for layout in stack_paths(stack)) if path.exists()]
    yield Claim("the sandbox sees none of the stack's folders", shown == [], f"{shown}")
    folders = [str(root / name) for name in ("work", "workspace", "tmp", "home", "run", "var", "etc", "dev/shm")]
    found = scan(stack.house.person, canary, folders=folders, trees=[pid])
    yield Claim("the sandbox's files, arguments and environment hold no secret", found == [], "\n".join(found))


def stack_paths(stack: Stack) -> tuple[Path, ...]:
    """What no sandbox may see."""
    layout = stack.layout
    return (
        layout.credential,
        layout.broker_toml,
        layout.broker_socket,
        layout.person_socket,
        layout.daemon_socket,
        layout.daemon_state,
    )


def private_of(pid: int) -> list[str]:
    """The places in /proc through which a process gives away what it knows."""
    return [f"/proc/{pid}/{name}" for name in ("environ", "mem", "maps", "fd")]


def scan(account: Account, canary: str, **where: list[Any]) -> list[str]:
    """Run scripts/canary.py as ``account``; what it found. The secret travels over standard input."""
    user, group, groups = identity(account)
    python = str(Path(sys.executable).resolve())
    done = subprocess.run(
        [python, "-I", "-c", SCANNER.read_text("utf-8")],
        input=json.dumps({"secret": canary, **where}),
        capture_output=True, text=True, check=False, timeout=300, cwd="/", env=environment(Path("/")),
        user=user, group=group, extra_groups=groups,
    )  # fmt: skip
    if done.returncode != 0:
        raise StackError(f"the search for the secret broke: {done.stderr}")
    found: list[str] = json.loads(done.stdout)
    return found
