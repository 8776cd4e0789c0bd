"""The broker as a process of its own, met only through its socket and its signals."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from broker.client import Client
from broker.person_wire import StopRequest
from broker.wire import GrantRequest, Proposal, Receipt, Refusal, Waiting, encode_proposal

pytestmark = pytest.mark.slow


ROOT = Path(__file__).parents[2]
CANARY = "canary-7f3a-credential"


class Running:
    """A broker process, its socket and the agent's store beside it."""

    def __init__(self, folder: Path, agent, *, roles: str = "", more: str = "") -> None:
        self.folder, self.agent = folder, agent
        self.socket = folder / "run" / "broker.sock"
        self.people = folder / "run" / "person.sock"
        self.config = folder / "broker.toml"
        credential = folder / "credential"
        credential.write_text(CANARY)
        credential.chmod(0o600)
        roles = roles or f"person = [{os.getuid()}]\ncoordinator = [{os.getuid()}]"
        self.config.write_text(
            f'socket = "{self.socket}"\nstate = "{folder}/state"\n{more}\n[roles]\n{roles}\n'
            f'[repositories.demo]\nforge = "local"\npath = "{folder}/demo.git"\n'
            f'credential.token.file = "{credential}"\n'
        )
        self.config.chmod(0o600)
        self.environment = {"PATH": os.environ["PATH"]}
        self.process: subprocess.Popen[str] | None = None

    def command(self) -> list[str]:
        """How it is started."""
        return [sys.executable, "-m", "broker", "serve", "--config", str(self.config)]

    def start(self) -> Running:
        self.process = subprocess.Popen(
            self.command(),
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=self.environment,
        )
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline and self.process.poll() is None:
            if self.listens():
                return self
            time.sleep(0.05)
        raise AssertionError(self.end(signal.SIGKILL))

    def listens(self) -> bool:
        """Whether somebody accepts connections on both sockets."""
        with socket.socket(socket.AF_UNIX) as first, socket.socket(socket.AF_UNIX) as second:
            return first.connect_ex(str(self.socket)) == 0 == second.connect_ex(str(self.people))

    def end(self, number: int = signal.SIGTERM) -> str:
        """Sends a signal and returns all output."""
        if self.process is None:
            return ""
        if self.process.poll() is None:
            self.process.send_signal(number)
        said, _ = self.process.communicate(timeout=40)
        return said

    def client(self) -> Client:
        return Client(self.people)

    def call(self, verb: str, path: str, body: bytes | None = None, *, people: bool = False, **more) -> httpx.Response:
        transport = httpx.HTTPTransport(uds=str(self.people if people else self.socket))
        with httpx.Client(transport=transport, base_url="http://b", timeout=60) as http:
            return http.request(verb, path, content=body, **more)

    def proposal(self, task: str = "t1", content: bytes = b"fixed\n", path: str = "src/clamp.py") -> bytes:
        with self.client() as client:
            grant = client.grant(GrantRequest(repository="demo", task=task))
        tree = self.agent.tree(grant.base_commit, {path: content})
        made = Proposal(
            id=f"{task}-p", capability=grant.capability, task=task, base_commit=grant.base_commit, tree=tree, title="T"
        )
        return encode_proposal(made, self.agent.pack(tree, grant.base_commit))


def settled(client: Client, proposal: str) -> Receipt | Refusal | Waiting:
    """The verdict, which comes soon after a start."""
    deadline = time.monotonic() + 30
    while isinstance(found := client.proposal(proposal), Waiting) and time.monotonic() < deadline:
        time.sleep(0.05)
    return found


def alive(pid: int) -> bool:
    """Whether a process runs, a moment after it was killed."""
    stat_file = Path(f"/proc/{pid}/stat")
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        if not stat_file.exists() or stat_file.read_text().rpartition(")")[2].split()[0] == "Z":
            return False
        time.sleep(0.05)
    return True


def wait_for(running: Running) -> None:
    deadline = time.monotonic() + 30
    while not running.listens() and time.monotonic() < deadline and running.process.poll() is None:
        time.sleep(0.05)


