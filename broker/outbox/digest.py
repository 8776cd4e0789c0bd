"""What a person's approval binds to: everything that an agent or the coordinator says, and nothing of the policy."""

from __future__ import annotations

import hashlib
import json

from broker.wire import Proposal


def digest(repository: str, proposal: Proposal) -> str:
    """SHA-256 over canonical JSON of the content and its words, which a pull request would show.

    Neither the id nor the capability is among them: the same content offered again has the same digest. What is left
    at its default is not among them either, so that a field which the wire gains changes no digest of what is kept.
    """
    words = proposal.model_dump(mode="json", exclude={"id", "capability"}, exclude_defaults=True)
    content = {"repository": repository, **words}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()
