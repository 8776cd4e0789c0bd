"""What a user gives besides a folder: which image a case runs on, and where repositories lie. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from pydantic import Field

from swarm.errors import EvaluationError
from swarm.types import Frozen

NONE = "none"
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")


class Given(Frozen):
    """``images`` goes before ``image``, and both before what a case names itself."""

    images: dict[str, str] = Field(default_factory=dict, description="the image of a case, by its id; none: no image")
    image: str = Field(
        default="", description="the image of all others; {id}, {docker_id}, {repo}, {version} are put in"
    )
    repositories: Path | None = Field(default=None, description="folder of the git repositories that rows name")

    def image_of(self, case: str, own: str | None = None, **facts: str) -> str | None:
        """The image of a case: as given, else its ``own``; None for the sandboxes' own system, which "none" asks for.

        ``{docker_id}`` is the id as SWE-bench writes it in names of images: in small letters, ``_1776_`` for ``__``.
        Raises EvaluationError for a bad template.
        """
        known = {"id": case, "docker_id": case.lower().replace("__", "_1776_"), **facts}
        found = self.images.get(case) or (filled(self.image, known) if self.image else own)
        return None if found == NONE else found


def filled(template: str, known: Mapping[str, str]) -> str:
    """A template with its placeholders put in. Raises EvaluationError for one that there is not."""

    def put(match: re.Match[str]) -> str:
        if match[1] not in known:
            names = ", ".join(f"{{{name}}}" for name in sorted(known))
            raise EvaluationError(f"the image {template!r} has the placeholder {match[0]}", f"use one of {names}")
        return known[match[1]]

    return _PLACEHOLDER.sub(put, template)
