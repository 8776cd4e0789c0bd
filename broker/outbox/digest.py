"""What a person's approval binds to: everything that an agent or the coordinator says, and nothing of the policy."""

from __future__ import annotations

import hashlib
import json

from broker.wire import Proposal


def digest(repository: str, proposal: Proposal) -> str:
    """SHA-256 over canonical JSON of the content and its words, which a pull request would show.

    Neither the id nor the capability is among them: the same content offered again has the same digest.
    """
    content = {
        "repository": repository,
        **proposal.model_dump(mode="json", exclude={"id", "capability"}),
    }
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()
