"""A coordinator that is an adversary: its user, its socket, and everything that they can reach on the machine.

The broker is a process of another user, the forge an HTTP server with real git behind it, the credential a canary.
"""

from __future__ import annotations

import base64
import grp
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx
import pytest

from broker.client import Client
from broker.wire import GrantRequest, Proposal, encode_proposal
from tests.forges.gitea_stand_in import GiteaStandIn
from tests.forges.stand_in import TOKEN, serving

pytestmark = [pytest.mark.slow, pytest.mark.root]

BROKER, COORDINATOR = 54322, 54321
GROUP = grp.getgrnam("users").gr_gid
SCRIPT = Path(__file__).with_name("adversary.py")
CANARIES = [
    TOKEN,
    base64.b64encode(f"x:{TOKEN}".encode()).decode()[4:-4],
    base64.b64encode(f"xy:{TOKEN}".encode()).decode()[4:-4],
    base64.b64encode(TOKEN.encode()).decode()[:-4],
]
PERSONS = [
    ("POST", "/v1/grant"),
    ("GET", "/v1/grants"),
    ("POST", "/v1/stops"),
    ("GET", "/v1/log"),
    ("GET", "/v1/outbox"),
    ("POST", "/v1/outbox/x/approve"),
    ("POST", "/v1/pulls/demo/1/merge"),
]
SOURCES = {
    "file": 'credential.token.file = "{secret}"',
    "command": 'credential.token.command = ["/bin/cat", "{secret}"]',
    "systemd": 'credential.token.file = "{secret}"',
}


@pytest.fixture(scope="module")
def forge(tmp_path_factory):
    with serving(GiteaStandIn(tmp_path_factory.mktemp("forge"))) as running:
        yield running


class Installed:
    """A broker under a user of its own, in a folder that all can enter."""

    def __init__(self, folder: Path, forge, python: str, kind: str) -> None:
        self.folder, self.python, self.project = folder, python, forge.project()
        self.socket, self.people = folder / "run" / "broker.sock", folder / "run" / "person.sock"
        self.home, self.secret = folder / "broker", folder / "broker" / "credential"
        self.config = self.home / "broker.toml"
        for path in (folder / "run", self.home):
            path.mkdir()
        self.secret.write_text(TOKEN + "\n")
        self.secret.chmod(0o440 if kind == "systemd" else 0o600)
        self.config.write_text(
            f'socket = "{self.socket}"\nstate = "{self.home}/state"\nperson_group = "users"\n'
            f"[roles]\nperson = [0]\ncoordinator = [0, {COORDINATOR}]\n"
            f'[repositories.demo]\nforge = "gitea"\nurl = "{forge.url}/{self.project.path}"\n'
            + SOURCES[kind].format(secret=self.secret)
            + "\n"
        )
        self.config.chmod(0o600)
        for path in (folder / "run", self.home, self.secret, self.config):
            os.chown(path, BROKER, BROKER)
        self.home.chmod(0o711)  # the adversary may look for names that it can guess
        env = {"PATH": "/usr/local/bin:/usr/bin:/bin"}
        env |= {"CREDENTIALS_DIRECTORY": str(self.home)} if kind == "systemd" else {}
        drop = ["setpriv", f"--reuid={BROKER}", f"--regid={BROKER}", f"--groups={GROUP}", "--no-new-privs"]
        self.others: list[subprocess.Popen[str]] = []
        self.log = folder / "output"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [*drop, python, "-m", "broker", "serve", "--config", str(self.config)],
                cwd="/", env=env, stdout=log, stderr=log,
            )  # fmt: skip

    def wait(self) -> None:
        until = time.monotonic() + 60
        while not self.listens() and self.process.poll() is None:
            assert time.monotonic() < until
            time.sleep(0.05)
        assert self.process.poll() is None, self.log.read_text()

    def listens(self) -> bool:
        with socket.socket(socket.AF_UNIX) as probe:
            return probe.connect_ex(str(self.people)) == 0

    def told(self) -> dict:
        places = {"socket": str(self.socket), "people": str(self.people), "persons": PERSONS}
        return {
            **places,
            "uid": BROKER,
            "broker": self.process.pid,
            "canaries": CANARIES,
            "folders": [str(self.folder)],
        }

    def as_coordinator(self, what: str) -> subprocess.Popen[str]:
        drop = ["setpriv", f"--reuid={COORDINATOR}", f"--regid={COORDINATOR}", "--clear-groups"]
        script = self.folder / "adversary.py"
        shutil.copy(SCRIPT, script)
        process = subprocess.Popen(
            [*drop, self.python, str(script), what],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd="/", env={"PATH": "/usr/bin:/bin"},
        )  # fmt: skip
        self.others.append(process)
        process.stdin.write(json.dumps(self.told()) + "\n")
        process.stdin.flush()
        return process

    def propose(self, task: str = "t1", content: str = "three\n", **more) -> httpx.Response:
        with Client(self.people) as client:
            grant = client.grant(GrantRequest(repository="demo", task=task))
        bare = self.project.bare
        commit = bare.commit({"c.txt": content})
        tree = bare.git("rev-parse", f"{commit}^{{tree}}")
        pack = subprocess.run(
            ["git", "pack-objects", "-q", "--stdout", "--revs"],
            input=f"{tree}\n".encode(), env={"GIT_DIR": str(bare.path), "PATH": os.environ["PATH"]},
            capture_output=True, check=True,
        ).stdout  # fmt: skip
        values = {"id": f"{task}-p", "capability": grant.capability, "task": task, "base_commit": grant.base_commit}
        made = Proposal.model_validate({**values, "tree": tree, "title": "Say three", **more})
        return self.call("POST", "/v1/propose", encode_proposal(made, pack))

    def call(self, verb: str, path: str, body: bytes | None = None, *, people: bool = False) -> httpx.Response:
        transport = httpx.HTTPTransport(uds=str(self.people if people else self.socket))
        with httpx.Client(transport=transport, base_url="http://b", timeout=60) as http:
            return http.request(verb, path, content=body)


