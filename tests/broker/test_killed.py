"""kill -9 at each row of a delivery: the process dies there, the next one finishes, and there is one of everything."""

from __future__ import annotations

import itertools
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from broker.client import Client
from broker.delivery.courier import STEPS
from broker.outbox.database import Database
from broker.outbox.steps import Steps
from broker.wire import Grant, GrantRequest, Proposal, Receipt, Refusal, Waiting, encode_proposal

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
ROWS = (("begin", "before"), ("begin", "after"), ("end", "before"), ("end", "after"))
NEW = [(step.name, *row) for step in STEPS if not step.updates for row in ROWS]
UPDATES = [(name, *row) for name in ("branch", "compared", "pull-request", "revised") for row in ROWS]

# A broker that kills itself at one row of one proposal: before it is written or when it is on disk.
_DYING = """
import os, signal, sys
from pathlib import Path
from broker import server
from broker.config.live import Live
from broker.config.loading import load
from broker.outbox import store
from broker.outbox.steps import Steps

PROPOSAL, MOMENT = sys.argv[2], tuple(sys.argv[3].split())

class Dying(Steps):
    def begin(self, proposal, name):
        self.row(proposal, (name, "begin"), lambda: super(Dying, self).begin(proposal, name))

    def end(self, proposal, name, result):
        self.row(proposal, (name, "end"), lambda: super(Dying, self).end(proposal, name, result))

    def row(self, proposal, row, write):
        if (proposal, *row, "before") == (PROPOSAL, *MOMENT):
            os.kill(os.getpid(), signal.SIGKILL)
        write()
        if (proposal, *row, "after") == (PROPOSAL, *MOMENT):
            os.kill(os.getpid(), signal.SIGKILL)

store.Steps = Dying
path = Path(sys.argv[1])
server.serve(Live(path, load(path)))
"""


