"""Whether a pull request is what its statement says, link by link: signature, commit, tree, parent, head. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

from broker.errors import ProvenanceError
from broker.provenance.signing import keyid_of, opened
from broker.provenance.statement import PAYLOAD_TYPE, Attested, read

MAX_COMMIT = 1 << 20


@dataclass(frozen=True)
class Link:
    """One thing that was checked."""

    name: str
    holds: bool
    told: str


@dataclass(frozen=True)
class Shown:
    """What is checked: an envelope and a public key, the raw commit that the statement is about, and where it was seen.

    ``head`` is the commit that the pull request is on, as the forge or a person says; ``asked`` is "name#number" if the
    question named a pull request.
    """

    envelope: bytes
    key: str
    raw_commit: bytes
    head: str
    asked: str = ""


def verify(shown: Shown) -> tuple[Link, ...]:
    """Every link that can be looked at. The chain holds if all of them do."""
    if not shown.envelope:
        return (Link("statement", holds=False, told=f"there is none about the commit {shown.head}"),)
    try:
        data = opened(shown.envelope, PAYLOAD_TYPE, shown.key)
        signed = Link("signature", holds=True, told=f"by the key {keyid_of(shown.key)[:16]}")
    except ProvenanceError as error:
        return (Link("signature", holds=False, told=str(error)),)
    try:
        facts = read(data)
    except ProvenanceError as error:
        return signed, Link("statement", holds=False, told=str(error))
    return (signed, *_about(facts, shown), *_commit_links(facts, shown.raw_commit), _head(facts, shown.head))


def below(shown: Shown) -> str | None:
    """The commit below, where that is an earlier one of the broker's own and so needs a statement too."""
    facts = _signed(shown.envelope, shown.key)
    return facts.base_commit if facts and facts.update and facts.commit == shown.head else None


def subject(envelope: bytes, key: str) -> str | None:
    """The commit that an envelope's statement is about; None if the key did not sign it."""
    facts = _signed(envelope, key)
    return facts.commit if facts else None


def _signed(envelope: bytes, key: str) -> Attested | None:
    try:
        return read(opened(envelope, PAYLOAD_TYPE, key))
    except ProvenanceError:
        return None


def object_id(raw: bytes, kind: str, like: str) -> str:
    """The id that git gives to an object's bytes, in the hash that another id is in."""
    algorithm = hashlib.sha256 if len(like) == 64 else hashlib.sha1
    return algorithm(f"{kind} {len(raw)}\0".encode() + raw).hexdigest()


def _about(facts: Attested, shown: Shown) -> Iterable[Link]:
    is_of = f"{facts.repository}#{facts.number}"
    if shown.asked and shown.asked != is_of:
        yield Link("statement", holds=False, told=f"it is about {is_of}, not about {shown.asked}")
    else:
        yield Link("statement", holds=True, told=f"{is_of}, task {facts.task}, policy {facts.policy[:12]}")


def _commit_links(facts: Attested, raw: bytes) -> Iterable[Link]:
    found = object_id(raw, "commit", facts.commit)
    yield _equal("commit", found, facts.commit, "the commit's bytes give the id")
    tree, parents = _header(raw)
    yield _equal("tree", tree, facts.tree, "the commit holds the sealed tree")
    yield _equal("parent", " and ".join(parents) or "none", facts.base_commit, "its one parent is the base")


def _head(facts: Attested, head: str) -> Link:
    return _equal("head", head, facts.commit, "the pull request is on this commit")


def _equal(name: str, found: str, said: str, meaning: str) -> Link:
    if found == said:
        return Link(name, holds=True, told=f"{meaning} {said[:12]}")
    return Link(name, holds=False, told=f"found {found or 'nothing'}, but the statement says {said}")


def _header(raw: bytes) -> tuple[str, list[str]]:
    """Tree and parents of a commit's bytes; the first line that is neither ends them (git's own order)."""
    lines = raw[:MAX_COMMIT].decode("latin-1").split("\n\n", 1)[0].split("\n")
    if not lines[0].startswith("tree "):
        return "", []
    parents = []
    for line in lines[1:]:
        if not line.startswith("parent "):
            break
        parents.append(line.removeprefix("parent "))
    return lines[0].removeprefix("tree "), parents
