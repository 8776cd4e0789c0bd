"""The verbs, and everything that a prompt-injected agent or a taken-over coordinator might try with them."""

from __future__ import annotations

import hashlib
import shutil
import struct
import threading
import zlib
from concurrent.futures import ThreadPoolExecutor

import pytest

from broker.capability import Caveat, narrow
from broker.errors import AbsentError, BrokerError, CapabilityError, ConflictError, ForgeError, OutboxFullError
from broker.judge.inspection import inspect
from broker.judge.quarantine import take
from broker.testing import PretendForge, copy
from broker.wire import GrantRequest, MirrorRequest, Receipt, Refusal, Waiting

NULL = "0" * 40


def test_a_good_proposal_becomes_a_branch_and_a_pull_request(house):
    receipt = house.offer(house.good)
    assert isinstance(receipt, Receipt)
    refs = house.branches()
    assert refs["refs/heads/swarm/t1"] == refs["refs/pull/1/head"] == receipt.commit
    assert house.origin.git("show", f"{receipt.commit}:src/clamp.py").endswith("min(x, high))")
    assert refs["refs/heads/main"] == house.grant().base_commit


def test_the_pushed_commit_is_the_brokers_own(house):
    body = "All done.\n\nCo-authored-by: Linus <torvalds@example.org>\nSigned-off-by: X <x@y>"
    receipt = house.offer(house.good, title="Fix @alice's clamp, fixes #1", body=body)
    shown = house.origin.git("log", "-1", "--format=%an|%ae|%cn|%P|%B", receipt.commit)
    assert shown.startswith(
        f"Agent Swarm|agent-swarm@localhost|Agent Swarm|{house.grant().base_commit}|[agent] Fix (at)alice"
    )
    assert "authored-by" not in shown
    assert "Signed-off" not in shown
    assert "#1" not in shown


def test_commits_and_unreachable_objects_of_a_pack_are_refused_and_not_pushed(house):
    base = house.grant().base_commit
    tree = house.agent.tree(base, house.good)
    commit = house.agent.commit(tree, base, message="mine")
    hidden = house.agent.blob(b"hidden\n")
    pack = house.agent.pack_of(
        commit, hidden, tree, *house.agent.git("ls-tree", "-r", "-t", "--format=%(objectname)", tree).split()
    )
    assert house.rules(house.service.proposals.propose(house.proposal(tree), pack)) == {"hidden-object"}
    for gone in (commit, hidden):
        assert "missing" in house.origin.git("cat-file", "--batch-check", stdin=gone.encode())


def test_the_same_proposal_again_gives_the_same_receipt(house):
    assert house.offer(house.good) == house.offer(house.good)
    assert len(house.service.pulls.listing("demo").pulls) == 1


def test_the_same_tree_under_another_id_gives_the_same_receipt(house):
    first = house.offer(house.good)
    assert house.offer(house.good, id="other") == first
    assert len(house.service.pulls.listing("demo").pulls) == 1


def test_a_proposal_id_cannot_be_used_for_something_else(house):
    house.offer(house.good)
    with pytest.raises(ConflictError, match="used for something else"):
        house.offer({"src/clamp.py": b"pass\n"})


def test_concurrent_identical_proposals_make_one_pull_request(house):
    tree = house.agent.tree(house.grant().base_commit, house.good)
    pack = house.agent.pack(tree, house.grant().base_commit)
    start = threading.Barrier(6)

    def offer(_number: int) -> Receipt | Refusal:
        start.wait()
        return house.service.proposals.propose(house.proposal(tree), pack)

    with ThreadPoolExecutor(6) as pool:
        verdicts = list(pool.map(offer, range(6)))
    assert len(set(verdicts)) == 1
    assert isinstance(verdicts[0], Receipt)
    assert len(house.service.pulls.listing("demo").pulls) == 1


def test_concurrent_different_proposals_of_one_task_make_one_pull_request(house):
    base = house.grant(uses=5).base_commit
    trees = [house.agent.tree(base, {"src/clamp.py": f"# {n}\n".encode()}) for n in range(5)]
    packs = [house.agent.pack(tree, base) for tree in trees]

    def offer(n: int) -> Receipt | Refusal:
        return house.service.proposals.propose(house.proposal(trees[n], id=f"p{n}"), packs[n])

    with ThreadPoolExecutor(5) as pool:
        verdicts = list(pool.map(offer, range(5)))
    assert sum(isinstance(verdict, Receipt) for verdict in verdicts) == 1
    assert {rule for verdict in verdicts for rule in house.rules(verdict)} == {"branch-taken"}
    assert len(house.service.pulls.listing("demo").pulls) == 1


