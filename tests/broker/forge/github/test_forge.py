"""GitHub's side of a delivery: one branch, one pull request, whatever is lost on the way, and nobody else's touched."""

from __future__ import annotations

import time

import pytest

from broker.errors import AbsentError, ConflictError, ForgeError
from broker.forge.base import Dressing, Status
from broker.forge.rest.pace import Tempo
from broker.scope import Scope
from tests.forges.github_stand_in import APP_TOKEN, BOT, limited
from tests.forges.stand_in import Fault

pytestmark = pytest.mark.slow


def test_what_is_absent_is_told_from_what_is_hidden(site, make_site):
    assert site.forge.head("main") == site.project.base
    assert site.forge.head("nowhere") is None
    with pytest.raises(ForgeError) as caught:
        make_site(token="wrong").forge.head("main")
    assert caught.value.reason == "token"
    site.project.faults += [Fault("GET", r"^/v3/repos/[^/]+/[^/]+(/git.*)?$", 404, {"message": "Not Found"})] * 2
    with pytest.raises(ForgeError) as caught:
        site.forge.head("main")
    assert caught.value.reason == "absent"
    assert "hides it" in str(caught.value)


def test_a_branch_outside_the_prefix_is_never_pushed(site):
    with pytest.raises(ForgeError):
        site.forge.push(site.store, site.commit(), "main")
    assert site.project.bare.head("main") == site.project.base
    assert site.project.bare.arrived() == []


def test_a_push_is_one_ref_without_options_and_asks_for_the_right_to_push_alone(site):
    commit = site.commit()
    assert site.forge.push(site.store, commit, "swarm/t1")
    [push] = site.project.bare.arrived()
    assert (push.options, [update.ref for update in push.updates]) == (0, ["refs/heads/swarm/t1"])
    assert site.lent == [Scope.PUSH]


def test_a_moved_branch_is_left_as_it_is(site):
    first, second = site.commit("1"), site.commit("2")
    assert site.forge.push(site.store, first, "swarm/t1")
    assert not site.forge.push(site.store, second, "swarm/t1")
    after = site.commit("3", first)
    assert not site.forge.push(site.store, site.commit("4", after), "swarm/t1", after)
    assert site.forge.push(site.store, after, "swarm/t1", first)
    assert site.project.bare.head("swarm/t1") == after


def test_a_lease_does_not_let_a_commit_be_thrown_away(site):
    first = site.commit("1")
    assert site.forge.push(site.store, first, "swarm/t1")
    with pytest.raises(ForgeError) as caught:
        site.forge.push(site.store, site.commit("2"), "swarm/t1", first)
    assert caught.value.reason == "conflict"
    assert site.project.bare.head("swarm/t1") == first


def test_a_pull_request_is_a_draft_with_the_orders_words(site):
    commit = site.commit()
    site.forge.push(site.store, commit, "swarm/t1")
    pull = site.forge.open(site.order(commit, title="Mend it"))
    assert (pull.title, pull.draft, pull.state, pull.commit) == ("Mend it", True, "open", commit)
    assert pull.url.endswith(f"/{site.project.path}/pull/{pull.number}")
    [sent] = site.project.written()
    assert sent.body == {"title": "Mend it", "body": "B", "head": "swarm/t1", "base": "main", "draft": True}


def test_an_answer_that_was_lost_leads_to_one_pull_request(site):
    commit = site.commit()
    site.forge.push(site.store, commit, "swarm/t1")
    site.project.faults.append(Fault("POST", r"/pulls$", 504, "<html>timeout</html>", after=True))
    pull = site.forge.open(site.order(commit))
    assert len(site.project.things) == 1
    assert len(site.project.written()) == 1
    assert pull == site.forge.open(site.order(commit))


def test_an_answer_that_is_no_json_leads_to_one_pull_request(site):
    commit = site.commit()
    site.forge.push(site.store, commit, "swarm/t1")
    site.project.faults.append(Fault("POST", r"/pulls$", 201, "<html>fine</html>", after=True))
    assert site.forge.open(site.order(commit)).number == 1
    assert len(site.project.things) == 1


def test_a_lost_call_that_did_nothing_is_uncertain_and_not_sent_again(site):
    commit = site.commit()
    site.forge.push(site.store, commit, "swarm/t1")
    site.project.faults.append(Fault("POST", r"/pulls$", 502, "bad gateway"))
    with pytest.raises(ForgeError) as caught:
        site.forge.open(site.order(commit))
    assert caught.value.uncertain
    assert len(site.project.written()) == 1