@pytest.fixture
def install(forge, python_of_all):
    made = []
    folder = Path(tempfile.mkdtemp(prefix="swarm-adversary-"))  # every pytest that starts shuts the folder of its own
    folder.chmod(0o755)

    def make(kind="file"):
        made.append(Installed(folder, forge, python_of_all, kind))
        made[-1].wait()
        return made[-1]

    yield make
    for one in made:
        for process in (one.process, *one.others):
            with process:
                process.kill()
    shutil.rmtree(folder)


@pytest.mark.parametrize("kind", SOURCES)
def test_a_credential_of_every_kind_is_seen_by_nobody_while_it_is_used(install, kind):
    broker = install(kind)
    spy = broker.as_coordinator("spy")
    answer = broker.propose()
    assert answer.json()["kind"] == "receipt", answer.text
    seen = json.loads(spy.communicate(timeout=30)[0])
    assert any(program.endswith("git") for program in seen["programs"]), seen  # it did see the children at work
    assert seen["found"] == []
    assert seen["opened"] == []
    assert any("swarm/t1" in ref for ref in broker.project.bare.refs())
    told = answer.text
    for path in ("log", "outbox", "outbox/t1-p", "proposals/t1-p", "pulls/demo", "pulls/demo/1", "grants", "key"):
        told += broker.call("GET", f"/v1/{path}", people=True).text
    told += broker.log.read_text()
    assert [canary for canary in CANARIES if canary in told] == []
    kept = [path for path in broker.folder.rglob("*") if path.is_file() and path != broker.secret]
    assert [path for path in kept for canary in CANARIES if canary.encode() in path.read_bytes()] == []
    log = broker.call("GET", "/v1/log", people=True).json()["entries"]
    lent = [entry["fields"] for entry in log if entry["event"] == "token-lent"]
    assert {fields["scope"] for fields in lent} >= {"read", "push", "pulls"}
    assert {len(fields["hash"]) for fields in lent} == {12}