# --- capabilities


def test_a_capability_is_used_up(house):
    house.offer({"package.json": b"{}\n"})
    with pytest.raises(CapabilityError, match="used up"):
        house.offer(house.good, id="second")


def test_a_forged_capability_is_refused(house):
    real = house.grant().capability
    forged = real[:-4] + ("AAAA" if not real.endswith("AAAA") else "BBBB")
    with pytest.raises(CapabilityError, match="not made by this broker"):
        house.offer(house.good, capability=forged)


def test_an_expired_capability_is_refused(house):
    expired = narrow(house.grant().capability, Caveat(expires=1.0))
    with pytest.raises(CapabilityError, match="expired"):
        house.offer(house.good, capability=expired)


def test_a_capability_for_one_task_is_no_good_for_another(house):
    house.grant("t2")
    with pytest.raises(CapabilityError, match="another task"):
        house.offer(house.good, "t1", capability=house.grant("t2").capability)


def test_a_capability_is_bound_to_its_base_commit(house):
    house.grant()
    other = house.agent.commit(house.agent.tree(None, {"x": b""}))
    with pytest.raises(CapabilityError, match="another base commit"):
        house.offer(house.good, base_commit=other)


def test_a_capability_narrowed_to_a_tree_takes_no_other(house):
    narrowed = narrow(house.grant().capability, Caveat(tree=NULL))
    with pytest.raises(CapabilityError, match="another tree"):
        house.offer(house.good, capability=narrowed)


def test_a_capability_narrowed_to_a_proposal_takes_no_other(house):
    narrowed = narrow(house.grant().capability, Caveat(proposal="mine"))
    with pytest.raises(CapabilityError, match="another proposal"):
        house.offer(house.good, capability=narrowed)


def test_a_capability_narrowed_to_mirror_cannot_propose(house):
    narrowed = narrow(house.grant().capability, Caveat(verbs=("mirror",)))
    house.service.reads.mirror(MirrorRequest(capability=narrowed))[1].close()
    with pytest.raises(CapabilityError, match="not good for propose"):
        house.offer(house.good, capability=narrowed)


def test_uses_cannot_be_widened(house):
    widened = narrow(house.grant().capability, Caveat(uses=50))
    house.offer({"package.json": b"{}\n"}, capability=widened)
    with pytest.raises(CapabilityError, match="used up"):
        house.offer(house.good, id="second", capability=widened)


def test_a_grant_that_this_state_does_not_know_is_refused(house, reopened):
    capability = house.grant().capability
    house.service.close()
    (house.config.state / "outbox.sqlite").unlink()
    for left in house.config.state.glob("outbox.sqlite-*"):
        left.unlink()
    again = reopened()
    with pytest.raises(CapabilityError, match="another state"):
        again.reads.mirror(MirrorRequest(capability=capability))


# --- grants


@pytest.mark.parametrize(
    "base", ["", "-x", "../main", "main:x", "a b", "main\n", "refs@{0}", "x.lock", "a//b", "\u202emain", "HEAD^"]
)
def test_a_base_that_is_no_plain_branch_name_is_refused(court, base):
    with pytest.raises((ConflictError, AbsentError)):
        court.service.grants.grant(GrantRequest(repository="demo", task="t", base=base or " "), "uid:0")


@pytest.mark.parametrize("task", ["a..b", "a.lock", "a."])
def test_a_task_that_makes_no_plain_branch_name_is_refused(court, task):
    with pytest.raises(ConflictError, match="not a branch name"):
        court.service.grants.grant(GrantRequest(repository="demo", task=task), "uid:0")


def test_an_unknown_base_or_repository_is_named(court):
    with pytest.raises(AbsentError, match="'nowhere'"):
        court.service.grants.grant(GrantRequest(repository="demo", task="t", base="nowhere"), "uid:0")
    with pytest.raises(AbsentError, match="'other'"):
        court.service.grants.grant(GrantRequest(repository="other", task="t"), "uid:0")


def test_an_agents_branch_is_no_base(house):
    house.offer(house.good)
    with pytest.raises(ConflictError, match="agents' own"):
        house.service.grants.grant(GrantRequest(repository="demo", task="t", base="swarm/t1"), "uid:0")


def test_a_task_whose_branch_exists_is_not_granted_again(house):
    house.offer(house.good)
    with pytest.raises(ConflictError, match="there already"):
        house.service.grants.grant(GrantRequest(repository="demo", task="t1"), "uid:0")


