"""What is granted is bound, never leads from the private into the public, and a person can take it back."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest

from broker.capability import VERBS, Caveat, narrow
from broker.config.live import Live
from broker.config.settings import BrokerConfig
from broker.errors import AbsentError, CapabilityError, ConflictError, ForgeError, StoppedError
from broker.person_wire import Approval, StopRequest
from broker.server import build
from broker.service.service import Service
from broker.testing import PretendForge, PretendTracker
from broker.wire import DrawRequest, Grant, GrantRequest, MirrorRequest, Proposal, Receipt, Refusal


@dataclass
class Town:
    """A broker of three repositories on pretend forges: demo is aimed at, docs and plans are read."""

    config: BrokerConfig
    service: Service
    forges: dict[str, PretendForge]
    agent: object

    def grant(self, task: str = "t1", by: str = "uid:0", **more: object) -> Grant:
        return self.service.grants.grant(GrantRequest.model_validate({"repository": "demo", "task": task, **more}), by)

    def seen(self, **by: str) -> None:
        for name, visibility in by.items():
            self.forges[name].seen_by = visibility


@pytest.fixture
def open_town(tmp_path, template, settings_for, origin, agent) -> Iterator[Callable[..., Town]]:
    opened: list[Service] = []

    def _open(**parts: dict[str, object]) -> Town:
        plain = settings_for(tmp_path).model_dump(exclude_none=True)
        demo = plain["repositories"]["demo"]
        plain["repositories"] = {name: {**demo, **parts.get(name, {})} for name in ("demo", "docs", "plans")}
        config = BrokerConfig.model_validate(plain)
        config.state.mkdir(mode=0o700)
        forges = {name: PretendForge(name, tmp_path / f"{name}.pretend") for name in config.repositories}
        base = origin.git("rev-parse", "main")
        for forge in forges.values():
            origin_store(origin, forge, base)
        trackers = {name: PretendTracker() for name in forges}
        service = build(config, forges, trackers)
        opened.append(service)
        return Town(config, service, forges, agent)

    yield _open
    for service in opened:
        service.close()


def origin_store(origin, forge: PretendForge, base: str) -> None:
    pack = origin.pack(base, None)
    forge.git.run("index-pack", "--stdin", "--strict", stdin=[pack])
    forge.branches["main"] = base


@pytest.fixture
def town(open_town) -> Town:
    return open_town()


def proposed(town: Town, grant: Grant, capability: str | None = None, **more: object) -> Receipt | Refusal:
    tree = town.agent.tree(grant.base_commit, {"src/clamp.py": b"x = 1\n"})
    values = {
        "id": "p1", "capability": capability or grant.capability, "task": "t1", "base_commit": grant.base_commit,
        "tree": tree, "title": "Fix",
    }  # fmt: skip
    proposal = Proposal.model_validate({**values, **more})
    return town.service.proposals.propose(proposal, town.agent.pack(tree, grant.base_commit))


@pytest.mark.parametrize(
    ("target", "source", "granted"),
    [
        ("private", "private", True),
        ("private", "unknown", True),
        ("private", "public", True),
        ("public", "public", True),
        ("unknown", "public", True),
        ("public", "private", False),
        ("public", "unknown", False),
        ("unknown", "private", False),
        ("unknown", "unknown", False),
    ],
)
def test_what_may_be_private_is_not_read_for_what_may_be_public(town, target, source, granted):
    town.seen(demo=target, docs="public", plans=source)
    if granted:
        assert town.service.grants.rights(town.grant(reads=("docs", "plans")).capability, "mirror").reads
        return
    with pytest.raises(ConflictError, match="plans may be private and demo may be public"):
        town.grant(reads=("docs", "plans"))
    assert town.service.grants.listing().grants == ()


def test_what_the_settings_say_of_the_readers_comes_before_what_the_forge_says(open_town):
    town = open_town(demo={"visibility": "public"}, docs={"visibility": "public"})
    town.seen(demo="private", docs="private", plans="private")
    town.grant(reads=("docs",))
    with pytest.raises(ConflictError, match="plans may be private"):
        town.grant("t2", reads=("plans",))


@pytest.mark.parametrize("narrowed", [False, True])
def test_a_repository_that_became_public_since_the_grant_gets_nothing(town, narrowed):
    town.seen(demo="private", plans="private")
    grant = town.grant(reads=("plans",))
    town.service.reads.mirror(MirrorRequest(capability=grant.capability, repository="plans"))[1].close()
    town.seen(demo="public")
    with pytest.raises(CapabilityError, match="plans may be private"):
        town.service.reads.mirror(MirrorRequest(capability=grant.capability, repository="plans"))
    token = narrow(grant.capability, Caveat(reads=())) if narrowed else grant.capability
    verdict = proposed(town, grant, token)
    assert isinstance(verdict, Refusal)
    assert {finding.rule: finding.severity for finding in verdict.findings} == {"visibility": "fatal"}
    assert town.forges["demo"].pushes == []


def test_only_what_the_grant_names_is_mirrored(town):
    town.seen(demo="private", docs="private", plans="private")
    grant = town.grant(reads=("docs",))
    with pytest.raises(CapabilityError, match="does not name plans"):
        town.service.reads.mirror(MirrorRequest(capability=grant.capability, repository="plans"))
    narrowed = narrow(grant.capability, Caveat(reads=("plans",)))
    for name in ("docs", "plans"):
        with pytest.raises(CapabilityError, match=f"does not name {name}"):
            town.service.reads.mirror(MirrorRequest(capability=narrowed, repository=name))


def test_reading_what_is_not_known_or_itself_is_no_way_around(town):
    with pytest.raises(AbsentError, match="no repository 'other'"):
        town.grant(reads=("other",))
    town.seen(demo="public")
    grant = town.grant(reads=("demo", "demo"))
    assert town.service.grants.rights(grant.capability, "mirror").reads == ()


def test_a_grant_is_listed_with_who_gave_it_and_how_much_is_left(town):
    town.grant("t1", uses=2)
    town.grant("t2", by="forge:ada", issue=7)
    listed = town.service.grants.listing().grants
    assert {(one.task, one.by, one.uses, one.used) for one in listed} == {
        ("t1", "uid:0", 2, 0),
        ("t2", "forge:ada", 1, 0),
    }
    assert "swc" not in town.service.grants.listing().model_dump_json()


def test_one_that_was_taken_back_is_good_for_nothing(town):
    grant = town.grant()
    assert town.service.grants.revoke(grant.id, by_uid=0).revoked
    for verb in VERBS:
        with pytest.raises(CapabilityError, match="took the capability back"):
            town.service.grants.rights(grant.capability, verb)
    with pytest.raises(CapabilityError, match="took the capability back"):
        proposed(town, grant)
    assert town.service.grants.listing().grants == ()
    assert town.forges["demo"].pushes == []


def test_one_that_is_taken_back_while_it_is_delivered_goes_no_further(town):
    grant, forge = town.grant(), town.forges["demo"]
    forge.race = lambda: town.service.grants.revoke(grant.id, by_uid=0)  # as the branch is pushed
    with pytest.raises(StoppedError, match="took the capability back"):
        proposed(town, grant)
    assert forge.pulls() == ()
    town.service.proposals.resume()
    verdict = town.service.proposals.status("p1")
    assert isinstance(verdict, Refusal)
    assert {finding.rule for finding in verdict.findings} == {"grant-withdrawn"}
    assert forge.pulls() == ()


def test_what_a_person_approves_is_delivered_though_its_grant_was_taken_back(town):
    grant, forge = town.grant(), town.forges["demo"]
    forge.race = lambda: town.service.grants.revoke(grant.id, by_uid=0)
    with pytest.raises(StoppedError):
        proposed(town, grant)
    town.service.proposals.resume()
    refusal = town.service.proposals.status("p1")
    assert isinstance(refusal, Refusal)
    receipt = town.service.proposals.approve("p1", Approval(digest=refusal.digest), 0)
    assert isinstance(receipt, Receipt)
    assert [pull.commit for pull in forge.pulls()] == [receipt.commit]


def test_taking_back_is_in_the_log_with_who_did_it(town):
    town.service.grants.revoke(town.grant(issue=7).id, by_uid=5)
    lines = {entry.event: entry.fields for entry in town.service.log(0).entries}
    assert lines["revoke"]["uid"] == "5"
    assert lines["grant"]["issue"] == "7"
    assert "swc2" not in json.dumps([entry.model_dump() for entry in town.service.log(0).entries])


def test_what_is_stopped_while_it_is_delivered_goes_on_from_there_once_it_may(town):
    grant, forge = town.grant(), town.forges["demo"]
    forge.race = lambda: town.service.stops.set(StopRequest(stopped=True, reason="a leak"), 5)
    with pytest.raises(StoppedError, match="a leak"):
        proposed(town, grant)
    assert (len(forge.pushes), forge.pulls()) == (1, ())
    town.service.proposals.resume()
    assert forge.pulls() == ()
    town.service.stops.set(StopRequest(stopped=False), 5)
    town.service.proposals.resume()
    assert isinstance(town.service.proposals.status("p1"), Receipt)
    assert (len(forge.pushes), len(forge.pulls())) == (1, 1)


def test_a_base_that_the_policy_does_not_name_is_refused_with_those_it_does(open_town):
    town = open_town(demo={"policy": {"bases": ["release/*"]}})
    with pytest.raises(ConflictError, match="may not go to 'develop'") as caught:
        town.grant(base="develop")
    assert "main, release/*" in caught.value.mend


def test_an_update_needs_its_own_verb(town):
    grant = town.grant(uses=3)
    assert isinstance(proposed(town, grant), Receipt)
    token = narrow(grant.capability, Caveat(verbs=("propose", "mirror")))
    with pytest.raises(CapabilityError, match="not good for update"):
        proposed(town, grant, token, id="p2", update=True)


@pytest.mark.parametrize(
    ("caveat", "words"),
    [
        (Caveat(verbs=("explain",)), "not good for propose"),
        (Caveat(uses=0), "used up"),
        (Caveat(expires=1.0), "has expired"),
        (Caveat(tree="1" * 40), "another tree"),
        (Caveat(proposal="p9"), "another proposal"),
    ],
)
def test_a_holder_who_was_given_less_gets_no_further(town, caveat, words):
    grant = town.grant()
    with pytest.raises(CapabilityError, match=words) as caught:
        proposed(town, grant, narrow(grant.capability, caveat))
    assert "swarm-broker grant" in caught.value.mend
    assert town.forges["demo"].pushes == []


def test_a_capability_of_another_task_or_base_is_refused(town):
    grant = town.grant()
    for more in ({"task": "t2"}, {"base_commit": "1" * 40}):
        tree = town.agent.tree(grant.base_commit, {"src/clamp.py": b"x = 1\n"})
        values = {"id": "p1", "capability": grant.capability, "task": "t1", "base_commit": grant.base_commit}
        proposal = Proposal.model_validate({**values, "tree": tree, "title": "Fix", **more})
        with pytest.raises(CapabilityError, match="for another"):
            town.service.proposals.propose(proposal, town.agent.pack(tree, grant.base_commit))


def test_a_policy_that_became_stricter_since_the_grant_counts(tmp_path, town):
    grant = town.grant()
    stricter = town.config.repositories["demo"].policy.model_copy(update={"excluded_paths": ("src",)})
    demo = town.config.repositories["demo"].model_copy(update={"policy": stricter})
    fresh = town.config.model_copy(update={"repositories": {**town.config.repositories, "demo": demo}})
    town.service.close()
    town.service = build(
        town.config, town.forges, {name: PretendTracker() for name in town.forges}, Live.fixed(fresh).current
    )
    try:
        verdict = proposed(town, grant)
    finally:
        town.service.close()
    assert isinstance(verdict, Refusal)
    assert "path-excluded" in {finding.rule for finding in verdict.findings}


class TestStanding:
    """A person allows tasks of a later time; the coordinator draws each one's right, and can make nothing wider."""

    def test_a_drawn_right_is_for_one_task_on_the_base_as_it_is_then(self, town: Town, origin) -> None:
        held = town.grant("nightly", standing=True, uses=2, each=3)
        drawn = draw(town, held, "nightly-1")
        assert (drawn.branch, drawn.base) == ("swarm/nightly-1", held.base)
        assert drawn.expires <= held.expires
        rights = town.service.grants.rights(drawn.capability, "propose")
        assert (rights.task, rights.uses, rights.verbs) == ("nightly-1", 3, VERBS)

    def test_the_same_task_again_gives_the_same_right_and_takes_no_second_use(self, town: Town) -> None:
        held = town.grant("nightly", standing=True, uses=2)
        assert draw(town, held, "nightly-1") == draw(town, held, "nightly-1")
        draw(town, held, "nightly-2")
        with pytest.raises(CapabilityError, match="used up"):
            draw(town, held, "nightly-3")

    @pytest.mark.parametrize("task", ["other", "nightlyx", "night", "nightly2-1"])
    def test_no_task_of_another_name_is_drawn(self, town: Town, task: str) -> None:
        with pytest.raises(CapabilityError, match="not good for task"):
            draw(town, town.grant("nightly", standing=True, uses=5), task)

    def test_a_standing_right_itself_reads_and_proposes_nothing(self, town: Town) -> None:
        held = town.grant("nightly", standing=True)
        for verb in VERBS:
            with pytest.raises(CapabilityError, match=f"not good for {verb}"):
                town.service.grants.rights(held.capability, verb)

    def test_nothing_is_drawn_from_a_plain_right(self, town: Town) -> None:
        with pytest.raises(CapabilityError, match="not good for draw"):
            draw(town, town.grant("t1"), "t1")

    def test_whoever_was_given_less_draws_no_more(self, town: Town) -> None:
        held = town.grant("nightly", standing=True, uses=5)
        soon = town.service.desk.clock() + 60
        less = held.model_copy(update={"capability": narrow(held.capability, Caveat(expires=soon, uses=1))})
        assert draw(town, less, "nightly-1").expires == soon
        with pytest.raises(CapabilityError, match="used up"):
            draw(town, less, "nightly-2")
        draw(town, held, "nightly-2")
        with pytest.raises(CapabilityError, match="allowed more"):
            draw(town, less, "nightly-2")

    def test_who_takes_it_back_takes_back_what_was_drawn(self, town: Town) -> None:
        held = town.grant("nightly", standing=True, uses=5)
        drawn = draw(town, held, "nightly-1")
        town.service.grants.revoke(held.id, 0)
        for capability, verb in ((held.capability, "draw"), (drawn.capability, "propose")):
            with pytest.raises(CapabilityError, match="took the capability back"):
                town.service.grants.rights(capability, verb)

    def test_one_that_is_taken_back_while_a_right_is_drawn_gives_none(self, town: Town) -> None:
        held = town.grant("nightly", standing=True, uses=5)
        town.forges["demo"].meanwhile = lambda: town.service.grants.revoke(held.id, 0)
        with pytest.raises(CapabilityError, match="took the capability back"):
            draw(town, held, "nightly-1")
        assert town.service.grants.listing().grants == ()
        assert town.service.log(0).entries[-1].event == "revoke"

    def test_a_task_that_is_drawn_for_twice_at_once_gets_one_right_and_spends_one_use(self, town: Town) -> None:
        held = town.grant("nightly", standing=True, uses=2)
        with ThreadPoolExecutor(4) as pool:
            drawn = list(pool.map(lambda _: draw(town, held, "nightly-1"), range(4)))
        assert drawn == [drawn[0]] * 4
        draw(town, held, "nightly-2")

    def test_a_forge_that_is_away_uses_nothing_up(self, town: Town) -> None:
        held = town.grant("nightly", standing=True, uses=1)
        for number in range(3):
            town.forges["demo"].before["fetch"] = [ForgeError("the forge is away", "wait")]
            with pytest.raises(ForgeError):
                draw(town, held, f"nightly-{number}")
        assert draw(town, held, "nightly-9").branch == "swarm/nightly-9"
        town.forges["demo"].before["fetch"] = [ForgeError("nobody asks it any more", "wait")]
        with pytest.raises(CapabilityError, match="used up"):
            draw(town, held, "nightly-10")

    def test_nothing_is_drawn_while_a_person_has_stopped_the_repository(self, town: Town) -> None:
        held = town.grant("nightly", standing=True)
        town.service.stops.set(StopRequest(repository="demo", stopped=True), 0)
        with pytest.raises(StoppedError):
            draw(town, held, "nightly")

    def test_nothing_is_drawn_once_what_it_reads_became_private(self, town: Town) -> None:
        town.seen(demo="public", docs="public")
        held = town.grant("nightly", standing=True, reads=["docs"])
        town.seen(docs="private")
        with pytest.raises(ConflictError):
            draw(town, held, "nightly")


def draw(town: Town, held: Grant, task: str) -> Grant:
    return town.service.grants.draw(DrawRequest(capability=held.capability, task=task))
