"""The broker as a process over each kind of forge: a label there, a webhook, an event with a grant, a pull request."""

from __future__ import annotations

import hashlib
import hmac
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from broker.client import Client
from broker.wire import Ask, Event, IssueRequest, StatusNote
from tests.broker.test_forges_whole import STAND_INS, Whole
from tests.forges.remote import label, say
from tests.forges.stand_in import StandIn, serving

pytestmark = pytest.mark.slow

SECRET = "s3cret-of-the-hook-7731"


class Followed(Whole):
    """One that is followed, with a listener for webhooks; it would look by itself once an hour."""

    def __init__(self, folder: Path, kind: str, stand_in: StandIn[Any]) -> None:
        super().__init__(folder, kind, stand_in)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        (folder / "hook").write_text(SECRET)
        (folder / "hook").chmod(0o600)
        more = (
            '[repositories.web.intake]\nlabel = "agent"\ncommand = "/swarm"\n'
            "[repositories.web.follow]\npoll_seconds = 3600\n"
            f'[webhook]\nlisten = "127.0.0.1:{self.port}"\nsecret.file = "{folder}/hook"\n'
        )
        self.config.write_text(self.config.read_text() + more)

    def hook(self, body: bytes, secret: str = SECRET, name: str = "web") -> int:
        """The forge calls, in its own way."""
        digest = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
        headers = {
            "github": {"X-Hub-Signature-256": f"sha256={digest}"},
            "gitea": {"X-Gitea-Signature": digest},
            "gitlab": {"X-Gitlab-Token": secret},
        }[self.kind]
        return httpx.post(f"http://127.0.0.1:{self.port}/hook/{name}", content=body, headers=headers).status_code

    def issue(self) -> int:
        one = self.project.issue("Broken", "It breaks.", "eve")
        return int(one.get("number") or one["iid"])

    def events(self, count: int, seconds: float = 20.0) -> tuple[Event, ...]:
        """All events once there are that many."""
        end = time.monotonic() + seconds
        with Client(self.coordinator) as client:
            while True:
                found = client.events(0, 1.0).events
                if len(found) >= count:
                    return found
                assert time.monotonic() < end, (self.said(), self.log())

    def looked(self) -> None:
        """Waits for the first look, from which on things count."""
        end = time.monotonic() + 20
        while not [call for call in self.project.calls if "issues" in call.path]:
            assert time.monotonic() < end, self.said()
            time.sleep(0.05)
        time.sleep(0.5)


@pytest.fixture(scope="module", params=list(STAND_INS))
def stand_in(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandIn[Any]]:
    with serving(STAND_INS[request.param](tmp_path_factory.mktemp(request.param))) as running:
        running.kind = request.param
        yield running


@pytest.fixture
def followed(stand_in: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Followed]:
    made = Followed(tmp_path_factory.mktemp("f"), stand_in.kind, stand_in)
    made.start()
    made.looked()
    yield made
    made.end(signal.SIGKILL)


def test_a_label_becomes_a_pull_request_and_a_status_comment(followed: Followed) -> None:
    number = followed.issue()
    label(followed.kind, followed.project, number, "agent", "bob")
    assert followed.hook(b"1") == 204
    (event,) = followed.events(1)
    assert (event.kind, event.issue, event.sender, event.title) == ("intake", number, "bob", "Broken")
    assert event.grant is not None
    followed.delivered(followed.body(event.grant, event.task))
    assert [branch for branch, _ in followed.opened()] == [f"swarm/{event.task}"]
    capability = event.grant.capability
    with Client(followed.coordinator) as client:
        assert client.comment(StatusNote(capability=capability, state="delivered")).url
        thread = client.issue(IssueRequest(capability=capability))
        assert (thread.number, thread.title, thread.text.strip()) == (number, "Broken", "It breaks.")
        shown = client.pull_state(Ask(capability=capability))
        assert (shown.state, shown.ours) == ("open", True)
        assert shown.head == followed.project.bare.head(f"swarm/{event.task}")
    assert SECRET not in followed.said()


def test_forged_and_replayed_calls_and_strangers_start_nothing_and_a_kill_doubles_nothing(followed: Followed) -> None:
    number = followed.issue()
    say(followed.kind, followed.project, number, "/swarm", "eve")
    before = len(followed.project.calls)
    assert followed.hook(b'{"sender": "ann"}', secret="another") == 401
    assert followed.hook(b"{}", name="elsewhere") == 404
    time.sleep(0.5)
    assert len(followed.project.calls) == before
    label(followed.kind, followed.project, number, "agent", "ann")
    assert followed.hook(b"1") == 204
    assert [event.sender for event in followed.events(1)] == ["ann"]
    followed.end(signal.SIGKILL)
    followed.start()
    assert followed.hook(b"1") == 204
    assert followed.hook(b"1") == 204
    time.sleep(3)
    assert [event.sender for event in followed.events(1)] == ["ann"]
    assert followed.log().count("intake") == 1