def test_a_task_granted_again_after_its_branch_was_removed_gets_a_pull_request_of_its_own(house):
    house.offer(house.good)
    merged = house.service.pulls.merge("demo", 1, by_uid=0)
    house.origin.git("update-ref", "-d", "refs/heads/swarm/t1")
    house.agent.git("fetch", "-q", str(house.origin.path), "+refs/heads/main:refs/heads/main")
    house.grants.clear()
    receipt = house.offer({"src/more.py": b"more = 1\n"}, id="t1-again")
    assert house.grant().base_commit == merged.merged_commit
    assert receipt.number == 2
    assert house.service.pulls.show("demo", receipt.number).pull.commit == receipt.commit


def test_concurrent_grants_do_not_trip_over_each_other(house):
    def grant(number: int) -> str:
        return house.service.grants.grant(GrantRequest(repository="demo", task=f"g{number}"), "uid:0").branch

    with ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(grant, range(8)))) == 8


# --- policy on what would be pushed


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({".github/workflows/ci.yml": b"on: pull_request_target\n"}, "protected-path"),
        ({".github/workflows/new.yml": b"on: push\n"}, "protected-path"),
        ({".github/workflows/ci.yml": None}, "protected-path"),
        ({".github": b"a file instead of the folder\n", ".github/workflows/ci.yml": None}, "protected-path"),
        ({"docs/CODEOWNERS": b"* @me\n"}, "protected-path"),
        ({"sub/codeowners": b"* @me\n"}, "protected-path"),
        ({".gitmodules": b"[submodule]\n"}, "protected-path"),
        ({"deep/.gitattributes": b"* filter=x\n"}, "protected-path"),
        ({"AGENTS.md": b"obey\n"}, "protected-path"),
        ({"pkg/agents.MD": b"obey\n"}, "protected-path"),
        ({".vscode/tasks.json": b"{}\n"}, "protected-path"),
        ({"package.json": b"{}\n"}, "protected-path"),
        ({"link": ("120000", b"/etc/passwd")}, "symlink"),
        ({"src/clamp.py": ("120000", b"../run.sh")}, "symlink"),
        ({"vendored": ("160000", b"1" * 40)}, "submodule"),
        ({"src/tool.py": ("100755", b"x\n")}, "executable"),
        ({"run.sh": ("100755", b"#!/bin/sh\n")}, "executable"),
        ({"big.txt": b"x" * 300_000}, "file-too-large"),
        ({f"f{n}.txt": b"y" * 200_000 for n in range(6)}, "too-many-bytes"),
        ({f"many/f{n}.txt": b"" for n in range(101)}, "too-many-files"),
        ({f"many/f{n}.txt": b"" for n in range(400)}, "too-large"),
        ({"blob.bin": b"\x00\x01\x02"}, "binary"),
        ({"src/key.py": b'aws = "AKIAIOSFODNN7EXAMPLA"\n'}, "secret"),
        ({"src/clamp.py": b"# \xe2\x80\xae evil \xe2\x80\xac\n"}, "hidden-text"),
        ({}, "no-change"),
    ],
)  # fmt: skip
def test_policy_refuses(court, fresh_id, changes, rule):
    verdict = court.offer(changes, id=fresh_id)
    assert rule in court.rules(verdict)
    assert "refs/heads/swarm/t1" not in court.branches()


def test_all_findings_come_at_once(court, fresh_id):
    changes = {"package.json": b"{}\n", "l": ("120000", b"x"), "k.py": b"AKIAIOSFODNN7EXAMPLA\n"}
    verdict = court.offer(changes, id=fresh_id)
    assert {"protected-path", "symlink", "secret"} <= court.rules(verdict)


def test_every_finding_says_how_to_mend_it(court, fresh_id):
    changes = {"package.json": b"{}\n", "l": ("120000", b"x"), "b": b"\0", "x" * 300: b""}
    verdict = court.offer(changes, id=fresh_id)
    assert len(verdict.findings) >= 4
    assert all(finding.mend for finding in verdict.findings)


def test_only_allowed_paths_may_change(build_house):
    house = build_house(policy={"allowed_paths": ["src/*"]})
    assert "path-not-allowed" in house.rules(house.offer({"README.md": b"x\n"}))
    assert isinstance(house.offer(house.good, "t2"), Receipt)


