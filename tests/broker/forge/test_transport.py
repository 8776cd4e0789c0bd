"""Git over smart HTTP: one ref and nothing else, the credential in one child's environment, every push read again."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pydantic import SecretStr

from broker.errors import ForgeError
from broker.forge.rest.pace import Pace, Tempo
from broker.forge.transport import Remote, Transport
from broker.gitdir import GitDir, Limits
from broker.scope import Scope
from tests.forges.bare import PEOPLE, PROTECTED_BRANCH, Bare
from tests.forges.stand_in import TOKEN, StandIn

STALE = "refusing to allow a GitHub App to create or update workflow `ci.yml` without `workflows` permission\n"


@contextmanager
def lend(_scope: Scope) -> Iterator[SecretStr]:
    yield SecretStr(TOKEN)


class Place:
    """A repository on a git server, and the broker's store with its main branch."""

    def __init__(self, stand_in: StandIn, folder: Path) -> None:
        self.project = project = stand_in.project()
        self.bare: Bare = project.bare
        self.base: str = project.base
        self.address = f"{stand_in.url}/{project.path}"
        self.git = Transport(Remote(self.address, "x-access-token"), lend)
        self.store = GitDir(folder / "store.git")
        self.store.create()
        self.git.fetch("main", self.store)

    def commit(self, words: str = "change", parent: str | None = None) -> str:
        """A commit with the base's files."""
        tree = self.store.tree_of(self.base)
        return self.store.text("commit-tree", tree, "-p", parent or self.base, "-m", words, environment=PEOPLE)


@pytest.fixture
def place(stand_ins: Callable[[str], StandIn], tmp_path: Path) -> Place:
    return Place(stand_ins("github"), tmp_path)


@pytest.mark.parametrize(
    "branch", ["main:refs/heads/x", "a b", "-x", "../x", "refs/heads/../x", "x.lock", "a..b", "", "x\u202ey", "@", "x*"]
)
def test_a_name_that_is_no_plain_branch_is_neither_pushed_nor_fetched(place, branch):
    for act in (lambda: place.git.push(place.store, place.base, branch), lambda: place.git.fetch(branch, place.store)):
        with pytest.raises(ForgeError):
            act()
    assert place.bare.arrived() == []


def test_a_tag_in_the_store_does_not_travel(place):
    commit = place.commit()
    place.store.run("update-ref", "refs/tags/evil", commit)
    assert place.git.push(place.store, commit, "swarm/t1")
    [push] = place.bare.arrived()
    assert [(update.ref, update.new) for update in push.updates] == [("refs/heads/swarm/t1", commit)]
    assert set(place.bare.refs()) == {"refs/heads/main", "refs/heads/swarm/t1"}


def test_a_branch_that_is_on_the_commit_already_is_done(place):
    commit = place.commit()
    assert place.git.push(place.store, commit, "swarm/t1")
    assert place.git.push(place.store, commit, "swarm/t1")
    assert len(place.bare.arrived()) == 1


def test_a_branch_that_goes_while_it_is_updated_is_not_made_again(place):
    first = place.commit()
    assert not place.git.push(place.store, place.commit("more", first), "swarm/t1", first)
    assert place.bare.head("swarm/t1") is None


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (PROTECTED_BRANCH.format(branch="swarm/t1"), "protected"),
        (STALE, "workflows"),
        ("error: GH013: Repository rule violations found\n- Push cannot contain secrets\n", "secret"),
    ],
)
def test_what_the_forge_refuses_is_told_in_its_words_without_control_characters(place, words, reason):
    place.bare.refuse(words + "\x1b[31mred\u202e\n")
    with pytest.raises(ForgeError) as caught:
        place.git.push(place.store, place.commit(), "swarm/t1")
    assert (caught.value.reason, caught.value.uncertain) == (reason, False)
    assert caught.value.mend
    assert not any(ord(c) < 32 or c == "\u202e" for c in str(caught.value))
    assert place.bare.head("swarm/t1") is None


def test_a_limit_told_to_git_holds_for_every_call_to_the_host(place):
    clock = Pace("forge", Tempo(first=60.0), clock=lambda: 1000.0)
    git = Transport(Remote(place.address, "x-access-token"), lend, pace=clock)
    place.project.push_faults.append(429)
    with pytest.raises(ForgeError) as caught:
        git.push(place.store, place.commit(), "swarm/t1")
    assert (caught.value.reason, caught.value.when) == ("limit", 1060.0)
    with pytest.raises(ForgeError, match="wants to be asked no more"):
        clock.before(writes=False)


def test_a_wrong_credential_is_told_and_shown_nowhere(place, tmp_path):
    @contextmanager
    def wrong(_scope: Scope) -> Iterator[SecretStr]:
        yield SecretStr("canary-wrong-secret")

    git = Transport(Remote(place.address, "x-access-token"), wrong)
    with pytest.raises(ForgeError) as caught:
        git.push(place.store, place.commit(), "swarm/t1")
    assert caught.value.reason == "token"
    assert "canary" not in str(caught.value) + caught.value.mend
    assert not any(b"canary" in file.read_bytes() for file in place.store.path.rglob("*") if file.is_file())


def test_the_credential_is_in_no_argument_list(place, processes_with):
    """hpc-sandbox-benchmarks 41 cloned with the token in the address, for every user of the machine to read."""
    seen, done = [], threading.Event()

    def watch() -> None:
        while not done.is_set():
            seen.extend(processes_with(TOKEN))
            time.sleep(0.001)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        assert place.git.push(place.store, place.commit(), "swarm/t1")
    finally:
        done.set()
        watcher.join()
    assert seen == []


def test_the_header_goes_to_its_own_host_alone(place):
    told = Remote("https://git.example.org/team/web", "oauth2", Path("/ca.pem")).settings(SecretStr("s3cret"))
    assert set(told) == {"http.https://git.example.org/.sslCAInfo", "http.https://git.example.org/.extraHeader"}
    assert "s3cret" not in repr(told)


def test_a_server_that_never_answers_is_given_up(tmp_path):
    store = GitDir(tmp_path / "store.git")
    store.create()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}/team/web"
        git = Transport(Remote(address, "x", look=Limits(seconds=0.5)), lend)
        began = time.monotonic()
        with pytest.raises(ForgeError) as caught:
            git.fetch("main", store)
    assert caught.value.reason == "unreachable"
    assert time.monotonic() - began < 10
