"""The broker as a process of its own over each kind of remote forge: from a person's grant to the pull request."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from broker.client import Client
from broker.wire import Grant, GrantRequest, Proposal, Receipt, encode_proposal
from tests.forges.bare import Bare
from tests.forges.gitea_stand_in import GiteaStandIn
from tests.forges.github_app import GitHubAppStandIn
from tests.forges.github_stand_in import GitHubStandIn
from tests.forges.gitlab_stand_in import GitLabStandIn
from tests.forges.stand_in import TOKEN, Fault, Project, StandIn, serving

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
STAND_INS = {"github": GitHubStandIn, "gitea": GiteaStandIn, "gitlab": GitLabStandIn}
GITHUB = {"X-GitHub-Api-Version": "2022-11-28"}
OPENING = {"github": r"/pulls$", "gitea": r"/pulls$", "gitlab": r"/merge_requests$"}


class Whole:
    """A broker process whose one repository is a project of a stand-in, and the agent's own store."""

    def __init__(self, folder: Path, kind: str, stand_in: StandIn[Project]) -> None:
        self.kind, self.stand_in = kind, stand_in
        self.project = stand_in.project()
        self.folder = folder
        self.coordinator, self.people = folder / "c.sock", folder / "p.sock"
        shutil.copytree(self.project.bare.path, folder / "agent.git")
        self.agent = Bare(folder / "agent.git")
        token = folder / "token"
        token.write_text(TOKEN)
        token.chmod(0o600)
        self.config = folder / "broker.toml"
        self.config.write_text(
            f'socket = "{self.coordinator}"\nperson_socket = "{self.people}"\nstate = "{folder}/state"\n'
            f"[roles]\nperson = [{os.getuid()}]\ncoordinator = [{os.getuid()}]\n"
            f'[repositories.web]\nforge = "{kind}"\nurl = "{stand_in.url}/{self.project.path}"\n'
            f'credential.token.file = "{token}"\n'
            f'[repositories.web.policy]\nlabels = ["agent"]\nreviewers = ["bob"]\n'
        )
        self.config.chmod(0o600)
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        said = (self.folder / "said.log").open("ab")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "broker", "serve", "--config", str(self.config)],
            cwd=ROOT,
            stdout=said,
            stderr=said,
            env={"PATH": os.environ["PATH"]},
        )
        said.close()
        deadline = time.monotonic() + 40
        while time.monotonic() < deadline and self.process.poll() is None:
            with socket.socket(socket.AF_UNIX) as first, socket.socket(socket.AF_UNIX) as second:
                if first.connect_ex(str(self.coordinator)) == 0 == second.connect_ex(str(self.people)):
                    return
            time.sleep(0.05)
        raise AssertionError(self.said())

    def said(self) -> str:
        return (self.folder / "said.log").read_text()

    def end(self, number: int = signal.SIGTERM) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(number)
            self.process.wait(40)

    def grant(self, task: str) -> Grant:
        with Client(self.people) as client:
            return client.grant(GrantRequest(repository="web", task=task))

    def body(self, grant: Grant, task: str, text: str = "ONE\n", **more: object) -> bytes:
        """A proposal that changes a.txt, with its pack."""
        commit = self.agent.commit({"a.txt": text, "b.txt": "two\n"})
        tree = self.agent.git("rev-parse", f"{commit}^{{tree}}")
        values = {"id": f"{task}-p", "capability": grant.capability, "task": task, "base_commit": grant.base_commit}
        proposal = Proposal.model_validate({**values, "tree": tree, "title": "Say it louder", **more})
        pack = subprocess.run(
            ["git", f"--git-dir={self.agent.path}", "pack-objects", "--revs", "--stdout", "-q"],
            input=f"{tree}\n^{grant.base_commit}\n".encode(),
            capture_output=True,
            check=True,
        )
        return encode_proposal(proposal, pack.stdout)

    def propose(self, body: bytes) -> httpx.Response:
        transport = httpx.HTTPTransport(uds=str(self.coordinator))
        with httpx.Client(transport=transport, base_url="http://b", timeout=120) as http:
            return http.post("/v1/propose", content=body)

    def delivered(self, body: bytes) -> Receipt:
        """Proposes until it is on the forge, as a coordinator does that meets a forge in trouble."""
        deadline = time.monotonic() + 60
        while True:
            answer = self.propose(body)
            if answer.status_code == 200:
                return Receipt.model_validate_json(answer.content)
            assert answer.status_code in {502, 503}, answer.text
            assert time.monotonic() < deadline, answer.text
            time.sleep(1.0)

    def opened(self) -> list[tuple[str, bool]]:
        """Head and draft of every pull request, asked by the forge's own API rather than of the broker."""
        if self.kind == "github":
            rows = self._ask(
                f"/api/v3/repos/{self.project.path}/pulls?state=all", {"Authorization": f"Bearer {TOKEN}", **GITHUB}
            )
            return [(row["head"]["ref"], row["draft"]) for row in rows]
        if self.kind == "gitea":
            path = f"/api/v1/repos/{self.project.path}/pulls?state=all"
            rows = self._ask(path, {"Authorization": f"token {TOKEN}"})
            return [(row["head"]["ref"], row["title"].startswith("WIP:")) for row in rows]
        path = self.project.path.replace("/", "%2F")
        rows = self._ask(f"/api/v4/projects/{path}/merge_requests?state=all", {"PRIVATE-TOKEN": TOKEN})
        return [(row["source_branch"], row["title"].startswith("Draft:")) for row in rows]

    def _ask(self, path: str, headers: dict[str, str]) -> list[dict]:
        answer = httpx.get(self.stand_in.url + path, headers=headers)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def log(self) -> tuple[str, ...]:
        with Client(self.people) as client:
            return tuple(entry.event for entry in client.log(0).entries)