def test_explain_gives_the_verdict_and_keeps_nothing(house):
    tree = house.agent.tree(house.grant().base_commit, {"package.json": b"{}\n", **house.good})
    pack = house.agent.pack(tree, house.grant().base_commit)
    explained = house.service.proposals.explain(house.proposal(tree), pack)
    assert not explained.allowed
    assert explained.files == ("added package.json", "modified src/clamp.py")
    assert house.service.proposals.outbox().proposals == ()
    assert explained.findings == house.service.proposals.propose(house.proposal(tree), pack).findings


# --- malformed and hostile trees


def hostile(house, *entries):
    base = house.grant().base_commit
    blob = house.agent.blob(b"payload\n")
    known = [("100644", b"README.md", house.agent.git("rev-parse", f"{base}:README.md"))]
    tree = house.agent.raw_tree(*known, *((mode, name, oid or blob) for mode, name, oid in entries))
    return tree, house.agent.pack_of(tree, blob)


@pytest.mark.parametrize(
    "name",
    [
        b".git", b".GIT", b"git~1", b".g\xe2\x80\x8cit", b".git ", b".git.", b"..", b".", b"a/b", b"a\nb", b"a\x1b[31m",
        b".git::$INDEX_ALLOCATION", b"\xff\xfe", b"\xe2\x80\xaetxt.exe", b"con", b"aux.c", b"a\\b", b"-rf", b"x" * 300,
        b"GITHUB~1",
    ],
)  # fmt: skip
def test_a_hostile_name_is_refused(court, fresh_id, name):
    tree, pack = hostile(court, ("100644", name, None))
    assert court.rules(court.service.proposals.propose(court.proposal(tree, id=fresh_id), pack)) & {
        "bad-tree",
        "pack-rejected",
        "odd-name",
    }


@pytest.mark.parametrize(
    "entries",
    [
        [("100644", b"z", None), ("100644", b"a", None)],
        [("100644", b"z", None), ("100644", b"z", None)],
        [("100644", b"Z", None), ("100644", b"z", None)],
        [("100666", b"z", None)],
        [("0100644", b"z", None)],
        [("40000", b"z", None)],
        [("100644", b"z", "1" * 40)],
        [("100644", b"z", "4b825dc642cb6eb9a060e54bf8d69288fbee4904")],
    ],
    ids=[
        "unsorted",
        "duplicate",
        "case",
        "odd mode",
        "padded mode",
        "blob as folder",
        "missing object",
        "folder as file",
    ],
)
def test_a_hostile_tree_is_refused(court, fresh_id, entries):
    if any(entry[2] == "4b825dc642cb6eb9a060e54bf8d69288fbee4904" for entry in entries):
        court.agent.git("mktree")
    tree, pack = hostile(court, *entries)
    assert court.rules(court.service.proposals.propose(court.proposal(tree, id=fresh_id), pack)) & {
        "bad-tree",
        "pack-rejected",
        "foreign-object",
    }


def test_a_tree_bomb_is_stopped_early(court, fresh_id):
    blob = court.agent.blob(b"x\n")
    tree = court.agent.raw_tree(*(("100644", f"f{n}".encode(), blob) for n in range(10)))
    oids = [tree]
    for _ in range(9):  # ten to the tenth paths
        tree = court.agent.raw_tree(*(("40000", f"d{n}".encode(), tree) for n in range(10)))
        oids.append(tree)
    verdict = court.service.proposals.propose(court.proposal(tree, id=fresh_id), court.agent.pack_of(blob, *oids))
    assert "too-large" in court.rules(verdict)


def test_nesting_without_end_is_stopped(court, fresh_id):
    blob = court.agent.blob(b"x\n")
    tree, oids = court.agent.raw_tree(("100644", b"f", blob)), [blob]
    for _ in range(80):
        oids.append(tree)
        tree = court.agent.raw_tree(("40000", b"d", tree))
    verdict = court.service.proposals.propose(court.proposal(tree, id=fresh_id), court.agent.pack_of(*oids, tree))
    assert "too-large" in court.rules(verdict)


def test_a_blob_bomb_is_refused_without_being_read(court, fresh_id):
    tree = court.agent.tree(court.grant().base_commit, {"bomb.txt": b"\x20" * (40 << 20)})
    pack = court.agent.pack(tree, court.grant().base_commit)
    assert len(pack) < 200_000
    assert court.rules(court.service.proposals.propose(court.proposal(tree, id=fresh_id), pack)) == {"pack-too-large"}


