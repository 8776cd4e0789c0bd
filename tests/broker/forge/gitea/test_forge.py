"""Pull requests on Gitea and Forgejo: what is their own about them. What all forges do is in the contract suite."""

from __future__ import annotations

import pytest

from broker.config.repository import Repository
from broker.errors import AbsentError, ConfigError, ForgeError
from broker.forge.base import Dressing, Status
from broker.forge.gitea.site import site
from tests.forges.gitea_stand_in import BOT
from tests.forges.remote import NEW_PULL, Make, Remote
from tests.forges.stand_in import TOKEN, Fault


@pytest.fixture
def here(make_remote: Make) -> Remote:
    return make_remote("gitea")


def settings(**more: object) -> Repository:
    values = {"forge": "gitea", "url": "https://git.example.org/team/web", "credential": {"token": {"file": "/x"}}}
    return Repository.model_validate({**values, **more})


def test_owner_name_and_api_follow_from_the_address():
    place = site("web", settings())
    assert (place.path, place.address.base) == ("/repos/team/web", "https://git.example.org/api/v1")
    deeper = site("web", settings(url="https://example.org/git/team/web.git"))
    assert (deeper.path, deeper.address.base) == ("/repos/team/web", "https://example.org/git/api/v1")
    assert site("web", settings(api="https://api.example.org/v1")).address.base == "https://api.example.org/v1"


@pytest.mark.parametrize("url", ["https://git.example.org", "https://git.example.org/web", "https://x.org/../b"])
def test_an_address_that_names_no_repository_is_refused(url):
    with pytest.raises((ConfigError, ValueError), match=r"names no repository|no address of a repository"):
        site("web", settings(url=url))


def test_the_token_goes_into_its_own_header_and_never_into_an_address(here: Remote):
    here.opened()
    for call in here.project.calls:
        assert call.headers["authorization"] == f"token {TOKEN}"
        assert TOKEN not in f"{call.path} {call.query} {call.body}"


def test_a_draft_bears_its_prefix_once_and_a_person_may_make_it_ready(here: Remote):
    here.opened(title="WIP: T")
    assert here.pull(1)["title"] == "WIP: T"
    here.forge.revise(1, "New", "Words")
    assert here.pull(1)["title"] == "WIP: New"
    here.pull(1)["title"] = "New"  # a person did
    here.forge.revise(1, "Newer", "Words")
    assert here.pull(1)["title"] == "Newer"


def test_a_ready_one_is_not_made_a_draft(here: Remote):
    here.opened(draft=False)
    assert here.pull(1)["title"] == "T"


def test_another_open_one_of_the_same_branches_is_the_409_that_is_found(here: Remote):
    commit = here.project.bare.commit({"a.txt": "2\n"}, here.project.base, branch="swarm/t1")
    first = here.forge.open(here.order(commit))
    missed = (r"/pulls/main/", NEW_PULL)
    here.project.faults += [Fault("GET", missed[0], 404, {}), Fault("GET", missed[1], 200, [])]
    assert here.forge.open(here.order(commit)).number == first.number
    assert here.count() == 1


def test_the_branch_itself_as_base_is_a_422_in_words(here: Remote):
    commit = here.project.bare.commit({"a.txt": "2\n"}, here.project.base, branch="swarm/t1")
    with pytest.raises(ForgeError) as caught:
        here.forge.open(here.order(commit, base="swarm/t1"))
    assert caught.value.reason == "no-diff"


def test_a_closed_one_is_found_by_the_list_where_the_short_way_knows_open_ones_alone(here: Remote):
    for number in range(1, 8):
        here.opened(f"swarm/t{number}")
    here.forge.close(1)
    assert here.forge.find("swarm/t1", "main").state == "closed"


def test_a_branch_of_the_same_name_in_a_fork_is_not_ours(here: Remote):
    here.opened()
    here.pull(1)["head"]["repo_id"] = 99
    assert here.forge.find("swarm/t1", "main") is None
    assert here.forge.pulls() == ()
    with pytest.raises(AbsentError):
        here.forge.close(1)
    here.pull(1)["head"] |= {"repo_id": here.project.id, "repo": {"full_name": "eve/web"}}
    assert here.forge.find("swarm/t1", "main") is None