def test_with_the_coordinator_s_socket_there_is_nothing_that_no_capability_names(install):
    broker = install()
    attack = broker.as_coordinator("attack")
    got = json.loads(attack.communicate(timeout=60)[0])
    assert got["health"] == 200
    assert got["persons routes"] == [404] * len(PERSONS)
    assert got["persons socket"] == ["ConnectError"] * len(PERSONS)
    assert got["forged"] == [403] * 3
    assert got["proc"] == []
    assert got["ptrace"] == "Operation not permitted"
    assert (got["signal"], got["unlink"], got["bind"]) == ("PermissionError",) * 3
    assert got["found"] == []
    assert {Path(path).name for path in got["read"]} <= {"adversary.py", "output"}


def test_a_broker_that_crashes_leaves_no_core(install):
    broker = install()
    before = {path.name for path in Path("/").glob("core*")}
    os.kill(broker.process.pid, signal.SIGABRT)
    _, status = os.waitpid(broker.process.pid, 0)
    broker.process.returncode = -signal.SIGABRT
    assert os.WIFSIGNALED(status)
    assert not os.WCOREDUMP(status)
    assert {path.name for path in Path("/").glob("core*")} == before


def test_the_planted_credential_stops_everything_when_the_coordinator_brings_it_along(install, python_of_all):
    broker = install()
    broker.process.send_signal(signal.SIGTERM)
    broker.process.wait(40)
    home = broker.folder / "home"
    home.mkdir(mode=0o700)
    os.chown(home, COORDINATOR, COORDINATOR)
    text = broker.config.read_text()
    broker.config.write_text(f'canary.file = "{home}/.git-credentials"\n{text}')
    command = [sys.executable, "-m", "broker", "canary", "plant", "--config", str(broker.config)]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    planted = (home / ".git-credentials").read_text().partition("x-access-token:")[2].partition("@")[0]
    assert planted.startswith("ghp_")
    assert planted not in said
    again = Installed.__new__(Installed)
    again.__dict__.update(broker.__dict__)
    drop = ["setpriv", f"--reuid={BROKER}", f"--regid={BROKER}", f"--groups={GROUP}", "--no-new-privs"]
    with broker.log.open("ab") as log:
        again.process = broker.process = subprocess.Popen(
            [*drop, python_of_all, "-m", "broker", "serve", "--config", str(broker.config)],
            cwd="/", env={"PATH": "/usr/local/bin:/usr/bin:/bin"}, stdout=log, stderr=log,
        )  # fmt: skip
    again.wait()
    assert again.propose("honest").json()["kind"] == "receipt"
    hidden = base64.b64encode(f"look: {planted}".encode()).decode()
    stolen = again.propose("stolen", body=hidden)
    assert stolen.status_code == 403
    assert "planted" not in stolen.text
    late = again.call("POST", "/v1/grant", b'{"repository": "demo", "task": "late"}', people=True)
    assert (late.status_code, late.json()["code"]) == (423, "stopped")
    assert again.call("POST", "/v1/stops", b'{"stopped": false}', people=True).status_code == 200
    packed = again.propose("packed", content=f"# {planted[::-1]}\n").json()
    assert [(one["rule"], one["severity"]) for one in packed["findings"]] == [("turned-away", "fatal")]
    assert again.call("GET", "/v1/stops", people=True).json()["stops"]
    log = again.call("GET", "/v1/log", people=True).json()["entries"]
    seen = [entry["fields"]["where"] for entry in log if entry["event"] == "canary-seen"]
    assert f"uid {os.getuid()}" in seen[0]
    assert "content of c.txt in proposal packed" in seen[1]
    assert not any("packed" in ref for ref in again.project.bare.refs())
    assert planted not in json.dumps(log) + again.log.read_text()
