"""The git runner: nothing from outside reaches git, and no run goes on for ever."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from broker.errors import GitError
from broker.gitdir import STRICT, GitDir, Limits


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