def test_labels_are_put_on_by_id_and_what_is_not_there_is_told(here: Remote):
    here.opened()
    told = here.forge.dress(1, Dressing(labels=("agent", "nope")))
    assert [call.body for call in here.project.written() if call.path.endswith("/labels")] == [{"labels": [3]}]
    assert len(told) == 1
    assert "nope" in told[0]
    assert here.project.labels == {3: "agent", 4: "bug"}


def test_a_label_beyond_the_first_page_is_found(here: Remote):
    here.opened()
    here.project.labels.update({number: f"l{number}" for number in range(10, 150)})
    assert here.forge.dress(1, Dressing(labels=("l140",))) == ()
    assert {"name": "l140"} in here.pull(1)["labels"]


def test_assignees_are_added_to_those_who_are_there(here: Remote):
    here.opened()
    here.pull(1)["assignees"] = [{"login": "ann"}]
    told = here.forge.dress(1, Dressing(assignees=("bob", "eve", "ANN")))
    assert here.pull(1)["assignees"] == [{"login": "ann"}, {"login": "bob"}]
    assert len(told) == 1
    assert "eve" in told[0]


def test_one_reviewer_who_cannot_be_asked_does_not_hinder_another(here: Remote):
    here.opened()
    told = here.forge.dress(1, Dressing(reviewers=(BOT, "ghost", "bob"), team_reviewers=("core",)))
    assert here.pull(1)["requested_reviewers"] == [{"login": "bob"}]
    assert len(told) == 3


def test_a_forge_that_is_out_of_order_is_no_complaint_but_an_error(here: Remote):
    here.opened()
    here.project.faults += [Fault("POST", "/labels", 500, {}) for _ in range(4)]
    with pytest.raises(ForgeError) as caught:
        here.forge.dress(1, Dressing(labels=("agent",)))
    assert caught.value.reason == "broken"


def test_an_archived_repository_is_told(here: Remote):
    here.opened()
    here.project.archived = True
    with pytest.raises(ForgeError) as caught:
        here.forge.report(here.project.base, Status(state="success"))
    assert caught.value.reason == "archived"


@pytest.mark.parametrize(
    ("shown", "told"),
    [
        *[({"private": True}, "private"), ({"private": False}, "public"), ({"private": "yes"}, "unknown")],
        *[({"private": False, "internal": True}, "unknown"), ({}, "unknown")],
    ],
)
def test_what_everybody_logged_in_may_read_is_neither_private_nor_public(here: Remote, shown, told):
    here.project.faults.append(Fault("GET", r"/repos/[^/]+/[^/]+\Z", 200, shown))
    assert here.forge.visibility() == told


def test_a_repository_that_is_hidden_is_an_error_and_no_absent_branch(here: Remote):
    here.project.faults += [Fault("GET", "/branches/", 404, {}), Fault("GET", r"/repos/[^/]+/[^/]+\Z", 404, {})]
    with pytest.raises(ForgeError) as caught:
        here.forge.head("main")
    assert caught.value.reason == "absent"


def test_a_marker_that_somebody_changed_breaks_nothing(here: Remote):
    here.opened()
    here.pull(1)["body"] = "<!-- swarm:proposal=x task=.bad base=nothing -->"
    pull = here.forge.pull(1)
    assert (pull.task, pull.proposal, pull.base_commit) == ("t1", "x", here.project.base)
    here.pull(1)["body"] = None
    assert here.forge.pulls()[0].proposal == "unknown"


def test_the_doctor_tells_rights_that_lack_and_rights_that_are_too_many(here: Remote):
    assert {one.name: one.state for one in here.forge.examine("main", "swarm/")} == {
        "credential": "ok",
        "scopes": "ok",
        "branch-rule": "warn",
    }
    for rights, state in (({"push": False}, "fail"), ({"push": True, "admin": True}, "warn")):
        here.project.faults.append(Fault("GET", r"/repos/[^/]+/[^/]+\Z", 200, {"permissions": rights}))
        assert {one.name: one.state for one in here.forge.examine("main", "swarm/")}["scopes"] == state
    guarded = {"commit": {"id": here.project.base}, "protected": True, "user_can_push": False}
    here.project.faults.append(Fault("GET", "/branches/", 200, guarded))
    assert {one.name: one.state for one in here.forge.examine("main", "swarm/")}["branch-rule"] == "ok"
