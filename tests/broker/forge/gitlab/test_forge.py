"""Merge requests on GitLab: what is GitLab's own about them. What all forges do is in the contract suite."""

from __future__ import annotations

import pytest

from broker.config.repository import Repository
from broker.errors import AbsentError, ConfigError, ForgeError
from broker.forge.base import Dressing, Status
from broker.forge.gitlab.site import site
from tests.forges.remote import NEW_PULL, Make, Remote
from tests.forges.stand_in import TOKEN, Fault


@pytest.fixture
def here(make_remote: Make) -> Remote:
    return make_remote("gitlab", group="team/sub/deeper")


def settings(**more: object) -> Repository:
    values = {"forge": "gitlab", "url": "https://git.example.org/team/sub/web", "credential": {"token": {"file": "/x"}}}
    return Repository.model_validate({**values, **more})


def test_a_project_in_sub_groups_is_one_encoded_piece_of_every_path():
    place = site("web", settings())
    assert place.path == "/projects/team%2Fsub%2Fweb"
    assert place.address.base == "https://git.example.org/api/v4"
    assert place.merge_url(3) == "https://git.example.org/team/sub/web/-/merge_requests/3"


def test_an_installation_in_a_folder_is_told_by_its_api():
    place = site("web", settings(url="https://example.org/git/team/web", api="https://example.org/git/api/v4"))
    assert (place.project, place.address.base) == ("team/web", "https://example.org/git/api/v4")


@pytest.mark.parametrize("url", ["https://git.example.org", "https://git.example.org/web", "https://x.org/a/../b"])
def test_an_address_that_names_no_project_is_refused(url):
    with pytest.raises((ConfigError, ValueError), match=r"names no project|no address of a repository"):
        site("web", settings(url=url))


def test_the_token_goes_into_its_own_header_and_never_into_an_address(here: Remote):
    here.opened()
    for call in here.project.calls:
        assert call.headers["private-token"] == TOKEN
        assert TOKEN not in f"{call.path} {call.query} {call.body}"
        assert "authorization" not in call.headers


def test_a_draft_bears_its_prefix_once_and_a_person_may_make_it_ready(here: Remote):
    here.opened(title="Draft: T")
    assert here.pull(1)["title"] == "Draft: T"
    here.forge.revise(1, "New", "Words")
    assert here.pull(1)["title"] == "Draft: New"
    here.pull(1)["title"] = "New"  # a person did
    here.forge.revise(1, "Newer", "Words")
    assert here.pull(1)["title"] == "Newer"
    assert not here.forge.pull(1).draft


def test_a_long_title_is_cut_to_what_gitlab_takes(here: Remote):
    here.opened(title="t" * 300)
    assert here.pull(1)["title"] == "Draft: " + "t" * 248


def test_a_target_that_is_gone_opens_nothing(here: Remote):
    """GitLab work item 591660: a merge request onto a branch that is not there is accepted, and broken."""
    commit = here.project.bare.commit({"a.txt": "2\n"}, here.project.base, branch="swarm/t1")
    with pytest.raises(ForgeError, match="gone") as caught:
        here.forge.open(here.order(commit, base="release"))
    assert (caught.value.reason, here.count()) == ("branch", 0)


def test_a_branch_of_the_same_name_in_a_fork_is_not_ours(here: Remote):
    here.opened()
    here.pull(1)["source_project_id"] = 99
    assert here.forge.find("swarm/t1", "main") is None
    assert here.forge.pulls() == ()
    with pytest.raises(AbsentError):
        here.forge.close(1)


def test_a_branch_that_is_not_the_brokers_is_never_touched(here: Remote):
    here.project.bare.commit({"a.txt": "2\n"}, here.project.base, branch="feature")
    here.opened()
    here.pull(1)["source_branch"] = "feature"
    with pytest.raises(AbsentError):
        here.forge.revise(1, "x", "y")


def test_another_open_one_of_the_same_branches_is_the_409_that_is_found(here: Remote):
    commit = here.project.bare.commit({"a.txt": "2\n"}, here.project.base, branch="swarm/t1")
    first = here.forge.open(here.order(commit))
    here.project.faults.append(Fault("GET", NEW_PULL, 200, []))  # a list that lags behind
    assert here.forge.open(here.order(commit)).number == first.number
    assert here.count() == 1


def test_people_are_added_to_those_who_are_there(here: Remote):
    here.opened()
    here.pull(1)["reviewers"] = [here.project.user("ann")]
    assert here.forge.dress(1, Dressing(reviewers=("bob",), assignees=("BOB",))) == ()
    assert sorted(one["username"] for one in here.pull(1)["reviewers"]) == ["ann", "bob"]
    assert [one["username"] for one in here.pull(1)["assignees"]] == ["bob"]


def test_whom_gitlab_drops_without_a_word_is_told(here: Remote):
    here.opened()
    told = here.forge.dress(1, Dressing(reviewers=("eve", "nobody"), team_reviewers=("core",)))
    assert len(told) == 3
    assert here.pull(1)["reviewers"] == []


def test_a_status_is_set_in_gitlabs_words_and_not_twice(here: Remote):
    commit = here.project.base
    for state in ("pending", "pending", "failure", "failure", "success"):
        here.forge.report(commit, Status(state=state, description="d" * 400, url="https://example.org/x"))
    posted = [call.body["state"] for call in here.project.written()]
    assert posted == ["pending", "failed", "success"]
    assert all(len(call.body["description"]) == 255 for call in here.project.written())


@pytest.mark.parametrize(("shown", "told"), [("internal", "unknown"), ("odd", "unknown"), (None, "unknown")])
def test_what_is_neither_private_nor_public_is_unknown(here: Remote, shown, told):
    here.project.faults.append(Fault("GET", r"/projects/[^/]+\Z", 200, {"visibility": shown}))
    assert here.forge.visibility() == told


def test_a_merged_one_names_what_was_merged_and_by_whom(here: Remote):
    here.opened()
    here.merge(1)
    here.pull(1).update({"merge_commit_sha": None, "squash_commit_sha": "5" * 40})
    pull = here.forge.pull(1)
    assert (pull.state, pull.merged_commit, pull.merged_by) == ("merged", "5" * 40, "ann")


def test_the_doctor_tells_rights_that_lack_and_rights_that_are_too_many(here: Remote):
    found = {one.name: one for one in here.forge.examine("main", "swarm/")}
    assert (found["credential"].state, found["scopes"].state) == ("ok", "ok")
    assert found["branch-rule"].state == "warn", "the stand-in's main is not protected"
    access = {"permissions": {"project_access": {"access_level": 20}, "group_access": None}}
    here.project.faults.append(Fault("GET", r"/projects/[^/]+\Z", 200, access))
    assert {one.name: one.state for one in here.forge.examine("main", "swarm/")}["scopes"] == "fail"
    access["permissions"]["group_access"] = {"access_level": 50}
    here.project.faults.append(Fault("GET", r"/projects/[^/]+\Z", 200, access))
    assert {one.name: one.state for one in here.forge.examine("main", "swarm/")}["scopes"] == "warn"
    assert {one.name: one.state for one in here.forge.examine("nope", "swarm/")}["branch-rule"] == "fail"
