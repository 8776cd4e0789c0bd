"""A statement proves a pull request only if every link of its chain holds; each one, broken alone, is told."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from pydantic import SecretBytes

from broker.errors import AbsentError, ConfigError, ProvenanceError
from broker.provenance.chain import Shown, below, object_id, subject, verify
from broker.provenance.signing import MAX_ENVELOPE, Signer, keyid_of, opened
from broker.provenance.statement import PAYLOAD_TYPE, Attested, payload, read, statement
from broker.provenance.store import HEAD_TYPE, Provenance
from broker.wire import Finding


def pem(private):
    return SecretBytes(private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))


@pytest.fixture(scope="module")
def signer():
    return Signer(pem(Ed25519PrivateKey.generate()))


@pytest.fixture
def kept(tmp_path, signer):
    return Provenance(tmp_path, signer)


TREE, BASE = "a" * 40, "b" * 40
RAW = f"tree {TREE}\nparent {BASE}\nauthor A <a@b> 1 +0000\ncommitter A <a@b> 1 +0000\n\nS\n".encode()
COMMIT = object_id(RAW, "commit", TREE)
FACTS = Attested(
    repository="demo", number=3, url="https://forge/3", forge="github", branch="swarm/t", base="main", base_commit=BASE,
    commit=COMMIT, tree=TREE, task="t", proposal="t-p", digest="d" * 64, policy="p" * 12, model="m", granted_by="uid:0",
    grant="g", findings=(Finding(rule="tests-deleted", severity="warn", message="é \u202e"),), at=1764480000.123456,
)  # fmt: skip


@pytest.fixture
def shown(kept):
    kept.attest(FACTS)
    return Shown(kept.get("demo", 3), kept.key().pem, RAW, COMMIT, "demo#3")


def broken(shown):
    return [link.name for link in verify(shown) if not link.holds]


def test_a_whole_chain_holds(shown):
    assert [link.name for link in verify(shown)] == ["signature", "statement", "commit", "tree", "parent", "head"]
    assert broken(shown) == []


def resigned(shown, signer, change):
    """The envelope of a changed statement, with a good signature all the same."""
    made = statement(FACTS)
    change(made)
    data = json.dumps(made, sort_keys=True, separators=(",", ":")).encode()
    return dataclasses.replace(shown, envelope=signer.sign(data, PAYLOAD_TYPE))


def test_a_changed_payload_is_told_at_the_signature(shown):
    envelope = json.loads(shown.envelope)
    data = base64.b64decode(envelope["payload"]).replace(b"swarm/t", b"swarm/x")
    envelope["payload"] = base64.b64encode(data).decode()
    assert broken(dataclasses.replace(shown, envelope=json.dumps(envelope).encode())) == ["signature"]


@pytest.mark.parametrize(
    "change",
    [
        lambda e: e.update(payloadType="application/json"),
        lambda e: e.update(signatures=[]),
        lambda e: e.update(signatures=[{"keyid": "x", "sig": "AAAA"}]),
        lambda e: e["signatures"][0].update(sig="A" * 86 + "=="),
        lambda e: e["signatures"].append(e["signatures"][0]),
        lambda e: e["signatures"].insert(0, {}),
        lambda e: e.update(payload=7),
        lambda e: e.clear(),
    ],
)
def test_a_damaged_envelope_is_told_and_no_more(shown, change):
    envelope = json.loads(shown.envelope)
    change(envelope)
    assert broken(dataclasses.replace(shown, envelope=json.dumps(envelope).encode())) == ["signature"]


@pytest.mark.parametrize(
    "data", [b"\n", b"null", b"[]", b"7", b"{", b"[" * 100_000, b"x" * (MAX_ENVELOPE + 1), b"\xff"]
)
def test_what_is_no_envelope_is_told(shown, data):
    assert broken(dataclasses.replace(shown, envelope=data)) == ["signature"]


def test_that_there_is_none_is_told(shown):
    assert broken(dataclasses.replace(shown, envelope=b"")) == ["statement"]


def test_what_lies_below_counts_only_where_the_statement_is_about_this_commit(shown, kept):
    assert below(shown) is None
    kept.attest(FACTS.model_copy(update={"update": True}))
    updated = dataclasses.replace(shown, envelope=kept.get("demo", 3))
    assert below(updated) == BASE
    assert below(dataclasses.replace(updated, head=BASE)) is None
    assert (subject(updated.envelope, shown.key), subject(b"{}", shown.key)) == (COMMIT, None)


def test_another_key_is_told(shown):
    other = Signer(pem(Ed25519PrivateKey.generate())).key().pem
    assert broken(dataclasses.replace(shown, key=other)) == ["signature"]


@pytest.mark.parametrize(
    "change",
    [
        lambda s: s.update(_type="https://in-toto.io/Statement/v0.1"),
        lambda s: s.update(predicateType="https://example.org/"),
        lambda s: s["subject"].pop(),
        lambda s: s["subject"].append({"name": "commit", "digest": {"gitCommit": "c" * 40}}),
        lambda s: s["subject"][0]["digest"].update(gitCommit="HEAD"),
        lambda s: s["predicate"]["buildDefinition"]["externalParameters"].update(number=-1),
        lambda s: s["predicate"]["buildDefinition"]["externalParameters"].update(more="x"),
        lambda s: s["predicate"]["buildDefinition"]["resolvedDependencies"].append({"name": "x"}),
        lambda s: s["predicate"]["runDetails"]["metadata"].update(finishedOn="yesterday"),
        lambda s: s.update(predicate=None),
    ],
)
def test_a_statement_that_this_broker_would_not_write_is_told(shown, signer, change):
    assert broken(resigned(shown, signer, change)) == ["statement"]


def test_a_statement_about_another_pull_request_is_told(shown):
    assert broken(dataclasses.replace(shown, asked="demo#4")) == ["statement"]


def test_another_commit_is_told(shown):
    assert broken(dataclasses.replace(shown, raw_commit=RAW + b"more")) == ["commit"]


def test_another_tree_is_told(shown, kept):
    raw = RAW.replace(TREE.encode(), b"c" * 40)
    commit = object_id(raw, "commit", TREE)
    kept.attest(FACTS.model_copy(update={"commit": commit}))
    told = dataclasses.replace(shown, envelope=kept.get("demo", 3), raw_commit=raw, head=commit)
    assert broken(told) == ["tree"]


@pytest.mark.parametrize("parents", [b"", b"parent " + b"c" * 40 + b"\n", b"parent " + BASE.encode() + b"\n" * 1])
def test_another_parent_none_or_two_are_told(shown, kept, parents):
    line = f"parent {BASE}\n".encode()
    raw = RAW.replace(line, parents * 2 if BASE.encode() in parents else parents)
    commit = object_id(raw, "commit", TREE)
    kept.attest(FACTS.model_copy(update={"commit": commit}))
    told = dataclasses.replace(shown, envelope=kept.get("demo", 3), raw_commit=raw, head=commit)
    assert broken(told) == ["parent"]


def test_another_head_is_told(shown):
    assert broken(dataclasses.replace(shown, head="c" * 40)) == ["head"]


def test_words_in_a_message_are_no_header(shown):
    raw = f"tree {TREE}\nauthor A <a@b> 1 +0000\n\nparent {BASE}\n".encode()
    assert "parent" in broken(dataclasses.replace(shown, raw_commit=raw))
    assert "tree" in broken(dataclasses.replace(shown, raw_commit=b"\n\ntree " + TREE.encode()))


# --- statements


def test_facts_survive_being_written_and_read():
    assert read(payload(FACTS)) == FACTS
    many = FACTS.model_copy(update={"findings": FACTS.findings * 200})
    assert len(read(payload(many)).findings) == 100


def test_a_statement_is_in_the_form_of_in_toto_and_slsa():
    made = statement(FACTS)
    assert (made["_type"], made["predicateType"]) == (
        "https://in-toto.io/Statement/v1",
        "https://slsa.dev/provenance/v1",
    )
    assert [one["digest"] for one in made["subject"]] == [{"gitCommit": COMMIT}, {"gitTree": TREE}]
    assert set(made["predicate"]["buildDefinition"]) == {
        "buildType", "externalParameters", "internalParameters", "resolvedDependencies",
    }  # fmt: skip
    assert made["predicate"]["runDetails"]["builder"]["id"].startswith("urn:")


# --- keys and the store


def test_the_same_facts_give_the_same_bytes(kept):
    assert kept.attest(FACTS) == kept.attest(FACTS) == hashlib.sha256(kept.get("demo", 3)).hexdigest()


def test_an_update_has_a_statement_of_its_own_and_the_first_one_stays(kept):
    kept.attest(FACTS)
    kept.attest(FACTS.model_copy(update={"commit": "e" * 40, "base_commit": COMMIT, "update": True}))
    assert read(opened(kept.get("demo", 3), PAYLOAD_TYPE, kept.key().pem)).commit == "e" * 40
    assert read(opened(kept.get("demo", 3, COMMIT), PAYLOAD_TYPE, kept.key().pem)).commit == COMMIT


@pytest.mark.parametrize(
    ("repository", "number", "commit"),
    [("demo", 4, None), ("..", 3, None), ("../demo", 3, None), ("demo", 3, "../newest"), ("demo", 3, "f" * 40)],
)
def test_nothing_else_is_given_out(kept, repository, number, commit):
    kept.attest(FACTS)
    with pytest.raises(AbsentError, match="there is no statement"):
        kept.get(repository, number, commit)


def test_nobody_else_can_read_it_and_no_draft_stays(kept, tmp_path):
    kept.attest(FACTS)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert sorted(path.name for path in files) == sorted([f"{COMMIT}.json", "newest"])
    assert all(path.stat().st_mode & 0o077 == 0 for path in files)


def test_a_head_is_no_statement_and_the_other_way_round(kept):
    head = kept.sign_head(5, "c" * 64, 1.0)
    assert json.loads(opened(head, HEAD_TYPE, kept.key().pem)) == {"number": 5, "hash": "c" * 64, "at": 1.0}
    with pytest.raises(ProvenanceError, match="another kind"):
        opened(head, PAYLOAD_TYPE, kept.key().pem)


def test_the_private_half_shows_nowhere(signer, kept):
    secret = signer._signer.private_bytes.decode().splitlines()[1]
    assert secret not in repr(signer) + repr(vars(kept)) + kept.key().model_dump_json()
    assert keyid_of(signer.key().pem) == signer.key().keyid


@pytest.mark.parametrize(
    "key", [b"", b"-----BEGIN PRIVATE KEY-----", pem(generate_private_key(SECP256R1())).get_secret_value()]
)
def test_a_key_that_is_none_is_refused_without_being_shown(key):
    with pytest.raises(ConfigError, match="provenance key") as told:
        Signer(SecretBytes(key))
    assert key.decode()[28:] not in str(told.value) or not key[28:]


def test_a_public_key_of_another_kind_is_refused():
    with pytest.raises(ProvenanceError, match="public key"):
        keyid_of("nothing")
