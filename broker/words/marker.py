"""The hidden line by which the broker knows a pull request of its own again. Pure.

Every forge keeps an HTML comment in the text that its API gives back and shows it to no reader. Nobody else's words can
hold one: `clean` leaves no comment in them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_VALUE = re.compile(r"[a-z0-9._-]{1,64}")
_PROPOSAL = re.compile(r"<!-- swarm:(proposal=[a-z0-9][a-z0-9._-]{0,63}(?: [a-z]{1,10}=[a-z0-9._-]{1,64}){0,4}) -->")


def proposal_marker(proposal: str, *, task: str = "", base: str = "", digest: str = "") -> str:
    """The marker of a pull request; ``base`` is a commit. Whatever could not be read back is left out."""
    known = {"proposal": proposal, "task": task, "base": base, "digest": digest}
    return f"<!-- swarm:{' '.join(f'{key}={known[key]}' for key in known if _VALUE.fullmatch(known[key]))} -->"


def read_marker(body: str) -> Mapping[str, str]:
    """What the last marker in a text says (proposal, task, base, digest); empty if there is none."""
    found = _PROPOSAL.findall(body)
    return dict(pair.split("=", 1) for pair in found[-1].split(" ")) if found else {}
