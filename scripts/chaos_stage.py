"""What the chaos runs on: Postgres, a broker, a pretend model server and worker daemons, each of them a process."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from house import CHECKOUT, of_one_user
from stack import Process, bare_repository, environment, write

POSTGRES = CHECKOUT / "scripts" / "postgres"
MODEL = CHECKOUT / "scripts" / "chaos_model.py"
REPOSITORY = {
    "clamp.py": "def clamp(x, low, high):\n    return max(low, min(x, low))\n",
    "test_clamp.py": (
        "import unittest\n\nfrom clamp import clamp\n\n\nclass Clamp(unittest.TestCase):\n"
        "    def test_high(self):\n        self.assertEqual(clamp(9, 0, 5), 5)\n\n"
        "    def test_low(self):\n        self.assertEqual(clamp(-1, 0, 5), 0)\n"
    ),
}
TEST = "python3 -m unittest -v"


def free_port() -> int:
    """A port of the loopback address that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@dataclass
class Chaos:
    """All processes and their folders. ``shared`` has the workers share one Postgres; else there is one, on SQLite."""

    base: Path
    shared: bool
    workers: int
    slots: int
    port: int = field(default_factory=free_port)
    database: str = ""
    password: str = ""
    model: Process = field(init=False)
    broker: Process = field(init=False)
    daemons: list[Process] = field(init=False)

    @property
    def broker_socket(self) -> Path:
        """Where the broker listens for the workers."""
        return self.base / "b.sock"

    @property
    def people(self) -> Path:
        """Where it listens for people."""
        return self.base / "p.sock"

    @property
    def forge(self) -> Path:
        """The bare repository."""
        return self.base / "forge" / "demo.git"

    @property
    def answers(self) -> Path:
        """What the model said, a line each."""
        return self.base / "answers.jsonl"

    def socket(self, number: int) -> Path:
        """Where a worker's api listens."""
        return self.base / f"w{number}" / "s.sock"

    def state(self, number: int) -> Path:
        """A worker's state folder."""
        return self.base / f"w{number}" / "state"

    def prepare(self) -> None:
        """Folders, settings and the database; nothing runs yet but that."""
        house = of_one_user()
        tree = self.base / "tree"
        tree.mkdir()
        for name, text in REPOSITORY.items():
            (tree / name).write_text(text)
        (self.base / "forge").mkdir()
        bare_repository(tree, self.forge, house.broker)
        write(self.base / "key", secrets.token_hex(24), house.broker, 0o600)
        write(self.base / "broker.toml", self._broker_toml(), house.broker, 0o600)
        if self.shared:
            self._start_postgres()
        python, env = sys.executable, environment(self.base, {"PYTHONPATH": f"{CHECKOUT}:{CHECKOUT / 'scripts'}"})
        argv: tuple[str, ...] = (python, str(MODEL), str(self.port), str(self.answers))
        self.model = Process("model", argv, house.daemon, env, self.base / "model.log")
        argv = (python, "-m", "broker", "serve", "--config", str(self.base / "broker.toml"))
        self.broker = Process("broker", argv, house.broker, env, self.base / "broker.log")
        self.daemons = []
        for number in range(self.workers):
            self.state(number).mkdir(parents=True)
            path = self.base / f"w{number}" / "swarm.toml"
            write(path, self._swarm_toml(number), house.daemon, 0o600)
            argv = (python, "-m", "swarm", "--config", str(path), "daemon")
            self.daemons.append(Process(f"worker {number}", argv, house.daemon, env, self.base / f"w{number}.log"))

    def start(self) -> None:
        """Start everything and wait until it listens."""
        self.model.start()
        self.start_broker()
        for number, daemon in enumerate(self.daemons):
            daemon.start()
            daemon.wait_for(self.socket(number))

    def start_broker(self) -> None:
        """Start the broker and wait until it listens for people, the last that it does."""
        self.broker.start()
        self.broker.wait_for(self.people)

    def restart_postgres(self) -> None:
        """End it as a power cut would, and start it again."""
        run(POSTGRES, "stop", self.base / "postgres", "--crash")
        self._start_postgres()

    def stop(self) -> None:
        """End all of it, workers first."""
        for process in (*self.daemons, self.model, self.broker):
            process.stop()
        if self.shared:
            run(POSTGRES, "stop", self.base / "postgres")

    def _start_postgres(self) -> None:
        folder = self.base / "postgres"
        words = ("--port", self.database.rsplit(":", 1)[1].split("/")[0]) if self.database else ()
        run(POSTGRES, "start", folder, *words)
        self.database = run(POSTGRES, "url", folder).strip()

    def _broker_toml(self) -> str:
        uid = os.getuid()
        return (
            f'socket = "{self.broker_socket}"\nperson_socket = "{self.people}"\nstate = "{self.base}/broker-state"\n'
            f"[roles]\nperson = [{uid}]\ncoordinator = [{uid}]\n"
            f'[repositories.demo]\nforge = "local"\npath = "{self.forge}"\ncredential.token.file = "{self.base}/key"\n'
            "[repositories.demo.policy]\nmax_open_pulls = 1000\nmax_per_hour = 500\nmax_per_day = 500\n"
        )

    def _swarm_toml(self, number: int) -> str:
        lines = [
            "[daemon]",
            f'state = "{self.state(number)}"',
            f'socket = "{self.socket(number)}"',
            f'host = "w{number}"',
            f"workers = {self.slots}",
            "drain_timeout = 2.0",
            "heartbeat = 1.0",
            "lease = 5.0",
            "grace = 5.0",
        ]
        if self.shared:
            lines.append(f'database = "{self.database}"')
            lines.append(f'database_password_file = "{self.base}/postgres/password"')
        lines += [
            "[broker]",
            f'socket = "{self.broker_socket}"',
            f'person_socket = "{self.people}"',
            "[limits]",
            "attempts = 50",
            "wall = 3600.0",
            "[repositories.demo]",
            f'test_command = "{TEST}"',
            'strategy = "agent"',
            "[[pool.endpoints]]",
            'name = "chaos"',
            f'url = "http://127.0.0.1:{self.port}/v1"',
            'tier = "small"',
            "[sandbox]",
            'backend = "bwrap"',
        ]
        return "\n".join(lines) + "\n"


