"""The own tree walk: what differs, what is malformed, where it stops. Trees are made by hand, no git is involved."""

from __future__ import annotations

import hashlib

import pytest

from broker.judge.facts import MAX_DEPTH, compare, parse_tree


class Trees:
    """Tree objects by id."""

    def __init__(self):
        self.objects = {}
        self.reads = 0

    def make(self, *entries):
        data = b"".join(mode.encode() + b" " + name + b"\0" + bytes.fromhex(oid) for mode, name, oid in entries)
        oid = hashlib.sha1(data, usedforsecurity=False).hexdigest()
        self.objects[oid] = data
        return oid

    def read(self, oid):
        self.reads += 1
        return self.objects[oid]


A, B = "a" * 40, "b" * 40


@pytest.fixture
def trees():
    return Trees()


def changed(facts):
    return [(change.kind, change.path) for change in facts.changes]


def test_added_modified_and_deleted_files_are_told_apart(trees):
    old = trees.make(("100644", b"gone", A), ("100644", b"kept", A), ("100644", b"same", A))
    new = trees.make(("100644", b"kept", B), ("100644", b"new", A), ("100644", b"same", A))
    facts = compare(trees.read, old, new, max_changes=10)
    assert changed(facts) == [("deleted", "gone"), ("modified", "kept"), ("added", "new")]
    assert facts.findings == []


def test_equal_folders_are_not_entered(trees):
    inner = trees.make(("100644", b"f", A))
    old = trees.make(("40000", b"d", inner), ("100644", b"x", A))
    new = trees.make(("40000", b"d", inner), ("100644", b"x", B))
    compare(trees.read, old, new, max_changes=10)
    assert trees.reads == 2


def test_a_file_that_becomes_a_folder_is_a_deletion_and_additions(trees):
    inner = trees.make(("100644", b"f", B))
    facts = compare(trees.read, trees.make(("100644", b"p", A)), trees.make(("40000", b"p", inner)), max_changes=10)
    assert changed(facts) == [("added", "p/f"), ("deleted", "p")]


def test_a_mode_alone_is_a_change(trees):
    facts = compare(trees.read, trees.make(("100644", b"p", A)), trees.make(("100755", b"p", A)), max_changes=10)
    assert changed(facts) == [("modified", "p")]


def test_everything_below_a_removed_folder_is_a_change(trees):
    inner = trees.make(("100644", b"f", A), ("100644", b"g", A))
    facts = compare(trees.read, trees.make(("40000", b"d", inner)), trees.make(), max_changes=10)
    assert changed(facts) == [("deleted", "d/f"), ("deleted", "d/g")]


@pytest.mark.parametrize(
    "entries",
    [
        [("100644", b"z", A), ("100644", b"a", A)],
        [("100644", b"a", A), ("100644", b"a", A)],
        [("100644", b"a", A), ("100755", b"a", B)],
        [("100644", b"A", A), ("100644", b"a", A)],
        [("100664", b"a", A)],
        [("160755", b"a", A)],
        [("100644", b"", A)],
    ],
)
def test_a_malformed_tree_is_reported(trees, entries):
    facts = compare(trees.read, trees.make(), trees.make(*entries), max_changes=10)
    assert {finding.rule for finding in facts.findings} == {"bad-tree"}


def test_a_duplicate_of_a_base_entry_is_reported(trees):
    old = trees.make(("100644", b"a", A))
    new = trees.make(("100644", b"a", A), ("100644", b"a", B))
    assert compare(trees.read, old, new, max_changes=10).findings


def test_a_collision_that_the_base_already_has_is_not_held_against_the_proposal(trees):
    old = trees.make(("100644", b"A", A), ("100644", b"a", A))
    new = trees.make(("100644", b"A", A), ("100644", b"a", B))
    assert compare(trees.read, old, new, max_changes=10).findings == []


def test_an_odd_name_that_the_base_already_has_is_not_held_against_the_proposal(trees):
    old, new = trees.make(("100644", b"a\\b", A)), trees.make(("100644", b"a\\b", B))
    assert compare(trees.read, old, new, max_changes=10).findings == []


def test_a_tree_bomb_is_stopped_by_the_budget(trees):
    tree = trees.make(*(("100644", f"f{n}".encode(), A) for n in range(10)))
    for _ in range(9):
        tree = trees.make(*(("40000", f"d{n}".encode(), tree) for n in range(10)))
    facts = compare(trees.read, trees.make(), tree, max_changes=100)
    assert not facts.complete
    assert len(facts.changes) == 100
    assert trees.reads < 100


def test_a_bomb_of_empty_folders_is_stopped_by_the_budget(trees):
    tree = trees.make()
    for _ in range(40):
        tree = trees.make(*(("40000", f"d{n}".encode(), tree) for n in range(10)))
    facts = compare(trees.read, trees.make(), tree, max_changes=100, max_entries=1000)
    assert not facts.complete
    assert trees.reads <= 1000


def test_depth_is_bounded(trees):
    tree = trees.make(("100644", b"f", A))
    for _ in range(MAX_DEPTH + 5):
        tree = trees.make(("40000", b"d", tree))
    assert not compare(trees.read, trees.make(), tree, max_changes=100).complete


@pytest.mark.parametrize(
    "data", [b"100644 a\0short", b"100644a\0" + b"x" * 20, b"100644 a" + b"x" * 30, b" ", b"\0" * 25]
)
def test_a_cut_tree_is_an_error(data):
    with pytest.raises(ValueError, match="malformed"):
        list(parse_tree(data, 20))
