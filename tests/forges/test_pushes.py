"""Every push of every kind of forge, over real smart HTTP with authentication: nginx before git's own server."""

from __future__ import annotations

import base64
import os
import threading
from pathlib import Path

import pytest

from broker.errors import ForgeError
from broker.gitdir import GitDir
from tests.forges.bare import PROTECTED_BRANCH, Bare
from tests.forges.git_server import PASSWORD, GitServer
from tests.forges.remote import REMOTE_KINDS, Make, Remote

pytestmark = pytest.mark.forges


class There:
    """A forge whose API is a stand-in and whose git is the server, and a store to push from."""

    def __init__(self, kind: str, make: Make, server: GitServer, folder: Path) -> None:
        self.name, self.bare = server.create()
        self._kind, self._make, self._server = kind, make, server
        self.source = Bare.create(folder / "source.git")
        self.base = self.source.commit({"a.txt": "one\n"})
        self.bare.take(self.source.path)
        self.bare.set("main", self.base)
        self.first = self.source.commit({"a.txt": "two\n"}, self.base)
        self.second = self.source.commit({"a.txt": "three\n"}, self.first)
        self.store = GitDir(self.source.path)
        self.here = self.with_git(f"{server.url}/{self.name}")

    def with_git(self, address: str, password: str = PASSWORD, **more: object) -> Remote:
        """The same forge, its git at an address and under a password."""
        here = self._make(self._kind, git=address, token=password, **more)
        here.project.bare = self.bare
        return here

    def push(self, commit: str, expected: str | None = None, branch: str = "swarm/t1") -> bool:
        return self.here.forge.push(self.store, commit, branch, expected)


@pytest.fixture(params=REMOTE_KINDS)
def there(request: pytest.FixtureRequest, make_remote: Make, git_server: GitServer, tmp_path: Path) -> There:
    return There(request.param, make_remote, git_server, tmp_path)


def test_a_branch_is_created_once_and_moved_forward_from_where_it_is(there: There):
    assert there.push(there.first)
    assert not there.push(there.second)
    assert not there.push(there.second, expected=there.base)
    assert there.push(there.second, expected=there.first)
    assert there.bare.head("swarm/t1") == there.second
    assert [[update.ref for update in push.updates] for push in there.bare.arrived()] == [["refs/heads/swarm/t1"]] * 2
    assert {push.options for push in there.bare.arrived()} == {0}


def test_a_rewind_is_refused_before_it_leaves(there: There):
    there.push(there.second)
    seen = len(there.bare.arrived())
    with pytest.raises(ForgeError):
        there.push(there.first, expected=there.second)
    assert (there.bare.head("swarm/t1"), len(there.bare.arrived())) == (there.second, seen)


def test_tags_stay_at_home_though_they_point_at_what_is_pushed(there: There):
    there.source.git("tag", "-a", "-m", "x", "v1", there.first)
    there.source.git("config", "push.followTags", "true")
    there.source.git("config", "push.pushOption", "merge_request.merge_when_pipeline_succeeds")
    assert there.push(there.first)
    assert sorted(there.bare.refs()) == ["refs/heads/main", "refs/heads/swarm/t1"]
    assert [push.options for push in there.bare.arrived()] == [0]


def test_a_fetch_brings_the_branch_and_no_tag(there: There, tmp_path: Path):
    there.bare.git("tag", "v1", there.base)
    into = GitDir(tmp_path / "into.git")
    into.create()
    assert there.here.forge.fetch("main", into) == there.base
    assert into.text("for-each-ref", "--format=%(refname)") == "refs/heads/main"


def test_a_wrong_password_is_told_as_one_and_shown_nowhere(there: There, git_server: GitServer):
    there.here = there.with_git(f"{git_server.url}/{there.name}", password="canary-0f0f-wrong")
    with pytest.raises(ForgeError) as caught:
        there.push(there.first)
    assert caught.value.reason == "token"
    assert "canary" not in f"{caught.value} {caught.value.mend}"
    assert there.bare.arrived() == []


def test_the_forges_refusal_is_told_with_its_reason(there: There):
    there.bare.refuse(PROTECTED_BRANCH.format(branch="swarm/t1"))
    with pytest.raises(ForgeError) as caught:
        there.push(there.first)
    assert (caught.value.reason, there.bare.head("swarm/t1")) == ("protected", None)
    there.bare.refuse("")
    assert there.push(there.first)


def test_a_redirect_is_not_followed_with_the_token(there: There, git_server: GitServer):
    there.here = there.with_git(f"{git_server.url}/moved/{there.name}")
    with pytest.raises(ForgeError) as caught:
        there.push(there.first)
    assert caught.value.reason == "moved"
    assert there.bare.arrived() == []


def test_an_own_authority_is_trusted_where_the_settings_name_it_and_only_there(there: There, git_server: GitServer):
    there.here = there.with_git(f"{git_server.tls_url}/{there.name}")
    with pytest.raises(ForgeError) as caught:
        there.push(there.first)
    assert caught.value.reason == "unreachable"
    there.here = there.with_git(f"{git_server.tls_url}/{there.name}", ca_file=git_server.ca_file)
    assert there.push(there.first)


def test_a_large_change_arrives_in_chunks_and_whole(there: There):
    """Above http.postBuffer git sends chunks, which some servers refuse."""
    noise = os.urandom(3 << 20).hex()
    large = there.source.commit({"a.txt": noise}, there.base)
    assert there.push(large)
    assert there.bare.git("rev-parse", f"{large}:a.txt") == there.source.git("rev-parse", f"{large}:a.txt")


def test_of_two_who_create_one_branch_at_once_one_does(there: There):
    aside = there.source.commit({"a.txt": "other\n"}, there.base)
    told: dict[str, bool] = {}

    def push(commit: str) -> None:
        try:
            told[commit] = there.here.forge.push(GitDir(there.source.path), commit, "swarm/t1")
        except ForgeError:
            told[commit] = False

    threads = [threading.Thread(target=push, args=(commit,)) for commit in (there.first, aside)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(told.values()) == [False, True]
    assert told[there.bare.head("swarm/t1") or ""]


def test_the_password_is_in_no_address_argument_or_file(there: There, git_server: GitServer):
    there.bare.refuse("")
    watched: list[str] = []
    done = threading.Event()

    def watch() -> None:
        while not done.is_set():
            for entry in Path("/proc").glob("[0-9]*/cmdline"):
                try:
                    watched.append(entry.read_bytes().decode(errors="replace"))
                except OSError:  # it ended
                    continue

    watcher = threading.Thread(target=watch)
    watcher.start()
    assert there.push(there.first)
    done.set()
    watcher.join(10)
    assert any("git-remote-http" in line or "remote-http" in line for line in watched), "the push was seen"
    forms = [
        PASSWORD,
        *(base64.b64encode(f"{user}:{PASSWORD}".encode()).decode() for user in ("x-access-token", "oauth2")),
    ]
    assert not [line for line in watched if any(form in line for form in forms)]
    assert PASSWORD not in git_server.accesses()
    assert not [
        file for file in there.source.path.rglob("*") if file.is_file() and PASSWORD.encode() in file.read_bytes()
    ]
    assert not [name for name, value in os.environ.items() if PASSWORD in value]
