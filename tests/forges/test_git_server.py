"""The server that the forges' tests push to does what it is relied on for."""

from __future__ import annotations

import base64
import os
import ssl
import subprocess
from pathlib import Path

import httpx
import pytest

from tests.forges.bare import PROTECTED_BRANCH, Bare
from tests.forges.git_server import GitServer

pytestmark = pytest.mark.forges


def push(url: str, source: Bare, *refs: str, password: str | None, options: tuple[str, ...] = ()) -> tuple[int, str]:
    """One push by plain git, the credential in a header."""
    basic = base64.b64encode(f"x-access-token:{password}".encode()).decode()
    header = ("-c", f"http.extraHeader=Authorization: Basic {basic}") if password else ()
    env = {"PATH": os.environ["PATH"], "GIT_DIR": str(source.path), "GIT_TERMINAL_PROMPT": "0", "HOME": "/nonexistent"}
    command = ["git", *header, "push", *options, url, *refs]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stderr


@pytest.fixture
def source(tmp_path: Path) -> Bare:
    bare = Bare.create(tmp_path / "source.git")
    bare.commit({"a.txt": "one\n"}, branch="main")
    return bare


def test_a_push_needs_the_right_password(git_server: GitServer, source: Bare):
    name, bare = git_server.create()
    url = f"{git_server.url}/{name}.git"
    assert push(url, source, "main", password=None)[0] != 0
    assert push(url, source, "main", password="wrong")[0] != 0
    assert bare.refs() == {}
    assert push(url, source, "main", password=git_server.password)[0] == 0
    assert bare.head("main") == source.head("main")


def test_what_arrives_is_logged_with_its_options_and_tags(git_server: GitServer, source: Bare):
    name, bare = git_server.create()
    source.git("tag", "v1", "main")
    code, said = push(
        f"{git_server.url}/{name}.git", source, "main", "v1", password=git_server.password, options=("-o", "x=y")
    )
    assert code == 0, said
    (seen,) = bare.arrived()
    assert (seen.user, seen.options) == (git_server.user, 1)
    assert {update.ref for update in seen.updates} == {"refs/heads/main", "refs/tags/v1"}


def test_a_refusal_reaches_the_client_in_the_forges_words(git_server: GitServer, source: Bare):
    name, bare = git_server.create("team/sub/refuses")
    bare.refuse(PROTECTED_BRANCH.format(branch="main"))
    code, said = push(f"{git_server.url}/{name}.git", source, "main", password=git_server.password)
    assert code != 0
    assert "GH013" in said
    assert bare.refs() == {}
    assert len(bare.arrived()) == 1


def test_the_tls_address_is_trusted_by_its_own_certificate_alone(git_server: GitServer):
    name, _bare = git_server.create()
    url = f"{git_server.tls_url}/{name}.git/info/refs?service=git-upload-pack"
    with pytest.raises(httpx.ConnectError):
        httpx.get(url)
    context = ssl.create_default_context(cafile=git_server.ca_file)
    assert httpx.get(url, verify=context).status_code == 401