@pytest.fixture
def make_running(tmp_path, agent):
    made = []

    def make(*, folder=tmp_path, **more):
        made.append(Running(folder, agent, **more))
        return made[-1]

    yield make
    for one in made:
        one.end(signal.SIGKILL)


@pytest.fixture
def running(make_running):
    return make_running().start()


def test_concurrent_identical_proposals_over_the_socket_make_one_pull_request_that_can_be_merged(running):
    body = running.proposal()
    with running.client() as client, ThreadPoolExecutor(4) as pool:
        answers = set(pool.map(lambda _: running.call("POST", "/v1/propose", body).content, range(4)))
        receipt = Receipt.model_validate_json(answers.pop())
        assert not answers
        assert len(client.pulls("demo").pulls) == 1
        assert client.proposal("t1-p") == receipt
        assert client.pull("demo", 1).pull.commit == receipt.commit
        assert client.merge("demo", 1).state == "merged"
    assert running.agent.git("ls-remote", str(running.folder / "demo.git"), "refs/heads/main").startswith(
        receipt.commit
    )


def test_sigterm_ends_calmly_and_a_restart_goes_on(running):
    running.call("POST", "/v1/propose", running.proposal())
    running.end()
    assert running.process.returncode == 0
    assert not running.socket.exists()
    running.start()
    with running.client() as client:
        assert isinstance(client.proposal("t1-p"), Receipt)
        assert {"start", "stop"} <= {entry.event for entry in client.log(0).entries}


def test_a_call_in_flight_is_finished_before_the_end(make_running, tmp_path):
    hook, begun = tmp_path / "hook", tmp_path / "begun"
    hook.write_text(f"#!/bin/sh\ntouch {begun}\nsleep 1\n")
    hook.chmod(0o755)
    running = make_running()
    running.config.write_text(running.config.read_text() + f'policy.hook = ["{hook}"]\n')
    running.start()
    body = running.proposal()
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(running.call, "POST", "/v1/propose", body)
        while not begun.exists() and not answer.done():
            time.sleep(0.02)
        running.end()
        assert answer.result().status_code == 200


# --- kill -9


_DYING = """
import os, signal, sys
from pathlib import Path
from broker import server
from broker.config.live import Live
from broker.config.loading import load
from broker.forge import making
from broker.forge.local import LocalForge

class Dying(LocalForge):
    def push(self, *args):
        done = super().push(*args)
        if sys.argv[2] == "after push":
            os.kill(os.getpid(), signal.SIGKILL)
        return done

    def open(self, order):
        if sys.argv[2] == "before open":
            os.kill(os.getpid(), signal.SIGKILL)
        pull = super().open(order)
        if sys.argv[2] == "after open":
            os.kill(os.getpid(), signal.SIGKILL)
        return pull

making.LocalForge = Dying
path = Path(sys.argv[1])
server.serve(Live(path, load(path)))
"""


@pytest.mark.parametrize("moment", ["after push", "before open", "after open"])
def test_a_kill_between_push_and_record_is_reconciled_to_one_pull_request(make_running, moment):
    running = make_running()
    command = [sys.executable, "-c", _DYING, str(running.config), moment]
    running.process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    wait_for(running)
    body = running.proposal()
    with pytest.raises(httpx.TransportError):
        running.call("POST", "/v1/propose", body)
    assert running.process.wait(10) == -signal.SIGKILL
    running.process.communicate()
    running.start()
    with running.client() as client:
        receipt = settled(client, "t1-p")
        assert isinstance(receipt, Receipt)
        assert len(client.pulls("demo").pulls) == 1
        assert "reconciled" in [entry.event for entry in client.log(0).entries]
    assert Receipt.model_validate_json(running.call("POST", "/v1/propose", body).content) == receipt


_SILENT = """
import os, signal, sys, time
from pathlib import Path
from broker import server
from broker.config.live import Live
from broker.config.loading import load
from broker.forge import making
from broker.forge.local import LocalForge

class Silent(LocalForge):
    def push(self, *args):
        time.sleep(600)

making.LocalForge = Silent
path = Path(sys.argv[1])
server.serve(Live(path, load(path)))
"""


