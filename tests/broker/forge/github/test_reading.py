"""Whatever JSON a forge sends, it becomes bounded data or one error: nothing in it can bring the broker down."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker.config.repository import Repository
from broker.errors import ForgeError
from broker.forge.github import looking, reading
from broker.forge.github.place import place_of
from broker.wire import Comment, PullRequest, Thread

WORDS = """number id title body state user login type head base ref sha repo name full_name labels created_at updated_at
merged_at merged draft path line output pull_request status conclusion context html_url issue_url merged_by
merge_commit_sha
"""
KEYS = st.sampled_from(WORDS.split())
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=20),
    st.sampled_from(("open", "completed", "2026-01-01T00:00:00Z", "9999-12-31T23:59:59-23:59", "a" * 40, "swarm/t1")),
)
ITEMS = st.dictionaries(
    KEYS,
    st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=6)),
    max_size=12,
)
PLACE = place_of(
    "web",
    Repository.model_validate(
        {"forge": "github", "url": "https://github.com/team/web", "credential": {"token": {"file": "/t"}}}
    ),
)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(ITEMS)
def test_any_object_becomes_data_or_an_error(item):
    with suppress(ForgeError):
        assert isinstance(reading.pull_of(item, PLACE), PullRequest)
    thread = reading.thread_of(item, PLACE)
    assert isinstance(thread, Thread)
    assert thread.url.startswith("https://github.com/team/web/")
    assert isinstance(reading.comment_of(item), Comment)
    assert not reading.comment_of(item).permitted
    assert reading.note_of(item, "comment", 1).number == 1
    assert reading.issue_number(item) >= 0
    for read in (reading.check_of, reading.status_of):
        found = read(item)
        assert found is None or (found.url == "" or found.url.startswith(("http://", "https://")))
    assert not reading.is_own(item, PLACE, "swarm-bot")
    assert len(looking._onward([item], "2026-01-01T00:00:00Z", more=False)) == 20


def pull(**more: object) -> dict[str, object]:
    repo = {"full_name": "Team/Web"}
    user = {"login": "Swarm-Bot", "type": "User"}
    return {"user": user, "head": {"ref": "swarm/t1", "repo": repo}, "base": {"ref": "main", "repo": repo}, **more}


def test_an_own_pull_request_is_known_whatever_the_case():
    assert reading.is_own(pull(), PLACE, "swarm-bot")


@pytest.mark.parametrize(
    ("more", "me"),
    [
        ({"user": {"login": "ann", "type": "User"}}, "swarm-bot"),
        ({"user": None}, "swarm-bot"),
        ({"user": {"login": "", "type": "User"}}, ""),
        ({}, None),
        ({"head": {"ref": "swarm/t1", "repo": None}}, "swarm-bot"),
        ({"head": {"ref": "swarm/t1", "repo": {"full_name": "eve/web"}}}, "swarm-bot"),
        ({"head": {"ref": "other/t1", "repo": {"full_name": "team/web"}}}, "swarm-bot"),
        ({"head": {"ref": "xswarm/t1", "repo": {"full_name": "team/web"}}}, "swarm-bot"),
    ],
)
def test_what_is_not_surely_the_brokers_is_not_its_own(more, me):
    assert not reading.is_own(pull(**more), PLACE, me)


def test_an_unknown_account_takes_a_bots_alone_for_its_own():
    assert reading.is_own(pull(user={"login": "x[bot]", "type": "Bot"}), PLACE, None)


def test_what_the_forge_calls_an_address_is_not_passed_on():
    told = {**pull(), "number": 7, "title": "T", "body": "", "state": "open", "html_url": "https://evil.example/"}
    told["head"] = {"ref": "swarm/t1", "sha": "a" * 40}
    told["base"] = {"ref": "main", "sha": "b" * 40}
    assert reading.pull_of(told, PLACE).url == "https://github.com/team/web/pull/7"
