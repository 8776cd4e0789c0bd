"""Foreign JSON: whatever a forge sends becomes a bounded value of the right kind, or is left out."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.config.repository import Repository
from broker.errors import ForgeError
from broker.forge import reading
from broker.forge.gitea import reading as gitea
from broker.forge.gitea.site import site as gitea_site
from broker.forge.github import reading as github
from broker.forge.gitlab import reading as gitlab
from broker.forge.gitlab.site import site as gitlab_site

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
KEYS = (
    *("number", "iid", "id", "title", "description", "body", "state", "merged", "draft", "head", "base", "ref", "sha"),
    *("user", "author", "username", "login", "labels", "name", "created_at", "updated_at", "position", "path", "notes"),
    *(
        "source_branch",
        "target_branch",
        "source_project_id",
        "target_project_id",
        "diff_refs",
        "base_sha",
        "merge_base",
    ),
    *("repo", "repo_id", "full_name", "original_position", "new_path", "new_line", "resolved", "issue_url", "system"),
    *("context", "status", "target_url", "access_level", "permission", "detailed_merge_status", "has_conflicts"),
    *("pull_request", "merged_by", "merge_user", "bot"),
)
OBJECTS = st.dictionaries(
    st.sampled_from(KEYS), ANYTHING | st.dictionaries(st.sampled_from(KEYS), ANYTHING, max_size=4)
)


def settings(kind: str) -> Repository:
    return Repository.model_validate(
        {"forge": kind, "url": "https://git.example.org/team/web", "credential": {"token": {"file": "/x"}}}
    )


GITEA, GITLAB = gitea_site("web", settings("gitea")), gitlab_site("web", settings("gitlab"))


def read_by_all(value):
    """Only ForgeError comes out, never a KeyError or a TypeError."""
    for read in (
        lambda: gitea.pull(value, GITEA),
        lambda: gitea.thread(value, GITEA),
        lambda: gitea.noted(value),
        lambda: gitea.review(value, 1),
        lambda: gitea.remark(value, 1),
        lambda: gitea.status(value),
        lambda: gitea.permission(value),
        lambda: gitea.visibility(value),
        lambda: gitea.is_own(value, GITEA, "bot"),
        lambda: gitea.is_between(value, GITEA, "a", "b"),
        lambda: gitlab.pull(value, GITLAB),
        lambda: gitlab.thread(value, GITLAB, 1, pull=True),
        lambda: gitlab.noted(value, 1, pull=False),
        lambda: gitlab.remarks(value),
        lambda: gitlab.status(value),
        lambda: gitlab.permission(value.get("access_level")),
        lambda: gitlab.mergeable(value),
        lambda: gitlab.visibility(value),
        lambda: gitlab.is_own(value, GITLAB, "bot"),
    ):
        try:
            read()
        except ForgeError as error:
            assert error.reason == "broken"  # noqa: PT017 - either outcome is right


@given(OBJECTS)
def test_no_object_of_a_forge_is_a_fault(value):
    read_by_all(value)


@pytest.mark.parametrize("odd", [{"a": 1}, ["a"], {}, None, 1.5, "9" * 5000])
def test_one_odd_field_of_a_sound_object_is_no_fault(odd):
    sound = dict.fromkeys(KEYS, "a") | dict.fromkeys(("number", "iid", "id", "source_project_id"), 1)
    sound |= {"user": {"login": "ann"}, "author": {"username": "ann"}, "target_project_id": 1, "notes": [{"id": 1}]}
    for key in KEYS:
        read_by_all(sound | {key: odd})
        read_by_github(sound | {key: odd, "conclusion": odd, "status": "completed"})


def read_by_github(value):
    for read in (github.check_of, github.status_of, github.comment_of, lambda one: github.note_of(one, "line", 1)):
        read(value)


@given(ANYTHING)
def test_every_reader_takes_anything(value):
    assert len(reading.text(value)) <= reading.MOST_WORDS
    assert len(reading.line(value)) <= reading.MOST_LINE
    assert "\n" not in reading.line(value)
    assert 0 <= reading.number(value) < 1 << 53
    assert reading.at(value) >= 0
    assert len(reading.commit(value)) in {0, 40, 64}
    assert not set(reading.login(value)) & set(" \n/\0")
    assert isinstance(reading.items(value), list)
    assert reading.web(value) == "" or reading.web(value).startswith("http")
    json.dumps(reading.inside(value, "a", "b"), default=str)


@pytest.mark.parametrize(
    "address",
    ["javascript:alert(1)", "file:///etc/passwd", "https://x/<script>", "https://x/a b", "//x", "", None, "h" * 3000],
)
def test_an_address_that_is_none_is_not_shown(address):
    assert reading.web(address) == ""


@pytest.mark.parametrize(
    ("time", "seconds"),
    [
        ("1970-01-01T00:00:01Z", 1),
        ("1970-01-01T02:00:01.500+02:00", 1.5),
        ("2018-08-20T13:38:20.077Z", 1534772300.077),
        ("yesterday", 0),
        ("9999-99-99T00:00:00Z", 0),
        ("0001-01-01T00:00:00+14:00", 0),
        (5, 0),
    ],
)
def test_a_time_is_one_or_nothing(time, seconds):
    assert reading.at(time) == seconds


def test_a_huge_body_is_cut():
    value = {"number": 1, "title": "t" * 10_000, "body": "b" * 10_000_000, "head": {"ref": "x"}, "base": {"ref": "y"}}
    pull = gitea.pull(value, GITEA)
    assert (len(pull.title), len(pull.body)) == (reading.MOST_LINE, reading.MOST_WORDS)


def test_the_page_of_a_pull_request_is_where_the_settings_say():
    value = {"number": 3, "html_url": "https://evil.example/3", "web_url": "https://evil.example/3", "iid": 3}
    assert gitea.pull(value, GITEA).url == "https://git.example.org/team/web/pulls/3"
    assert gitlab.pull(value, GITLAB).url == "https://git.example.org/team/web/-/merge_requests/3"


def test_the_brokers_own_status_is_no_check():
    assert reading.check("agent-swarm/broker", "failure", "", "") is None
    assert reading.check("", "failure", "", "") is None
    assert reading.check("ci", "failure", "x\ny", "javascript:x") is not None
