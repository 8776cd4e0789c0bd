"""The git runner: nothing from outside reaches git, and no run goes on for ever."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
from pydantic import SecretStr

from broker.errors import GitError
from broker.gitdir import STRICT, GitDir, Limits, Told


@pytest.fixture
def repo(origin):
    return GitDir(origin.path)


def test_nothing_of_the_callers_environment_reaches_git(repo, tmp_path):
    evil = tmp_path / "evil"
    evil.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    evil.chmod(0o755)
    script = (
        "import sys; from pathlib import Path; from broker.gitdir import GitDir;"
        f"print(GitDir(Path({str(repo.path)!r})).text('config', '--list', '--show-origin'))"
    )
    told = {
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "core.fsmonitor",
        "GIT_CONFIG_VALUE_0": str(evil),
        "GIT_DIR": "/elsewhere",
        "GIT_EXTERNAL_DIFF": str(evil),
        "LD_PRELOAD": "",
        "HOME": str(tmp_path),
        "PATH": f"{tmp_path}:/usr/bin:/bin",
    }
    (tmp_path / ".gitconfig").write_text(f"[core]\n\tpager = {evil}\n")
    (tmp_path / "git").symlink_to(evil)
    done = subprocess.run([sys.executable, "-c", script], env=told, capture_output=True, text=True, check=True)
    assert str(evil) not in done.stdout
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("hook", ["reference-transaction", "pre-push"])
def test_hooks_of_the_directory_do_not_run(repo, origin, agent, tmp_path, hook):
    (origin.path / "hooks").mkdir(exist_ok=True)
    (origin.path / "hooks" / hook).write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    (origin.path / "hooks" / hook).chmod(0o755)
    repo.run("update-ref", "refs/heads/x", origin.git("rev-parse", "main"))
    repo.run("push", "--", str(agent.path), "refs/heads/x:refs/heads/y", protocols="file")
    assert not (tmp_path / "ran").exists()


def test_no_transport_is_open_unless_asked_for(repo, origin):
    for address in (str(origin.path), f"file://{origin.path}", "ext::sh -c true", "https://localhost/x.git"):
        with pytest.raises(GitError, match="not allowed"):
            repo.run("fetch", "--", address, "refs/heads/main")


def test_a_run_that_takes_too_long_is_ended(repo):
    def slow():
        yield b""
        time.sleep(1.5)

    began = time.monotonic()
    with pytest.raises(GitError, match=r"took longer than 0\.5 s"):
        repo.run("cat-file", "--batch", stdin=slow(), limits=Limits(seconds=0.5))
    assert time.monotonic() - began < 10


def test_output_over_the_limit_ends_the_run(repo):
    with pytest.raises(GitError, match="more than 1000 bytes"):
        repo.run("cat-file", "--batch-all-objects", "--batch", limits=Limits(output=1000, seconds=20))


def test_memory_over_the_limit_ends_the_run(repo, agent):
    # A blob would be streamed; any other type is unpacked in memory.
    huge = agent.git("hash-object", "-w", "-t", "commit", "--literally", "--stdin", stdin=b"x" * (64 << 20))
    with pytest.raises(GitError):
        repo.run("index-pack", "--stdin", stdin=[agent.pack_of(huge)], limits=Limits(memory=48 << 20, seconds=60))


def test_a_file_over_the_limit_ends_the_run(repo, agent):
    tree = agent.tree(None, {"big": os.urandom(300_000)})
    with pytest.raises(GitError):
        repo.run("index-pack", "--stdin", stdin=[agent.pack(tree, None)], limits=Limits(file=100_000, seconds=60))


def test_a_consumer_that_stops_early_leaves_no_process(repo):
    output = repo.stream("cat-file", "--batch-all-objects", "--batch", limits=STRICT)
    next(output)
    output.close()
    listing = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert f"--git-dir={repo.path}" not in listing


def test_objects_are_sized_before_they_are_read(repo, origin):
    readme = origin.git("rev-parse", "main:README.md")
    with repo.objects() as objects:
        assert objects.info(readme) == ("blob", 10)
        assert objects.read(readme, "blob", 100) == b"A sample.\n"
        assert objects.info("1" * 40) is None
        with pytest.raises(GitError, match="more than 5"):
            objects.read(readme, "blob", 5)
        with pytest.raises(GitError, match="not a tree"):
            objects.read(readme, "tree", 100)
        with pytest.raises(GitError, match="is not there"):
            objects.read("1" * 40, "blob", 100)
        assert objects.read(readme, "blob", 100) == b"A sample.\n"


@pytest.mark.parametrize("oid", ["HEAD", "main:README.md", "a" * 39, "a" * 40 + "\n", "--help", "", "main\ncontents x"])
def test_only_full_ids_are_asked_for(repo, oid):
    with repo.objects() as objects, pytest.raises(GitError, match="not an object id"):
        objects.info(oid)


@pytest.mark.parametrize("ref", ["--help", "-q", "--git-dir=/"])
def test_a_ref_is_never_an_option(repo, ref):
    assert repo.commit_of(ref) is None


def test_many_objects_are_read_through_one_process(repo, agent):
    tree = agent.tree(None, {f"f{n}": b"%d\n" % n * 20_000 for n in range(20)})
    repo.run("index-pack", "--stdin", stdin=[agent.pack(tree, None)])
    with repo.objects() as objects:
        for n in range(20):
            oid = agent.git("rev-parse", f"{tree}:f{n}")
            assert objects.read(oid, "blob", 1 << 20) == b"%d\n" % n * 20_000


# --- what one child alone is told


def test_a_private_setting_reaches_its_child_and_no_argument_list(repo):
    secret = SecretStr("s3cret-value-of-a-header")
    told = {"http.https://git.example.org/.extraHeader": secret, "user.name": "plain"}
    key = "http.https://git.example.org/.extraHeader"
    assert repo.run("config", "--get", key, private=told) == b"s3cret-value-of-a-header\n"
    assert not repo.succeeds("config", "--get", key)

    def looked_at() -> Iterator[bytes]:
        listing = subprocess.run(["ps", "-wweo", "args"], capture_output=True, text=True, check=True).stdout
        seen.append("s3cret-value" in listing or "cat-file" not in listing)
        yield b""

    seen: list[bool] = []
    repo.run("cat-file", "--batch", stdin=looked_at(), private=told)
    assert seen == [False]


@pytest.mark.parametrize("value", ["s3cret-value", "Authorization: Basic s3cret-value"])
def test_a_secret_is_struck_out_of_what_git_says(repo, value):
    with pytest.raises(GitError, match=r"\*\*\*") as caught:
        repo.run("rev-parse", "HEAD", private={"core.bare": SecretStr(value)})
    assert "s3cret" not in str(caught.value)


def test_what_a_run_is_told_does_not_show_its_secrets():
    told = Told("https", {}, {"http.extraHeader": SecretStr("s3cret")})
    assert "s3cret" not in repr(told)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("protocol.allow", "never"), ("protocol.ext.allow", "never"), ("transfer.bundleURI", "false"),
        ("http.followRedirects", "false"), ("http.proxy", ""), ("core.fsmonitor", "false"),
        ("core.hooksPath", "/dev/null"),
        ("fetch.fsckObjects", "true"), ("push.followTags", "false"), ("safe.bareRepository", "explicit"),
        ("credential.helper", ""),
    ],
)  # fmt: skip
def test_our_settings_outrank_the_repositorys(repo, key, value):
    section, name = key.rsplit(".", 1)
    head, _, sub = section.partition(".")
    title = f'{head} "{sub}"' if sub else head
    with (repo.path / "config").open("a") as config:
        config.write(f"[{title}]\n\t{name} = always\n")
    assert repo.text("config", "--get", key) == value


def test_a_run_may_use_the_transports_that_it_was_given_and_no_others(repo, agent):
    repo.run("fetch", "--", str(agent.path), "refs/heads/main", protocols="file")
    with pytest.raises(GitError, match="not allowed"):
        repo.run("fetch", "--", str(agent.path), "refs/heads/main", protocols="https")


@pytest.mark.parametrize(("form", "width"), [("sha1", 20), ("sha256", 32)])
def test_a_directory_made_without_git_is_one_that_git_uses(tmp_path, form, width):
    store = GitDir(tmp_path / "g")
    store.create(form)
    store.create(form)
    assert store.text("rev-parse", "--show-object-format") == form
    assert store.hash_bytes == width
    assert store.run("hash-object", "-w", "--stdin", stdin=[b"x"]).strip()
    pack = store.run("pack-objects", "--all-progress-implied", "-q", "--stdout", stdin=[b""])
    store.run("index-pack", "--stdin", stdin=[pack])
    assert all(len(oid) == 2 * width for oid in store.packed())


def test_packed_names_exactly_what_a_pack_holds(repo, agent, tmp_path):
    tree = agent.tree(None, {f"f{n}": b"%d\n" % n for n in range(300)})
    store = GitDir(tmp_path / "g")
    store.create()
    store.run("index-pack", "--stdin", stdin=[agent.pack(tree, None)])
    listed = store.run("cat-file", "--batch-all-objects", "--batch-check=%(objectname)").decode().split()
    assert store.packed() == set(listed)
    (index,) = (store.path / "objects/pack").glob("*.idx")
    index.chmod(0o600)
    index.write_bytes(b"\0" * 2000)
    with pytest.raises(GitError, match="version 2"):
        store.packed()


def test_many_objects_are_asked_for_at_a_time(repo, origin):
    main = origin.git("rev-parse", "main")
    oids = origin.git("rev-list", "--objects", "--no-object-names", "main").split()
    with repo.objects() as objects:
        objects.prefetch([*oids * 400, "1" * 40])
        assert objects.info(main) == ("commit", len(origin.content(main, "commit")))
        assert objects.info("1" * 40) is None
        assert objects.tree_of(main) == origin.git("rev-parse", "main^{tree}")
        with pytest.raises(GitError, match="not an object id"):
            objects.prefetch(["HEAD"])


@pytest.mark.parametrize("shift", [0, 7, 20])
def test_a_secret_across_the_cut_of_what_git_says_is_struck(repo, shift):
    """A server that gives the credential back, so placed that the cut leaves all of it but a letter."""
    secret = SecretStr("Authorization: Basic eC1hY2Nlc3M6Z2hwXzAxMjM0NTY3ODk=")
    name = "x" * (3950 - shift) + secret.get_secret_value()
    with pytest.raises(GitError) as caught:
        repo.run("cat-file", "-p", name, private={"http.https://git.example/.extraHeader": secret})
    assert "eC1hY2" not in str(caught.value)


def test_endless_complaints_end_the_run(repo):
    """They once went to a file, of which a server could fill gigabytes by talking."""
    began = time.monotonic()
    with pytest.raises(GitError, match="complained of more than"):
        repo.run("-c", "alias.shout=!yes >&2", "shout", limits=Limits(seconds=20))
    assert time.monotonic() - began < 10