class Place:
    """Settings, the sockets of whichever broker runs just now, and an agent's store."""

    def __init__(self, folder: Path, agent) -> None:
        self.folder, self.agent = folder, agent
        self.config = folder / "broker.toml"
        who = f"[{os.getuid()}]"
        self.config.write_text(
            f'socket = "{folder}/run/broker.sock"\nstate = "{folder}/state"\n'
            f"[roles]\nperson = {who}\ncoordinator = {who}\n"
            f'[repositories.demo]\nforge = "local"\npath = "{folder}/demo.git"\n'
            "[repositories.demo.policy]\nmax_open_pulls = 1000\nmax_per_hour = 500\nmax_per_day = 5000\n"
        )
        self.config.chmod(0o600)
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *command: str) -> None:
        """Starts a broker and waits until it listens; what was interrupted goes on beside that."""
        with (self.folder / "said").open("w") as said:
            self.process = subprocess.Popen([sys.executable, *command], cwd=ROOT, stderr=said)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and self.process.poll() is None:
            if self.listens():
                return
            time.sleep(0.02)
        raise AssertionError(f"the broker did not start: {self.process.poll()}")

    def listens(self) -> bool:
        with socket.socket(socket.AF_UNIX) as first, socket.socket(socket.AF_UNIX) as second:
            both = (first, "broker.sock"), (second, "person.sock")
            return all(one.connect_ex(str(self.folder / "run" / name)) == 0 for one, name in both)

    def dying(self, proposal: str, moment: tuple[str, str, str]) -> None:
        self.start("-c", _DYING, str(self.config), proposal, " ".join(moment))

    def end(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait(20)

    def call(self, verb: str, path: str, body: bytes | None = None) -> httpx.Response:
        transport = httpx.HTTPTransport(uds=str(self.folder / "run" / "broker.sock"))
        with httpx.Client(transport=transport, base_url="http://b", timeout=60) as http:
            return http.request(verb, path, content=body)

    def people(self) -> Client:
        return Client(self.folder / "run" / "person.sock")

    def grant(self, task: str) -> Grant:
        with self.people() as client:
            return client.grant(GrantRequest(repository="demo", task=task, uses=2))

    def body(self, grant: Grant, task: str, name: str, on: str, **more) -> bytes:
        tree = self.agent.tree(on, {"src/clamp.py": f"# {name}\n".encode()})
        words = {"id": name, "capability": grant.capability, "task": task, "base_commit": on, "tree": tree}
        proposal = Proposal.model_validate({**words, "title": name, **more})
        return encode_proposal(proposal, self.agent.pack(tree, on))

    def dies(self, body: bytes) -> None:
        """Offers it and sees the broker fall."""
        with pytest.raises(httpx.TransportError):
            self.call("POST", "/v1/propose", body)
        assert self.process is not None
        assert self.process.wait(20) == -signal.SIGKILL


@pytest.fixture
def place(tmp_path, agent):
    made = Place(tmp_path, agent)
    yield made
    made.end()


def settled(client: Client, proposal: str) -> Receipt | Refusal | Waiting:
    """The verdict, which comes soon after a start."""
    deadline = time.monotonic() + 60
    while isinstance(found := client.proposal(proposal), Waiting) and time.monotonic() < deadline:
        time.sleep(0.05)
    return found


def assert_once(place: Place, wanted: dict[str, tuple[str, tuple[str, str, str]]]) -> None:
    """Every proposal has its receipt, its one branch and its one pull request; the chain holds."""
    refs = dict(
        line.split()[::-1] for line in place.agent.git("ls-remote", str(place.folder / "demo.git")).splitlines()
    )
    branches = {ref.rpartition("/")[2]: commit for ref, commit in refs.items() if ref.startswith("refs/heads/swarm/")}
    with place.people() as client:
        pulls = client.pulls("demo").pulls
        for proposal, (task, moment) in wanted.items():
            receipt = settled(client, proposal)
            assert isinstance(receipt, Receipt), moment
            assert branches[task] == receipt.commit, moment
            assert [pull.commit for pull in pulls if pull.task == task] == [receipt.commit], moment
            signed = place.call("GET", f"/v1/provenance/demo/{receipt.number}")
            assert signed.status_code == 200, moment
    assert len(branches) == len(pulls) == len({task for task, _ in wanted.values()})
    check = [sys.executable, "-m", "broker", "log", "verify", "--config", str(place.config)]
    checked = subprocess.run(check, cwd=ROOT, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.timeout(600)  # some thirty processes, one after another
def test_a_broker_killed_at_any_row_of_a_delivery_leaves_one_branch_and_one_pull_request(place):
    wanted = {}
    for number, moment in enumerate(NEW):
        name, task = f"p{number}", f"t{number}"
        place.dying(name, moment)  # which finishes what the one before left
        grant = place.grant(task)
        place.dies(place.body(grant, task, name, grant.base_commit))
        wanted[name] = (task, moment)
    place.start("-m", "broker", "serve", "--config", str(place.config))
    assert_once(place, wanted)


@pytest.mark.timeout(600)  # some thirty processes, one after another
def test_a_broker_killed_at_any_row_of_an_update_moves_the_branch_once(place):
    wanted = {}
    for number, moment in enumerate(UPDATES):
        name, task = f"u{number}", f"t{number}"
        place.dying(name, moment)
        grant = place.grant(task)
        first = place.call("POST", "/v1/propose", place.body(grant, task, f"first-{name}", grant.base_commit))
        commit = Receipt.model_validate_json(first.content).commit
        place.agent.git("fetch", "-q", str(place.folder / "demo.git"), f"refs/heads/swarm/{task}")
        place.dies(place.body(grant, task, name, commit, update=True))
        wanted[name] = (task, moment)
    place.start("-m", "broker", "serve", "--config", str(place.config))
    assert_once(place, wanted)
    for name, (task, moment) in wanted.items():
        count = place.agent.git(
            "--git-dir", str(place.folder / "demo.git"), "rev-list", "--count", f"main..swarm/{task}"
        )
        assert count == "2", (name, moment)


def test_two_brokers_on_one_state_one_acts_and_the_other_ends(place, tmp_path):
    place.start("-m", "broker", "serve", "--config", str(place.config))
    grant = place.grant("t1")
    body = place.body(grant, "t1", "p1", grant.base_commit)
    database = Database(tmp_path / "state" / "outbox.sqlite")  # as a second broker whose lock is not the first one's
    try:
        with pytest.raises(httpx.TransportError):
            place.call("POST", "/v1/propose", body)
        assert place.process is not None
        assert place.process.wait(20) not in {0, -signal.SIGKILL}
        assert "another broker has taken over" in (tmp_path / "said").read_text()
        assert Steps(database).begun("p1") == ()
        assert "swarm/t1" not in place.agent.git("ls-remote", str(tmp_path / "demo.git"))
    finally:
        database.close()
    place.start("-m", "broker", "serve", "--config", str(place.config))
    assert isinstance(Receipt.model_validate_json(place.call("POST", "/v1/propose", body).content), Receipt)


def test_every_row_is_among_the_moments():
    assert len(NEW) == 4 * sum(not step.updates for step in STEPS) == 28
    assert set(itertools.chain(NEW, UPDATES)) >= {(step.name, *row) for step in STEPS for row in ROWS}