@pytest.mark.parametrize("pack", [b"garbage", b"PACK", b"PACK\0\0\0\2\xff\xff\xff\xff" + b"\0" * 64, b"\0" * 1000])
def test_a_pack_of_garbage_is_refused(court, fresh_id, pack):
    tree = court.agent.tree(court.grant().base_commit, court.good)
    assert court.rules(court.service.proposals.propose(court.proposal(tree, id=fresh_id), pack)) == {"pack-rejected"}


def test_a_pack_that_is_cut_is_refused(court, fresh_id):
    tree = court.agent.tree(court.grant().base_commit, court.good)
    pack = court.agent.pack(tree, court.grant().base_commit)
    assert court.rules(court.service.proposals.propose(court.proposal(tree, id=fresh_id), pack[:-30])) == {
        "pack-rejected"
    }


def test_a_pack_over_the_limit_is_refused_and_kept(build_house):
    house = build_house(policy={"max_pack_bytes": 1000})
    tree = house.agent.tree(house.grant().base_commit, {"a.txt": bytes(range(32, 127)) * 2 + b"\n", "b.txt": b"q" * 40})
    verdict = house.service.proposals.propose(house.proposal(tree), b"PACK" + b"x" * 2000)
    assert house.rules(verdict) == {"pack-too-large"}
    assert house.service.proposals.kept("t1-p").size > 2000


@pytest.mark.parametrize("kind", ["unknown", "blob", "commit"])
def test_a_tree_id_that_is_no_tree_is_refused(court, fresh_id, kind):
    base = court.grant().base_commit
    tree = court.agent.tree(base, court.good)
    named = {"unknown": "1" * 40, "blob": court.agent.git("rev-parse", f"{tree}:src/clamp.py"), "commit": base}[kind]
    verdict = court.service.proposals.propose(court.proposal(named, id=fresh_id), court.agent.pack(tree, base))
    assert court.rules(verdict) == {"foreign-object" if kind == "unknown" else "no-such-tree"}


def test_content_of_another_branch_cannot_be_pulled_in_by_its_id(house):
    secret = house.origin.tree(None, {"plans.txt": b"the other branch's plans\n"})
    house.origin.commit(secret, branch="private")
    house.service.grants.grant(GrantRequest(repository="demo", task="other", base="private"), "uid:0")
    stolen = house.origin.git("rev-parse", f"{secret}:plans.txt")
    base = house.grant().base_commit
    readme = house.agent.git("rev-parse", f"{base}:README.md")
    house.agent.blob(b"the other branch's plans\n")
    tree = house.agent.raw_tree(("100644", b"README.md", readme), ("100644", b"stolen.txt", stolen))
    verdict = house.service.proposals.propose(house.proposal(tree), house.agent.pack_of(tree))
    assert "foreign-object" in house.rules(verdict)


@pytest.mark.parametrize("as_tree", [False, True])
def test_a_guess_at_another_branchs_content_is_answered_the_same_whether_it_is_right(house, as_tree):
    right, wrong = b"the price is 4711\n", b"the price is 4710\n"
    house.origin.commit(house.origin.tree(None, {"plans.txt": right}), branch="private")
    house.service.grants.grant(GrantRequest(repository="demo", task="other", base="private"), "uid:0")
    told = set()
    for guess in (right, wrong):
        blob = house.agent.blob(guess)
        if as_tree:
            tree, pack = house.agent.raw_tree(("100644", b"plans.txt", blob)), b""
        else:
            tree = house.agent.raw_tree(("100644", b"x.txt", blob))
            pack = house.agent.pack_of(tree)
        told.add(house.service.proposals.explain(house.proposal(tree), pack).model_dump_json())
    assert len(told) == 1
    assert "foreign-object" in told.pop()


def test_one_content_under_hundreds_of_paths_is_not_read_hundreds_of_times(house):
    blob = house.agent.blob(b"\xc3\xa9" * 100_000)
    tree = house.agent.raw_tree(*(("100644", b"f%04d.py" % number, blob) for number in range(250)))
    read: list[int] = []

    def watch(_where: str, content: bytes) -> bool:
        read.append(len(content))
        return False

    proposal, pack = house.proposal(tree), house.agent.pack_of(tree, blob)
    policy = house.config.repositories["demo"].policy
    mirror = house.service.desk.wards.get("demo").mirror.git
    with house.service.desk.quarantine.open(mirror, "sha1") as store:
        assert take(store, pack, policy) == ()
        seen = inspect(store, mirror, proposal.base_commit, tree, policy, house.service.desk.scanner, watch)
    assert {finding.rule for finding in seen.findings} >= {"too-many-files", "too-many-bytes", "not-scanned"}
    assert 0 < sum(read) <= policy.max_total_bytes