def test_a_silent_forge_keeps_no_person_from_the_stop_before_or_after_a_restart(make_running):
    """However many calls wait for the forge, and whatever a kill left, the kill switch answers at once."""
    running = make_running()
    command = [sys.executable, "-c", _SILENT, str(running.config)]

    def start():
        running.process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        wait_for(running)
        assert running.listens()

    start()
    body = running.proposal()
    with ThreadPoolExecutor(16) as pool:
        offers = [pool.submit(running.call, "POST", "/v1/propose", body) for _ in range(8)]
        while not running.process.poll() and not offers[0].done():
            with running.client() as client:
                if client.outbox().proposals:
                    break
        discards = [
            pool.submit(running.call, "POST", "/v1/outbox/t1-p/discard", people=True, timeout=60) for _ in range(6)
        ]
        time.sleep(0.5)
        with running.client() as client:
            began = time.monotonic()
            assert client.stop(StopRequest(repository="demo", stopped=True)).stops
            assert isinstance(client.proposal("t1-p"), Waiting)
            assert time.monotonic() - began < 5
        answers = [discard.result() for discard in discards]
        assert {answer.status_code for answer in answers} == {503}
        assert all("swarm-broker stop demo" in answer.json()["mend"] for answer in answers)
        running.process.kill()
        running.process.communicate()
        assert all(offer.exception() is not None or offer.result().status_code == 503 for offer in offers)
    began = time.monotonic()
    start()
    assert time.monotonic() - began < 20
    with running.client() as client:
        client.stop(StopRequest(repository="demo", stopped=False))
    running.process.kill()
    running.process.communicate()


# --- who calls, and with what


_CALL = """
import sys, httpx
with httpx.Client(transport=httpx.HTTPTransport(uds=sys.argv[1]), base_url="http://b") as http:
    for verb, path in (line.split() for line in sys.argv[2:]):
        print(http.request(verb, path, content=b"{}" if verb == "POST" else None).status_code)
"""