@pytest.fixture(scope="module", params=list(STAND_INS))
def stand_in(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandIn[Project]]:
    with serving(STAND_INS[request.param](tmp_path_factory.mktemp(request.param))) as running:
        running.kind = request.param
        yield running


@pytest.fixture
def whole(stand_in: StandIn[Project], short_folder: Callable[[], Path]) -> Iterator[Whole]:
    made = Whole(short_folder(), stand_in.kind, stand_in)
    made.start()
    yield made
    made.end(signal.SIGKILL)


@pytest.fixture
def short_folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Path]:
    """A folder for sockets: the kernel takes 107 bytes."""
    return lambda: tmp_path_factory.mktemp("w")


def test_a_grant_and_a_proposal_become_a_draft_pull_request(whole):
    grant = whole.grant("t1")
    receipt = whole.delivered(whole.body(grant, "t1"))
    assert whole.opened() == [("swarm/t1", True)]
    assert whole.project.bare.head("swarm/t1") == receipt.commit
    assert receipt.url.startswith(whole.stand_in.url)
    for push in whole.project.bare.arrived():
        assert [update.ref for update in push.updates] == ["refs/heads/swarm/t1"]
    assert TOKEN not in whole.said()


def test_an_answer_that_is_lost_after_the_forge_opened_it_ends_in_exactly_one(whole):
    grant = whole.grant("t1")
    whole.project.faults.append(Fault("POST", OPENING[whole.kind], 504, after=True))
    whole.delivered(whole.body(grant, "t1"))
    assert whole.opened() == [("swarm/t1", True)]
    assert whole.project.faults == []


@pytest.mark.parametrize("status", [502, 503])
def test_a_forge_in_trouble_is_asked_again_and_ends_in_exactly_one(whole, status):
    grant = whole.grant("t1")
    whole.project.faults.append(Fault("POST", OPENING[whole.kind], status))
    whole.delivered(whole.body(grant, "t1"))
    assert whole.opened() == [("swarm/t1", True)]