def test_reads_survive_a_forge_that_is_out_of_order_for_a_moment(site):
    site.project.faults += [Fault("GET", r"/git/ref", status, "no") for status in (502, 503)]
    assert site.forge.head("main") == site.project.base


def test_somebody_elses_pull_request_of_the_branch_is_not_taken_over(site):
    commit = site.commit()
    site.forge.push(site.store, commit, "swarm/t1")
    site.forge.open(site.order(commit))
    site.project.things[0]["user"] = {"login": "ann", "type": "User"}
    assert site.forge.find("swarm/t1", "main") is None
    with pytest.raises(ForgeError) as caught:
        site.forge.open(site.order(commit))
    assert (caught.value.reason, str(caught.value)) == (
        "duplicate",
        "pull request 1 of the branch swarm/t1 is somebody else's",
    )
    before = dict(site.project.things[0])
    for act in (
        lambda: site.forge.revise(1, "x", "y"),
        lambda: site.forge.close(1),
        lambda: site.forge.dress(1, Dressing(labels=("agent",))),
        lambda: site.forge.pull(1),
        lambda: site.forge.diff(1, 100),
    ):
        with pytest.raises(AbsentError):
            act()
    assert site.project.things[0] == before
    assert site.forge.pulls() == ()


def test_a_fork_with_the_same_branch_name_is_not_the_brokers(site):
    site.opened()
    site.project.things[0]["head"]["repo"] = {"full_name": "eve/web"}
    assert site.forge.pulls() == ()
    with pytest.raises(AbsentError):
        site.forge.close(1)


def test_an_app_knows_its_own_by_its_bot(make_site):
    site = make_site(token=APP_TOKEN)
    site.project.app = True
    number = site.opened()
    assert site.tracker.me() == f"{BOT}[bot]"
    assert site.forge.pull(number).number == number
    site.project.things[0]["user"] = {"login": "other[bot]", "type": "Bot"}
    assert site.forge.pulls() == ()


def test_dressing_is_put_on_and_told_where_it_is_not_taken(site):
    number = site.opened()
    dressing = Dressing(
        labels=("agent",), reviewers=("bob", "ghost", BOT), team_reviewers=("core",), assignees=("ann", "eve")
    )
    site.lent.clear()
    told = site.forge.dress(number, dressing)
    one = site.project.things[0]
    assert one["labels"] == [{"name": "agent"}]
    assert one["requested_reviewers"] == [{"login": "bob"}]
    assert [person["login"] for person in one["assignees"]] == ["ann"]
    assert sorted(line.split(":")[0] for line in told) == [
        "assignee eve",
        "reviewer ghost",
        "swarm-bot cannot review what it opened itself",
    ]
    assert site.forge.dress(number, dressing) == told
    assert set(site.lent) == {Scope.PULLS}


def test_labels_wait_for_a_pull_request_that_is_only_just_there(site):
    number = site.opened()
    site.project.young = 1
    assert site.forge.dress(number, Dressing(labels=("agent",))) == ()
    assert site.project.things[0]["labels"] == [{"name": "agent"}]


def test_a_status_is_set_under_the_brokers_context_and_cut(site):
    site.forge.report(site.project.base, Status(state="success", description="x" * 300))
    [sent] = site.project.statuses[site.project.base]
    assert sent == {"state": "success", "context": "agent-swarm/broker", "description": "x" * 140}
    assert site.lent == [Scope.STATUS]


def test_an_own_pull_request_is_revised_and_closed(site):
    number = site.opened()
    site.forge.revise(number, "New", "Words")
    assert (site.forge.pull(number).title, site.forge.pull(number).body) == ("New", "Words")
    site.forge.close(number)
    site.forge.close(number)
    assert site.forge.pull(number).state == "closed"
    with pytest.raises(ConflictError):
        site.forge.revise(number, "Again", "")


def test_a_closed_pull_request_is_found_for_its_own_commit_alone(site):
    number = site.opened()
    commit = site.project.bare.head("swarm/t1")
    site.forge.close(number)
    assert site.forge.open(site.order(commit)).number == number
    other = site.commit("other", commit)
    site.forge.push(site.store, other, "swarm/t1", commit)
    assert site.forge.open(site.order(other)).number == number + 1
    assert site.forge.find("swarm/t1", "main").number == number + 1