def run(*words: object) -> str:
    """Run a program of ours; what it prints. Raises CalledProcessError, its complaint on standard error."""
    return subprocess.run([str(word) for word in words], check=True, stdout=subprocess.PIPE, text=True).stdout


@contextmanager
def staged(*, shared: bool, workers: int, slots: int) -> Iterator[Chaos]:
    """A running stage under a short folder (sockets have short names); nothing is left of it afterwards."""
    base = Path(tempfile.mkdtemp(prefix="chaos-"))
    base.chmod(0o755)  # Postgres works as another user
    stage = Chaos(base, shared, workers, slots)
    try:
        stage.prepare()
        stage.start()
        yield stage
    finally:
        with suppress(AttributeError, subprocess.CalledProcessError):
            stage.stop()
        shutil.rmtree(base, ignore_errors=True)


def sandboxes() -> set[int]:
    """Processes of bubblewrap on this machine."""
    found = set()
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdigit() and (entry / "comm").read_text().strip() in {"bwrap", "bwrap-exec"}:
                found.add(int(entry.name))
    return found


def below(pid: int) -> set[int]:
    """All descendants of a process, as the kernel tells now."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError, IndexError):
            if entry.name.isdigit():
                parents[int(entry.name)] = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
    found: set[int] = set()
    edge = {pid}
    while edge := {child for child, parent in parents.items() if parent in edge} - found:
        found |= edge
    return found


def kill(pid: int) -> None:
    """SIGKILL, if it is still there."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
