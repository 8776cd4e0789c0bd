"""What images need of a container engine; the container backend has one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol


class ImageEngine(Protocol):
    """Images by name and id. All raise SandboxError, and SandboxUnavailableError where no engine answers."""

    async def image_id(self, name: str) -> str | None:
        """The id of an image that is there, by name or id; None where it is not. Nothing is pulled."""

    async def image_env(self, id: str) -> dict[str, str]:  # noqa: A002 - the engine's own word
        """The variables that an image sets."""

    async def pull_image(self, name: str) -> str:
        """Fetch an image from its registry; its id."""

    async def load_image(self, archive: Path) -> str:
        """Take an image out of an archive; its id."""

    async def build_image(self, context: Path, dockerfile: str, args: Mapping[str, str], network: str) -> str:
        """Build an image from a tar of its context; its id. Raises SandboxError with the last lines of the build."""

    async def export_image(self, id: str, target: Path, most: int) -> None:  # noqa: A002 - the engine's own word
        """Write the image's file system as a tar; nothing of it is run. SandboxError for more than ``most`` bytes."""