def test_what_a_pull_request_changes_is_shown_and_cut(site):
    number = site.opened()
    shown, cut = site.forge.diff(number, 10_000)
    assert "+swarm/t1" in shown
    assert not cut
    short, cut = site.forge.diff(number, 10)
    assert (len(short), cut) == (10, True)


def test_a_merge_is_left_to_people(site):
    with pytest.raises(ConflictError):
        site.forge.merge(site.opened(), "me")


def test_a_lack_of_difference_and_of_a_base_are_told_apart(site):
    site.project.bare.git("update-ref", "refs/heads/swarm/t1", site.project.base)
    with pytest.raises(ForgeError) as caught:
        site.forge.open(site.order(site.project.base))
    assert caught.value.reason == "no-diff"
    with pytest.raises(ForgeError) as caught:
        site.forge.open(site.order(site.project.base, base="gone"))
    assert caught.value.reason == "branch"


def test_an_archived_repository_is_told(site):
    site.project.archived = True
    with pytest.raises(ForgeError) as caught:
        site.forge.report(site.project.base, Status(state="success"))
    assert caught.value.reason == "archived"


@pytest.mark.parametrize("told", [(60, None), (None, None), (None, 0)])
def test_a_secondary_limit_is_a_time_to_come_back_and_not_a_lack_of_rights(site, told):
    """GitHub answers a secondary limit with 403, which status alone misreads as a missing permission (octo-sts)."""
    body, headers = limited(*told)
    number = site.opened()
    site.project.faults.append(Fault("PATCH", r"/pulls/", 403, body, headers=headers))
    with pytest.raises(ForgeError) as caught:
        site.forge.close(number)
    assert caught.value.reason == "limit"
    assert caught.value.when > time.time() + 50
    calls = len(site.project.calls)
    with pytest.raises(ForgeError):
        site.forge.head("main")
    assert len(site.project.calls) == calls  # left in peace until then


def test_a_short_wait_is_waited_for(make_site):
    site = make_site(tempo=Tempo(gap=0.0, patience=5.0))
    body, headers = limited(1)
    site.project.faults.append(Fault("GET", r"/git/ref", 429, body, headers=headers))
    assert site.forge.head("main") == site.project.base


def test_an_answer_that_points_elsewhere_is_not_followed(site):
    site.project.faults.append(Fault("GET", r"/git/ref", 301, {}, headers={"location": "http://127.0.0.1:1/x"}))
    with pytest.raises(ForgeError) as caught:
        site.forge.head("main")
    assert caught.value.reason == "moved"
    assert "broker.toml" in caught.value.mend


def test_no_error_shows_the_token(site):
    from_forge = "your token canary-5b20-forge-token is\x1b[31m bad\u202e"
    site.project.faults.append(Fault("GET", r"/git/ref", 403, {"message": from_forge}))
    with pytest.raises(ForgeError) as caught:
        site.forge.head("main")
    assert "canary" not in str(caught.value)
    assert "\x1b" not in str(caught.value)
    assert "\u202e" not in str(caught.value)


def test_visibility_is_the_forges_word(site):
    assert site.forge.visibility() == "private"
    site.project.private = False
    assert site.forge.visibility() == "public"


def states(site) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for one in site.forge.examine("main", "swarm/"):
        found.setdefault(one.name, set()).add(one.state)
    return found


def test_a_right_and_narrow_credential_is_well(site):
    assert states(site) == {"scopes": {"ok"}, "branch-rule": {"ok"}}
    assert site.project.written() == []


@pytest.mark.parametrize(
    ("scopes", "rights", "told"),
    [
        (None, {"push": False}, {"fail"}),
        (None, {"push": True, "admin": True}, {"warn"}),
        ("repo", {"push": True}, {"ok"}),
        ("repo, workflow, admin:org", {"push": True}, {"warn"}),
    ],
)
def test_a_credential_with_too_few_or_too_many_rights_is_told(site, scopes, rights, told):
    site.project.scopes, site.project.rights = scopes, rights
    assert states(site)["scopes"] == told


def test_a_rule_in_the_way_is_told_before_the_first_push(site):
    site.project.rules = ("creation", "deletion", "required_signatures")
    warned = [one.message for one in site.forge.examine("main", "swarm/") if one.state == "warn"]
    assert len(warned) == 2
    assert all("swarm/**" in one for one in warned)
