"""The pull request template is found where its forge looks, read from the base tree, and never followed elsewhere."""

from __future__ import annotations

import pytest

from broker.gitdir import GitDir
from broker.words.templates import find_template


@pytest.fixture
def found(origin):
    def find(kind, files):
        commit = origin.commit(origin.tree(None, files))
        return find_template(GitDir(origin.path), commit, kind)

    return find


@pytest.mark.parametrize(
    ("kind", "place"),
    [
        ("github", ".github/pull_request_template.md"),
        ("github", ".github/PULL_REQUEST_TEMPLATE.md"),
        ("github", "PULL_REQUEST_TEMPLATE.MD"),
        ("github", "docs/pull_request_template.txt"),
        ("gitea", ".gitea/PULL_REQUEST_TEMPLATE.md"),
        ("gitea", ".forgejo/pull_request_template.md"),
        ("gitlab", ".gitlab/merge_request_templates/Default.md"),
        ("local", ".github/pull_request_template.md"),
    ],
)
def test_it_is_found_in_its_place(found, kind, place):
    assert found(kind, {place: b"## Summary", "other.md": b"no"}) == "## Summary"


def test_the_first_place_wins(found):
    files = {".github/pull_request_template.md": b"first", "pull_request_template.md": b"second"}
    assert found("github", files) == "first"


@pytest.mark.parametrize(
    ("kind", "files"),
    [
        ("github", {"README.md": b"x"}),
        ("gitlab", {".github/pull_request_template.md": b"x"}),
        ("gitlab", {".gitlab/merge_request_templates/Bug.md": b"x"}),
        ("github", {".github/pull_request_template.md": b"x" * 70_000}),
        ("github", {".github": b"a file"}),
    ],
)
def test_elsewhere_or_too_large_there_is_none(found, kind, files):
    assert found(kind, files) == ""


def test_a_symbolic_link_is_not_followed(found):
    assert found("github", {"pull_request_template.md": ("120000", b"/etc/passwd")}) == ""
    assert found("github", {".github": ("120000", b"docs"), "docs/x": b"y"}) == ""


def test_bytes_that_are_no_text_are_replaced(found):
    assert found("github", {"pull_request_template.md": b"a\xff\xfeb"}) == "a\ufffd\ufffdb"


def test_a_commit_that_is_not_there_has_none(origin):
    assert find_template(GitDir(origin.path), "0" * 40, "github") == ""
