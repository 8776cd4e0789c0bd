"""What the broker vouches for, as an in-toto statement: from the sealed tree to the commit. Pure.

in-toto Statement v1 with a SLSA v1 provenance predicate (https://slsa.dev/provenance/v1): the subjects are the commit
and its tree, the one dependency is the commit below it.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from broker.errors import ProvenanceError
from broker.wire import Finding, Name, ObjectId

PAYLOAD_TYPE = "application/vnd.in-toto+json"
STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "https://slsa.dev/provenance/v1"
BUILD_TYPE = "urn:agent-swarm:broker:rebuilt-proposal:v1"
BUILDER = "urn:agent-swarm:broker"
MAX_FINDINGS = 100


class Attested(BaseModel):
    """The facts of one delivery. ``base_commit`` is the commit's only parent; ``at`` in seconds since the epoch.

    Model, tier, strategy, attempts and sandbox are the coordinator's claims; the rest the broker knows.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    repository: Name
    number: int = Field(ge=1)
    url: str = ""
    forge: str
    branch: str
    base: str
    base_commit: ObjectId
    commit: ObjectId
    tree: ObjectId
    task: Name
    proposal: Name
    digest: str
    policy: str
    model: str = ""
    tier: str = ""
    strategy: str = ""
    attempts: int = 1
    sandbox_digest: str = ""
    granted_by: str
    grant: str
    approved_by: str = ""
    findings: tuple[Finding, ...] = ()
    update: bool = False
    at: float = 0.0


def statement(facts: Attested) -> dict[str, Any]:
    """The statement; the same facts give the same one."""
    return {
        "_type": STATEMENT_TYPE,
        "subject": [
            {"name": "commit", "digest": {"gitCommit": facts.commit}},
            {"name": "tree", "digest": {"gitTree": facts.tree}},
        ],
        "predicateType": PREDICATE_TYPE,
        "predicate": {"buildDefinition": _definition(facts), "runDetails": _run(facts)},
    }


def payload(facts: Attested) -> bytes:
    """The statement's canonical bytes, the ones that are signed."""
    return json.dumps(statement(facts), sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()


def read(data: bytes) -> Attested:
    """The facts of a statement's bytes. Raises ProvenanceError for whatever this broker would not have written."""
    try:
        facts = _facts(json.loads(data))
    except (ValueError, KeyError, TypeError, IndexError, RecursionError, ValidationError):
        raise ProvenanceError("the statement is not one of this broker's kind") from None
    if payload(facts) != data:
        raise ProvenanceError("the statement says more, or in another form, than this broker would have written")
    return facts


def _definition(facts: Attested) -> dict[str, Any]:
    external = ("repository", "number", "url", "forge", "branch", "base", "task", "proposal", "digest", "update")
    internal = ("policy", "grant", "granted_by", "approved_by", "model", "tier", "strategy", "attempts")
    known = facts.model_dump(mode="json")
    return {
        "buildType": BUILD_TYPE,
        "externalParameters": {name: known[name] for name in external},
        "internalParameters": {name: known[name] for name in (*internal, "sandbox_digest")},
        "resolvedDependencies": [{"name": "base", "digest": {"gitCommit": facts.base_commit}}],
    }


def _run(facts: Attested) -> dict[str, Any]:
    when = datetime.fromtimestamp(facts.at, UTC).isoformat(timespec="microseconds")
    findings = [found.model_dump(mode="json") for found in facts.findings[:MAX_FINDINGS]]
    return {
        "builder": {"id": BUILDER},
        "metadata": {"invocationId": facts.proposal, "finishedOn": when},
        "byproducts": [{"name": "findings", "annotations": {"findings": findings}}],
    }


def _facts(read_back: Any) -> Attested:
    definition, run = (read_back["predicate"][part] for part in ("buildDefinition", "runDetails"))
    return Attested.model_validate(
        {
            **definition["externalParameters"],
            **definition["internalParameters"],
            "commit": read_back["subject"][0]["digest"]["gitCommit"],
            "tree": read_back["subject"][1]["digest"]["gitTree"],
            "base_commit": definition["resolvedDependencies"][0]["digest"]["gitCommit"],
            "findings": run["byproducts"][0]["annotations"]["findings"],
            "at": datetime.fromisoformat(run["metadata"]["finishedOn"]).timestamp(),
        }
    )