def test_a_delta_cannot_copy_from_another_branch(house):
    # Whoever knows an object's id could otherwise read it byte by byte: copy one byte, guess it, ask for the verdict.
    plans = b"the other branch's plans\n"
    house.origin.commit(house.origin.tree(None, {"plans.txt": plans}), branch="private")
    house.service.grants.grant(GrantRequest(repository="demo", task="other", base="private"), "uid:0")
    secret = bytes.fromhex(house.origin.git("rev-parse", "private:plans.txt"))
    copied = plans + plans
    tree = house.agent.tree(house.grant().base_commit, {"copied.txt": copied})
    delta = bytes([len(plans), len(copied), *(0x90, len(plans)) * 2])  # copy it all, twice
    folder = zlib.compress(house.agent.content(tree, "tree"))
    pack = pack_with((7, len(delta), secret + zlib.compress(delta)), (2, len(zlib.decompress(folder)), folder))
    assert house.rules(house.service.proposals.propose(house.proposal(tree), pack)) == {"pack-rejected"}


def pack_with(*entries: tuple[int, int, bytes]) -> bytes:
    """A pack of entries given by type, size and what follows."""
    body = b"PACK" + struct.pack(">II", 2, len(entries))
    for kind, size, data in entries:
        head = [kind << 4 | size & 15, size >> 4]
        body += (bytes([head[0] | 128, head[1]]) if head[1] else bytes(head[:1])) + data
    return body + hashlib.sha1(body, usedforsecurity=False).digest()


@pytest.mark.parametrize("inside", [True, False])
def test_a_tree_of_another_branch_is_not_shown_to_whoever_knows_its_id(house, inside):
    secret = house.origin.tree(None, {"deep/code-name.txt": b"the other branch's plans\n"})
    house.origin.commit(secret, branch="private")
    house.service.grants.grant(GrantRequest(repository="demo", task="other", base="private"), "uid:0")
    house.grant()
    pack = b""
    if inside:
        house.agent.git("fetch", "-q", str(house.origin.path), "refs/heads/private")
        secret = house.agent.raw_tree(("40000", b"mine", secret))
        pack = house.agent.pack_of(secret)
    told = house.service.proposals.explain(house.proposal(secret), pack)
    assert not told.allowed
    assert {finding.rule for finding in told.findings} == {"foreign-object"}
    assert "code-name" not in told.model_dump_json()


def test_content_that_another_branch_has_as_well_may_be_proposed_by_sending_it(house):
    base = house.grant().base_commit
    fixed = house.origin.tree(base, dict(house.good))
    house.origin.commit(fixed, base, branch="main")
    house.service.grants.grant(GrantRequest(repository="demo", task="later"), "uid:0")
    assert isinstance(house.offer(house.good), Receipt)


def test_content_from_the_bases_own_past_may_come_back(house):
    old = house.origin.tree("main", {"src/clamp.py": b"old = True\n"})
    first = house.origin.commit(old, house.origin.git("rev-parse", "main"), branch="main")
    house.origin.commit(house.origin.tree(first, {"src/clamp.py": b"new = True\n"}), first, branch="main")
    house.agent.git("fetch", "-q", str(house.origin.path), "+refs/heads/main:refs/heads/main")
    verdict = house.offer({"src/clamp.py": b"old = True\n"})
    assert isinstance(verdict, Receipt)


def test_a_repository_with_sha256_ids_works_all_the_way(build_house, tmp_path, template):
    store = type(build_house().origin)
    for name in ("demo.git", "agent.git"):
        shutil.rmtree(tmp_path / name)
        store(tmp_path / name).git("init", "-q", "--bare", "-b", "main", "--object-format=sha256")
    origin = store(tmp_path / "demo.git")
    origin.commit(origin.tree(None, {"src/clamp.py": b"old\n"}), branch="main")
    store(tmp_path / "agent.git").git("fetch", "-q", str(origin.path), "refs/heads/main:refs/heads/main")
    house = build_house()
    receipt = house.offer(house.good)
    assert isinstance(receipt, Receipt)
    assert len(receipt.commit) == 64
    assert house.rules(house.offer({"package.json": b"{}\n"}, "t2")) == {"protected-path"}


# --- the branch and the base


def test_a_base_that_moved_after_the_grant_changes_nothing(house):
    granted = house.grant().base_commit
    house.origin.commit(house.origin.tree("main", {"new.txt": b"\n"}), granted, branch="main")
    receipt = house.offer(house.good)
    assert house.origin.git("rev-parse", f"{receipt.commit}^") == granted