def test_a_kill_between_push_and_pull_request_is_finished_by_the_restart_alone(whole):
    grant = whole.grant("t1")
    whole.project.faults += [Fault("POST", OPENING[whole.kind], 503) for _ in range(50)]
    assert whole.propose(whole.body(grant, "t1")).status_code in {502, 503}
    assert whole.project.bare.head("swarm/t1") is not None
    assert whole.opened() == []
    whole.end(signal.SIGKILL)
    whole.project.faults.clear()
    whole.start()
    deadline = time.monotonic() + 60
    while whole.opened() == [] and time.monotonic() < deadline:
        time.sleep(0.2)
    assert whole.opened() == [("swarm/t1", True)]
    assert len(whole.project.bare.arrived()) == 1


def test_an_update_moves_the_branch_forward_by_one_commit_on_the_same_pull_request(whole):
    with Client(whole.people) as client:
        grant = client.grant(GrantRequest(repository="web", task="t1", uses=3))
    first = whole.delivered(whole.body(grant, "t1"))
    whole.agent.git("fetch", "-q", str(whole.project.bare.path), "refs/heads/swarm/t1:refs/heads/swarm/t1")
    again = grant.model_copy(update={"base_commit": first.commit})
    second = whole.delivered(whole.body(again, "t1", "ONE!\n", id="t1-p2", update=True))
    assert second.number == first.number
    assert whole.opened() == [("swarm/t1", True)]
    assert whole.project.bare.head("swarm/t1") == second.commit
    assert whole.project.bare.git("rev-parse", f"{second.commit}^") == first.commit


def test_a_commit_that_somebody_else_pushed_is_respected(whole):
    with Client(whole.people) as client:
        grant = client.grant(GrantRequest(repository="web", task="t1", uses=3))
    first = whole.delivered(whole.body(grant, "t1"))
    human = whole.project.bare.commit({"a.txt": "mine\n", "b.txt": "two\n"}, first.commit, branch="swarm/t1")
    whole.agent.git("fetch", "-q", str(whole.project.bare.path), "refs/heads/swarm/t1:refs/heads/swarm/t1")
    stale = grant.model_copy(update={"base_commit": first.commit})
    answer = whole.propose(whole.body(stale, "t1", "ONE!\n", id="t1-p2", update=True))
    assert answer.status_code == 200
    assert "branch-moved" in {finding["rule"] for finding in answer.json()["findings"]}
    assert whole.project.bare.head("swarm/t1") == human


def test_the_credential_is_in_no_file_of_the_state_and_no_word_of_the_log(whole):
    whole.delivered(whole.body(whole.grant("t1"), "t1"))
    found = [
        path for path in (whole.folder / "state").rglob("*") if path.is_file() and TOKEN.encode() in path.read_bytes()
    ]
    assert found == []
    assert "pull-request" in " ".join(whole.log())


def test_an_app_delivers_with_a_token_per_operation_and_leaves_none_alive(tmp_path_factory, short_folder):
    with serving(GitHubAppStandIn(tmp_path_factory.mktemp("app"))) as stand_in:
        whole = Whole(short_folder(), "github", stand_in)
        stand_in.tokens.repository = tuple(whole.project.path.split("/"))
        whole.project.app = True
        key = whole.folder / "app.pem"
        key.write_bytes(stand_in.private)
        key.chmod(0o600)
        told = whole.config.read_text()
        app = f'credential.app = {{ id = "12345", key = {{ file = "{key}" }} }}\n'
        whole.config.write_text(told.replace(f'credential.token.file = "{whole.folder}/token"\n', app))
        whole.start()
        try:
            receipt = whole.delivered(whole.body(whole.grant("t1"), "t1"))
        finally:
            whole.end()
        assert whole.project.bare.head("swarm/t1") == receipt.commit
        assert [one["head"]["ref"] for one in whole.project.things if "head" in one] == ["swarm/t1"]
        pushes = [asked for asked in stand_in.asked if asked.get("contents") == "write"]
        assert pushes
        assert all("administration" not in asked and "workflows" not in asked for asked in stand_in.asked)
        assert stand_in.scoped == {}, "every token was revoked after its operation"
        kept = b"".join(path.read_bytes() for path in (whole.folder / "state").rglob("*") if path.is_file())
        assert not any(token.encode() in kept or token in whole.said() for token in stand_in.given)