@pytest.fixture
def open_folder(tmp_path, agent):
    """A folder with the repository that every user can enter; every pytest that starts shuts its own to others."""
    with tempfile.TemporaryDirectory(prefix="swarm-broker-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        shutil.copytree(tmp_path / "demo.git", folder / "demo.git")
        yield folder


@pytest.mark.root
def test_another_user_of_the_machine_is_refused_every_verb(make_running, open_folder, python_of_all):
    running = make_running(folder=open_folder).start()
    drop = ["setpriv", "--reuid=54321", "--regid=54321", "--clear-groups"]
    both = ["GET /v1/proposals/x", "GET /v1/repositories", "GET /v1/health"]
    for place, calls in (
        (running.socket, ["POST /v1/mirror", "POST /v1/propose", "POST /v1/explain", *both]),
        (running.people, ["POST /v1/grant", "GET /v1/log", "GET /v1/outbox", "GET /v1/pulls/demo", *both]),
    ):
        command = [*drop, python_of_all, "-c", _CALL, str(place), *calls]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert done.stdout.split() == ["403"] * (len(calls) - 1) + ["200"]
    for secret in (running.folder / "credential", running.config, running.folder / "state" / "signing.key"):
        assert subprocess.run([*drop, "cat", str(secret)], capture_output=True, check=False).returncode != 0


@pytest.mark.root
def test_the_broker_runs_as_a_user_without_rights(make_running, open_folder, python_of_all):
    running = make_running(folder=open_folder, roles="person = [0]\ncoordinator = [0]")
    (open_folder / "run").mkdir()
    subprocess.run(["chown", "-R", "54322:54322", str(open_folder)], check=True)
    drop = ["setpriv", "--reuid=54322", "--regid=54322", "--clear-groups", "--no-new-privs"]
    command = [*drop, python_of_all, "-m", "broker", "serve", "--config", str(running.config)]
    running.process = subprocess.Popen(command, cwd="/", stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    wait_for(running)
    assert Receipt.model_validate_json(running.call("POST", "/v1/propose", running.proposal()).content)
    assert "reading" not in running.end()


def test_the_canary_is_in_no_answer_and_no_output(running):
    said = running.call("POST", "/v1/propose", running.proposal()).text
    said += running.call("POST", "/v1/propose", running.proposal("t2", b"x", "package.json")).text
    for path in (
        "health",
        "repositories",
        "log",
        "outbox",
        "outbox/t2-p",
        "proposals/t1-p",
        "pulls/demo",
        "pulls/demo/1",
    ):
        for people in (True, False):
            said += running.call("GET", f"/v1/{path}", people=people).text
    (running.folder / "credential").write_text(CANARY + "\x01")
    body = running.proposal("t3")
    failed = running.call("POST", "/v1/propose", body)
    assert failed.status_code == 502
    pid = running.process.pid
    said += failed.text + Path(f"/proc/{pid}/cmdline").read_text()
    if os.getuid() == 0:
        said += Path(f"/proc/{pid}/environ").read_text()
    said += running.end()
    assert CANARY not in said
    for file in running.folder.rglob("*"):
        if file.is_file() and file.name != "credential":
            assert CANARY.encode() not in file.read_bytes(), file


# --- start


def start_fails(running) -> str:
    with pytest.raises(AssertionError) as caught:
        running.start()
    assert "Traceback" not in str(caught.value)
    return str(caught.value)


def test_a_second_broker_on_the_same_state_is_refused(running, make_running):
    command = [sys.executable, "-m", "broker", "serve", "--config", str(running.config)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert "another broker works in" in done.stderr
    assert running.listens()


def test_one_that_waits_takes_over_with_what_the_first_had_begun(running, make_running, tmp_path):
    second = [*running.command(), "--standby"]
    with (tmp_path / "second").open("wb") as log, subprocess.Popen(second, cwd=ROOT, stdout=log, stderr=log) as waiting:
        try:
            until = time.monotonic() + 20
            while "waiting for the broker" not in (tmp_path / "second").read_text():
                assert time.monotonic() < until
                time.sleep(0.05)
            receipt = running.call("POST", "/v1/propose", body := running.proposal())
            running.end(signal.SIGKILL)
            while "listening at" not in (tmp_path / "second").read_text():
                assert time.monotonic() < until
                time.sleep(0.05)
            assert running.call("POST", "/v1/propose", body).content == receipt.content
            with running.client() as client:
                assert len(client.pulls("demo").pulls) == 1
                assert [entry.event for entry in client.log(0).entries].count("start") == 2
        finally:
            waiting.terminate()
    assert waiting.returncode == 0


def test_a_coordinator_that_holds_all_its_connections_does_not_hold_up_a_person(running):
    with contextlib.ExitStack() as stack:
        callers = [stack.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(70)]
        for held in callers:
            held.connect(str(running.socket))
            held.sendall(b"POST /v1/propose HTTP/1.1\r\nHost: b\r\nContent-Length: 50000\r\n\r\n")
        assert running.call("POST", "/v1/stops", b'{"stopped": true}', people=True).status_code == 200
        turned_away, _, _ = select.select(callers, [], [], 10)
        assert b"503" in turned_away[0].recv(100)


def test_nonsense_and_bodies_that_are_cut_leave_no_line_in_the_output(running):
    for said in (
        b"\x16\x03\x01 nonsense\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST /v1/propose HTTP/1.1\r\nHost: b\r\nContent-Length: 500\r\n\r\nSWP1",
        b"GET /v1/events?wait=20&after=0 HTTP/1.1\r\nHost: b\r\n\r\n",
    ):
        with socket.socket(socket.AF_UNIX) as caller:
            caller.connect(str(running.socket))
            caller.sendall(said)
            time.sleep(0.2)
    assert running.call("GET", "/v1/health").status_code == 200
    lines = [line for line in running.end().splitlines() if not line.startswith(("warning: ", "swarm-broker: "))]
    assert lines == []


@pytest.mark.root
def test_a_socket_folder_of_another_user_stops_the_start(make_running, tmp_path):
    (tmp_path / "run").mkdir(mode=0o755)
    os.chown(tmp_path / "run", 4242, -1)
    assert "can be changed by uid 4242" in start_fails(make_running())


def test_the_end_does_not_wait_for_whoever_waits_for_events(running):
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(running.call, "GET", "/v1/events?after=0&wait=30")
        time.sleep(0.5)
        begun = time.monotonic()
        running.end()
        assert answer.result().status_code == 200
        assert time.monotonic() - begun < 10


def test_the_end_comes_when_the_time_is_over_even_if_a_call_hangs(make_running, tmp_path):
    hook = tmp_path / "hook"
    hook.write_text(f"#!/bin/sh\nsleep 77 &\necho $! >{tmp_path}/left\nwait\n")
    hook.chmod(0o755)
    running = make_running(more="drain_seconds = 1")
    running.config.write_text(running.config.read_text() + f'policy.hook = ["{hook}"]\n')
    running.start()
    body = running.proposal()
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(running.call, "POST", "/v1/propose", body)
        time.sleep(1.5)
        begun = time.monotonic()
        running.end()
        assert time.monotonic() - begun < 10
        assert running.process.returncode == 0
        assert not alive(int((tmp_path / "left").read_text())), "what the hook had started is ended with it"
        with contextlib.suppress(httpx.TransportError):
            assert answer.result().status_code >= 500
    hook.write_text("#!/bin/sh\nexit 0\n")
    running.start()
    assert Receipt.model_validate_json(running.call("POST", "/v1/propose", body).content)
    with running.client() as client:
        assert "1" in [entry.fields["unfinished"] for entry in client.log(0).entries if entry.event == "stop"]
        assert len(client.pulls("demo").pulls) == 1


def test_systemd_is_told_when_both_sockets_are_open(make_running, tmp_path):
    running = make_running()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(20)
        running.environment["NOTIFY_SOCKET"] = str(tmp_path / "notify")
        running.start()
        assert manager.recv(100) == b"READY=1"
        assert running.listens()


def test_a_broken_log_stops_the_start_with_its_line(running):
    running.end()
    log = running.folder / "state" / "audit.log"
    log.write_text(log.read_text().replace('"event":"stop"', '"event":"start"'))
    said = start_fails(running)
    assert running.process.returncode == 6
    assert f"line {len(log.read_text().splitlines())} " in said


def test_a_state_folder_that_others_can_enter_stops_the_start(make_running):
    running = make_running()
    (running.folder / "state").mkdir(mode=0o755)
    assert "can be entered by other users: chmod 700" in start_fails(running)


def test_a_state_folder_that_cannot_be_made_stops_the_start_with_the_mend(make_running):
    running = make_running()
    running.config.write_text(running.config.read_text().replace(f'"{running.folder}/state"', '"/proc/none/state"'))
    assert "the state folder /proc/none/state cannot be made" in start_fails(running)


@pytest.mark.root
def test_a_repository_of_another_user_stops_the_start_with_the_mend(make_running):
    running = make_running()
    os.chown(running.folder / "demo.git", 4242, -1)
    assert "does not belong to the broker's user" in start_fails(running)


def test_a_socket_folder_that_others_can_write_stops_the_start(make_running):
    running = make_running()
    (running.folder / "run").mkdir()
    (running.folder / "run").chmod(0o777)
    assert "run: chmod go-w" in start_fails(running)


def test_a_socket_left_by_a_killed_broker_is_replaced(running):
    running.end(signal.SIGKILL)
    assert running.socket.exists()
    assert running.start().listens()


def test_the_state_is_closed_to_others(running):
    running.call("POST", "/v1/propose", running.proposal("t2", b"x", "package.json"))
    for path in [running.folder / "state", *(running.folder / "state").rglob("*")]:
        assert path.stat().st_mode & 0o077 == 0, path


def test_the_socket_is_open_to_all_or_to_one_group(running, make_running):
    assert stat.S_IMODE(running.socket.stat().st_mode) == 0o666
    running.end()
    grouped = make_running(more='socket_group = "root"')
    if os.getuid() == 0:
        assert stat.S_IMODE(grouped.start().socket.stat().st_mode) == 0o660


def test_an_unknown_group_is_named(make_running):
    assert "no-such-group is no group of this machine" in start_fails(
        make_running(more='socket_group = "no-such-group"')
    )


def test_a_socket_that_another_broker_bound_meanwhile_stays(running):
    running.socket.unlink()
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(running.socket))
        running.end()
        assert running.process.returncode == 0
        assert running.socket.exists()


def events(running) -> list[tuple[str, dict[str, str]]]:
    with running.client() as client:
        return [(entry.event, entry.fields) for entry in client.log(0).entries]


def rewritten(running, text: str) -> None:
    fresh = running.config.with_suffix(".new")
    fresh.write_text(text)
    fresh.chmod(0o600)
    fresh.replace(running.config)
    time.sleep(1.1)  # it is looked at once a second at most


def test_a_changed_policy_holds_without_a_restart_and_a_broken_one_does_not(running):
    offered = running.proposal()
    good = running.config.read_text()
    rewritten(running, good + "policy.excluded_paths = ['src']\n")
    told = running.call("POST", "/v1/explain", offered).json()
    assert "path-excluded" in {finding["rule"] for finding in told["findings"]}
    rewritten(running, good + "policy.max_fils = 1\n")
    told = running.call("POST", "/v1/explain", offered).json()
    assert "path-excluded" in {finding["rule"] for finding in told["findings"]}
    rewritten(running, good.replace("coordinator = [", "coordinator = [4711, "))
    assert running.call("POST", "/v1/explain", offered).json()["findings"]
    rewritten(running, good)
    assert running.call("POST", "/v1/propose", offered).json()["kind"] == "receipt"
    seen = [(event, fields) for event, fields in events(running) if event.startswith("config-")]
    assert [event for event, _ in seen] == ["config-reloaded", "config-kept", "config-kept", "config-reloaded"]
    assert "did you mean max_files?" in seen[1][1]["reason"]
    assert "cannot change roles" in seen[2][1]["reason"]


def test_a_person_stops_the_broker_and_a_restart_does_not_start_it_again(running):
    offered = running.proposal()
    stop = b'{"stopped": true, "reason": "a leak"}'
    assert running.call("POST", "/v1/stops", stop).status_code == 404  # the coordinator's socket knows no such verb
    assert running.call("POST", "/v1/stops", stop, people=True).status_code == 200
    running.end()
    running.start()
    answer = running.call("POST", "/v1/propose", offered)
    assert (answer.status_code, answer.json()["code"]) == (423, "stopped")
    assert "a leak" in answer.json()["message"]
    assert running.call("GET", "/v1/repositories").status_code == 200
    go = b'{"stopped": false}'
    assert running.call("POST", "/v1/stops", go, people=True).json()["stops"] == []
    assert running.call("POST", "/v1/propose", offered).json()["kind"] == "receipt"


def test_a_hook_judges_in_the_real_process_with_nothing_of_it_in_reach(running, tmp_path):
    hook = tmp_path / "hook"
    hook.write_text(f"#!/bin/sh\nls -l /proc/self/fd > {tmp_path}/fds\nenv > {tmp_path}/env\necho not today\nexit 1\n")
    hook.chmod(0o755)
    rewritten(running, running.config.read_text() + f'policy.hook = ["{hook}"]\n')
    verdict = running.call("POST", "/v1/propose", running.proposal()).json()
    assert verdict["kind"] == "refusal"
    assert "the operator's hook: not today" in {finding["message"] for finding in verdict["findings"]}
    assert str(running.folder / "state") not in (tmp_path / "fds").read_text()
    assert CANARY not in (tmp_path / "env").read_text()
