"""What the outbox gives back: a proposal with how far it came, a person's word on it, a pull request of our own."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from pydantic import TypeAdapter

from broker.capability import Rights
from broker.person_wire import KeptProposal
from broker.wire import Proposal, Receipt, Refusal

_VERDICT: TypeAdapter[Receipt | Refusal] = TypeAdapter(Receipt | Refusal)
_COVERS: TypeAdapter[frozenset[tuple[str, str | None]]] = TypeAdapter(frozenset[tuple[str, str | None]])


@dataclass(frozen=True)
class Kept:
    """One row: a proposal and how far it came. ``reason`` says what one that waits is waiting for."""

    id: str
    repository: str
    task: str
    base_commit: str
    tree: str
    rights: Rights
    at: float
    size: int
    state: str
    commit: str | None
    verdict: Receipt | Refusal | None
    digest: str
    update: bool
    number: int | None
    reason: str


@dataclass(frozen=True)
class Approved:
    """A person's word for one content; ``covers`` are the findings (rule and path) that he was shown."""

    digest: str
    by_uid: int
    at: float
    note: str
    covers: frozenset[tuple[str, str | None]]


@dataclass(frozen=True)
class Own:
    """A delivered pull request: the commits that the broker put on its branch, and how often it followed up."""

    number: int
    task: str
    branch: str
    base: str
    grant: str
    commits: frozenset[str]
    rounds: int
    at: float


def kept(row: sqlite3.Row) -> Kept:
    """A row of the table of proposals."""
    return Kept(
        id=row["id"],
        repository=row["repository"],
        task=row["task"],
        base_commit=row["base_commit"],
        tree=row["tree"],
        rights=Rights.model_validate_json(row["rights"]),
        at=row["at"],
        size=row["size"],
        state=row["state"],
        commit=row["commit_id"],
        verdict=None if row["verdict"] is None else _VERDICT.validate_json(row["verdict"]),
        digest=row["digest"],
        update=bool(row["updates"]),
        number=row["number"],
        reason=row["reason"],
    )


def approved(row: sqlite3.Row) -> Approved:
    """A row of the table of approvals."""
    return Approved(row["digest"], row["by_uid"], row["at"], row["note"], _COVERS.validate_json(row["covers"]))


def covers_text(covers: frozenset[tuple[str, str | None]]) -> str:
    """The findings that an approval covers, as they are kept."""
    return _COVERS.dump_json(covers).decode()


def shown(row: Kept, words: Proposal | None) -> KeptProposal:
    """A proposal for a person."""
    return KeptProposal.model_validate(
        {
            "id": row.id,
            "repository": row.repository,
            "task": row.task,
            "state": row.state,
            "at": row.at,
            "size": row.size,
            "title": words.title if words else "",
            "body": words.body if words else "",
            "base_commit": row.base_commit,
            "tree": row.tree,
            "verdict": row.verdict,
            "digest": row.digest,
            "update": row.update,
            "reason": row.reason,
        }
    )


def own(row: sqlite3.Row) -> Own:
    """The delivered rows of one pull request, put together."""
    return Own(
        number=row["number"],
        task=row["task"],
        branch=row["branch"],
        base=row["base"],
        grant=row["grant_id"],
        commits=frozenset((row["commits"] or "").split(",")) - {""},
        rounds=row["rounds"],
        at=row["at"],
    )