def test_a_base_that_was_rewritten_can_still_be_mirrored(house):
    granted = house.grant()
    house.origin.commit(house.origin.tree(None, {"all": b"new\n"}), branch="main")
    house.origin.git("reflog", "expire", "--expire=now", "--all")
    house.origin.git("gc", "-q", "--prune=now")
    house.service.grants.grant(GrantRequest(repository="demo", task="t2"), "uid:0")
    commit, pack = house.service.reads.mirror(MirrorRequest(capability=granted.capability))
    with pack:
        assert commit == granted.base_commit
        assert pack.read(4) == b"PACK"


def test_a_base_that_is_gone_is_refused(house):
    house.grant()
    house.origin.git("update-ref", "-d", "refs/heads/main")
    assert house.rules(house.offer(house.good)) == {"base-gone"}


def test_a_branch_that_appeared_after_the_grant_is_never_moved(house):
    house.grant()
    mine = house.origin.commit(house.origin.tree("main", {"mine": b"\n"}), house.grant().base_commit, branch="swarm/t1")
    assert house.rules(house.offer(house.good)) == {"branch-taken"}
    assert house.branches()["refs/heads/swarm/t1"] == mine


# --- mirror


def test_the_mirror_serves_the_base_and_nothing_past_it(house, tmp_path):
    granted = house.grant()
    later = house.origin.commit(house.origin.tree("main", {"later": b"\n"}), granted.base_commit, branch="main")
    house.service.grants.grant(GrantRequest(repository="demo", task="t2"), "uid:0")
    with house.service.reads.mirror(MirrorRequest(capability=granted.capability))[1] as pack:
        house.agent.git("init", "-q", "--bare", str(tmp_path / "fresh.git"), GIT_DIR=str(tmp_path / "fresh.git"))
        fresh = type(house.agent)(tmp_path / "fresh.git")
        fresh.git("index-pack", "--strict", "--stdin", stdin=pack.read())
    assert fresh.git("cat-file", "-t", granted.base_commit) == "commit"
    assert "missing" in fresh.git("cat-file", "--batch-check", stdin=later.encode())


def test_what_the_caller_has_is_left_out_of_the_mirrored_pack(house):
    granted = house.grant()
    asked = MirrorRequest(capability=granted.capability, have=(granted.base_commit,))
    with house.service.reads.mirror(asked)[1] as pack:
        assert len(pack.read()) == 32  # a header and a checksum: no object


def test_ids_that_are_not_the_bases_ancestors_tell_nothing(house):
    other = house.origin.commit(house.origin.tree("main", {"x": b"\n"}), branch="private")
    house.service.grants.grant(GrantRequest(repository="demo", task="other", base="private"), "uid:0")
    capability = house.grant().capability
    sizes = set()
    for have in ((), (other,), ("1" * 40,)):
        with house.service.reads.mirror(MirrorRequest(capability=capability, have=have))[1] as pack:
            sizes.add(len(pack.read()))
    assert len(sizes) == 1


# --- kept for a person


def test_a_refused_proposal_is_kept_until_a_person_discards_it(house):
    house.offer({"package.json": b"{}\n"}, title="Words")
    kept = house.service.proposals.kept("t1-p")
    assert kept.state == "refused"
    assert kept.title == "Words"
    assert kept.size > 0
    house.service.proposals.discard("t1-p", by_uid=0)
    assert house.service.proposals.outbox().proposals == ()
    assert house.rules(house.service.proposals.status("t1-p")) == {"protected-path"}


def test_a_delivered_proposal_leaves_no_content_behind(house):
    house.offer(house.good)
    assert house.service.proposals.outbox().proposals == ()
    assert list((house.config.state / "outbox").iterdir()) == []


def test_a_full_outbox_turns_new_proposals_away_and_keeps_the_old(build_house):
    house = build_house(outbox_entries=1)
    house.offer({"package.json": b"{}\n"})
    with pytest.raises(OutboxFullError, match="no room"):
        house.offer(house.good, "t2")
    house.service.proposals.discard("t1-p", by_uid=0)
    assert isinstance(house.offer(house.good, "t2"), Receipt)


