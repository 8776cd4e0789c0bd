"""What a person sees before his word is read from exactly the content that the digest names, and is always bounded."""

from __future__ import annotations

import shutil
import time

import pytest

pytestmark = pytest.mark.slow


def change(house, proposal="t1-p"):
    return house.service.proposals.kept(proposal).change


def test_the_change_is_shown_with_modes_and_lines(house):
    changes = {
        "package.json": b'{"a": 1}\n',
        "run.sh": ("100755", b"#!/bin/sh\n"),
        "link": ("120000", b"../outside"),
        "README.md": None,
    }
    refusal = house.offer(changes)
    shown = house.service.proposals.kept("t1-p")
    assert shown.digest == refusal.digest
    assert [(file.kind, file.path, file.was, file.mode) for file in shown.change.files] == [
        ("deleted", "README.md", "100644", None),
        ("added", "link", None, "120000"),
        ("added", "package.json", None, "100644"),
        ("modified", "run.sh", "100644", "100755"),
    ]
    assert '+{"a": 1}' in shown.change.diff
    assert "+../outside" in shown.change.diff
    assert (shown.change.cut, shown.change.problem, shown.change.more) == (False, "", 0)


def test_a_submodule_is_in_the_diff_too(house):
    house.offer({"sub": ("160000", b"1" * 40)})
    assert f"+Subproject commit {'1' * 40}" in change(house).diff


def test_attributes_of_the_proposal_hide_nothing(house):
    """A .gitattributes with ``-diff`` makes git say "Binary files differ" where it is obeyed."""
    house.offer({".gitattributes": b"* -diff\n*.json diff=x\n", "package.json": b'{"evil": 1}\n'})
    assert '+{"evil": 1}' in change(house).diff


def test_a_long_diff_is_cut_and_says_so(house):
    house.offer({"package.json": b"x = 1\n" * 10, **{f"a{n}.txt": b"a line of text\n" * 6000 for n in range(20)}})
    shown = change(house)
    assert shown.cut
    assert len(shown.diff.encode()) <= 1 << 20
    assert len(shown.files) == 21


def test_more_files_than_are_listed_are_counted(house):
    house.offer({"package.json": b"{}\n", **{f"a{n}.txt": b"a\n" for n in range(1002)}})
    assert (len(change(house).files), change(house).more) == (1000, 3)


def test_a_tree_without_end_is_not_walked_to_its_end(house):
    """Nested folders of a few hundred bytes that describe 10^10 paths: github.com/ilikenwf/git-bomb."""
    agent = house.agent
    oid = agent.blob(b"x\n")
    made = [oid]
    mode = "100644"
    for _ in range(10):
        oid = agent.raw_tree(*((mode, b"f%d" % n, oid) for n in range(10)))
        made.append(oid)
        mode = "40000"
    proposal = house.proposal(oid)
    house.service.proposals.propose(proposal, agent.pack_of(*made))
    began = time.monotonic()
    shown = change(house)
    assert time.monotonic() - began < 20
    assert shown.cut
    assert "entries" in shown.problem
    assert shown.diff == ""


@pytest.mark.parametrize("pack", [b"", b"PACK\0\0\0\2\0\0\0\0junk"])
def test_content_that_cannot_be_read_leaves_the_verdict_to_see(house, pack):
    tree = house.agent.tree(house.grant().base_commit, {"package.json": b"new\n"})
    refusal = house.service.proposals.propose(house.proposal(tree), pack)
    shown = house.service.proposals.kept("t1-p")
    assert shown.change.problem
    assert str(house.folder) not in shown.change.problem
    assert shown.verdict == refusal


def test_a_lost_mirror_is_said(house):
    house.offer({"package.json": b"{}\n"})
    shutil.rmtree(house.config.state / "mirrors")
    assert change(house).problem
    assert house.service.proposals.kept("t1-p").verdict is not None


def test_what_is_delivered_or_discarded_shows_no_change(house):
    house.offer(house.good)
    assert change(house) is None
    house.offer({"package.json": b"{}\n"}, task="t2")
    house.service.proposals.discard("t2-p", by_uid=0)
    assert change(house, "t2-p") is None
