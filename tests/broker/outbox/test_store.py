"""What is kept: one content per id, and nothing for an id whose content could not be written."""

from __future__ import annotations

import shutil

import pytest

from broker.errors import BrokerError, ConflictError, OutboxFullError


def parts(house, content, task="t1"):
    tree = house.agent.tree(house.grant(task).base_commit, {"src/clamp.py": content})
    proposal = house.proposal(tree, task, id="p")
    return proposal, house.agent.pack(tree, house.grant(task).base_commit)


def test_an_id_that_two_calls_use_at_once_keeps_the_content_of_the_first(house):
    outbox, mint = house.service.desk.outbox, house.service.grants
    first, second = parts(house, b"first\n"), parts(house, b"second\n", "t2")
    kept = outbox.keep(*first, mint.rights_for(first[0], "propose"))
    with pytest.raises(ConflictError, match="was used for something else"):
        outbox.keep(*second, mint.rights_for(second[0], "propose"))
    assert outbox.content(kept)[1] == first[1]


def test_what_could_not_be_written_is_not_kept_and_costs_no_use(house):
    proposal, pack = parts(house, b"fixed\n")
    shutil.rmtree(house.config.state / "outbox")
    with pytest.raises(OSError, match="No such file"):
        house.service.proposals.propose(proposal, pack)
    assert house.service.desk.outbox.find("p") is None
    assert [granted.used for granted in house.service.grants.listing().grants] == [0]


def test_what_no_person_can_approve_makes_room_and_nothing_else_does(build_house):
    house = build_house(outbox_entries=2)
    house.offer({"package.json": b"{}\n"}, "block")
    for task in ("fatal", "another"):
        tree = house.agent.raw_tree(("100644", b".git", house.agent.blob(b"x")))
        house.service.proposals.propose(house.proposal(tree, task), house.agent.pack_of(tree))
    assert [one.id for one in house.service.proposals.outbox().proposals] == ["another-p", "block-p"]
    house.offer({"package.json": b"{ }\n"}, "more")
    with pytest.raises(OutboxFullError):
        house.offer(house.good, "good")
    assert [one.id for one in house.service.proposals.outbox().proposals] == ["more-p", "block-p"]


def test_a_row_that_the_database_refuses_is_an_error_that_callers_know(house):
    database = house.service.desk.outbox.database
    with pytest.raises(BrokerError, match="NOT NULL"):
        database.write("INSERT INTO steps (proposal) VALUES ('p')")