def test_an_outbox_that_cannot_be_written_is_told_and_goes_on_later(house):
    house.grant("early")
    house.service.desk.outbox.database._db.execute("PRAGMA query_only=1")  # as on a disk that was remounted read-only
    with pytest.raises(BrokerError, match="the outbox cannot be used: attempt to write a readonly database"):
        house.offer(house.good, "early")
    house.service.desk.outbox.database._db.execute("PRAGMA query_only=0")
    assert isinstance(house.offer(house.good, "early"), Receipt)


def test_the_outbox_never_holds_a_capability(house):
    house.offer({"package.json": b"{}\n"})
    token = house.grant().capability.encode()
    for file in house.config.state.rglob("*"):
        assert not file.is_file() or token not in file.read_bytes(), file


# --- a forge that fails


def pretend(house_builder, **more):
    forges = []

    def make(origin):
        forge = PretendForge("demo", origin.path.parent / "pretend.git")
        main = origin.git("rev-parse", "main")
        origin_git = type(forge.git)(origin.path)
        copy(origin_git, forge.git, main)
        forge.branches["main"] = main
        forges.append(forge)
        return forge

    house = house_builder(forge=make, **more)
    return house, forges[0]


@pytest.mark.parametrize("step", ["push", "open"])
def test_a_failing_forge_step_can_be_repeated_without_a_second_pull_request(build_house, step):
    house, forge = pretend(build_house)
    forge.before[step].append(ForgeError("the line went dead"))
    with pytest.raises(ForgeError):
        house.offer(house.good)
    receipt = house.offer(house.good)
    assert isinstance(receipt, Receipt)
    assert len(forge.pushes) == 1
    assert len(forge.pulls()) == 1


def test_a_failing_forge_spends_no_second_use_and_is_reconciled(build_house):
    house, forge = pretend(build_house)
    forge.before["push"].append(ForgeError("the line went dead"))
    with pytest.raises(ForgeError):
        house.offer(house.good)
    house.service.proposals.resume("reconciled")
    assert isinstance(house.service.proposals.status("t1-p"), Receipt)
    assert [entry.event for entry in house.service.log(0).entries][-1] == "reconciled"


def test_reconciling_against_a_forge_that_still_fails_keeps_the_proposal(build_house):
    house, forge = pretend(build_house)
    forge.before["push"] += [ForgeError("down"), ForgeError("down")]
    with pytest.raises(ForgeError):
        house.offer(house.good)
    house.service.proposals.resume("reconciled")
    assert house.service.proposals.kept("t1-p").state == "pushing"
    assert house.service.proposals.kept("t1-p").reason == "down"
    assert [one.reason for one in house.service.proposals.outbox().proposals] == ["down"]
    assert house.service.proposals.status("t1-p") == Waiting(proposal="t1-p", reason="down")
    house.service.proposals.resume("reconciled")
    assert isinstance(house.service.proposals.status("t1-p"), Receipt)


# --- the credential and the log


def test_the_canary_credential_is_nowhere_but_in_its_file(house):
    house.offer(house.good)
    house.offer({"package.json": b"{}\n"}, "t2")
    said = house.service.log(0).model_dump_json() + house.service.proposals.outbox().model_dump_json()
    said += house.service.pulls.show("demo", 1).model_dump_json() + house.service.reads.repositories().model_dump_json()
    assert "canary-7f3a" not in said
    for file in house.folder.rglob("*"):
        if file.is_file() and file.name != "credential":
            assert b"canary-7f3a" not in file.read_bytes(), file


def test_an_unreadable_credential_stops_the_push(house):
    (house.folder / "credential").chmod(0o644)
    with pytest.raises(ForgeError, match="credential cannot be opened"):
        house.offer(house.good)
    assert "refs/heads/swarm/t1" not in house.branches()
    (house.folder / "credential").chmod(0o600)
    assert isinstance(house.offer(house.good), Receipt)


def test_every_step_is_in_the_log(house):
    house.offer(house.good)
    house.offer({"package.json": b"{}\n"}, "t2")
    house.service.pulls.merge("demo", 1, by_uid=7)
    events = [entry.event for entry in house.service.log(0).entries if entry.event != "token-lent"]
    assert events == ["grant", "proposal", "push", "pull-request", "attested", "grant", "proposal", "refusal", "merge"]


def test_no_capability_is_in_the_log(house):
    house.offer(house.good)
    assert house.grant().capability not in house.service.log(0).model_dump_json()


def test_errors_tell_the_coordinator_no_address(house):
    house.grant()
    house.origin.path.rename(house.folder / "elsewhere.git")
    with pytest.raises(ForgeError) as caught:
        house.offer(house.good)
    assert str(house.folder) not in str(caught.value) + caught.value.mend
