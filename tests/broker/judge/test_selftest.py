"""The self-test: this machine's git keeps every claim, one that does not is refused, and a known one is not tested
again."""

from __future__ import annotations

import pytest

from broker.errors import ConfigError
from broker.gitdir import GitDir
from broker.judge import claims
from broker.judge.claims import CLAIMS
from broker.judge.crafted import blob, pack, tree
from broker.judge.selftest import Proof, prove

SLOW = {"the limit on processor time kills"}


@pytest.mark.parametrize("name", [name for name in CLAIMS if name not in SLOW])
def test_this_git_keeps_the_claim(name, tmp_path):
    assert CLAIMS[name](tmp_path) == ""


@pytest.mark.slow
def test_all_claims_are_proved_once_and_remembered(tmp_path):
    first = prove(tmp_path)
    assert all(claim.ok for claim in first.claims)
    assert set(first.fields()["claims"].split("; ")) == set(CLAIMS)
    second = prove(tmp_path)
    assert second.remembered
    assert second.claims == first.claims
    assert [path.name for path in tmp_path.iterdir()] == ["git-proof.json"]


def test_what_was_proved_of_another_git_counts_for_nothing(tmp_path):
    kept = Proof(version="git version 1", key="0" * 64, claims=(), seconds=0)
    (tmp_path / "git-proof.json").write_text(kept.model_dump_json())
    few = {"fine": lambda _scratch: ""}
    assert not prove(tmp_path, few).remembered
    assert prove(tmp_path, few).remembered
    assert not prove(tmp_path, {**few, "more": lambda _scratch: ""}).remembered


def test_each_hostile_sample_is_taken_where_nothing_is_checked(tmp_path):
    """The samples bite: without --strict git imports every one whose objects are there."""
    taken = 0
    for number, (name, objects) in enumerate(claims._hostile().items()):
        store = GitDir(tmp_path / str(number))
        store.create()
        store.run("index-pack", "--stdin", stdin=[pack(objects)])
        taken += name != ""
    assert taken >= 20


def test_a_claim_that_fails_names_git_and_the_mend(tmp_path):
    moon = {"the moon is made of cheese": lambda scratch: f"{scratch} is not"}
    with pytest.raises(ConfigError, match=r"git version .*moon.*: \. is not") as caught:
        prove(tmp_path, moon)
    assert "install" in caught.value.mend
    assert not (tmp_path / "git-proof.json").exists()


def test_crafted_objects_have_the_ids_that_git_gives_them(tmp_path):
    file = blob(b"x\n")
    folder = tree(("100644", b"a", file.oid))
    store = GitDir(tmp_path / "g")
    store.create()
    store.run("index-pack", "--stdin", "--strict", stdin=[pack([file, folder])])
    assert store.packed() == {file.oid, folder.oid}
