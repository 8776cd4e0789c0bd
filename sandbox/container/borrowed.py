"""Makes the base image's /usr into a volume, once per engine, for the sandboxes of images that are not ours.

A fresh volume takes over what the image holds at the place where it is mounted, when a container is made. That
container is never started; it is kept, since it stands in the engine's books only once the volume is whole.
"""

from __future__ import annotations

import asyncio
import contextlib

from sandbox.container.engine import Engine
from sandbox.errors import SandboxError, SandboxLostError, SandboxUnavailableError

LABEL = "agent-swarm.runtime"


class Borrowed:
    """The borrowed /usr of one engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._making = asyncio.Lock()
        self._whole: set[str] = set()

    async def volume(self, base: str) -> str:
        """Name of the volume with the /usr of the image with the id ``base``, made when it is not there yet.

        Raises SandboxError.
        """
        name = name_of(base)
        async with self._making:
            if base not in self._whole:
                if name not in {held.name for held in await self._engine.containers(LABEL)}:
                    await self._make(name, base)
                self._whole.add(base)
        return name

    def forget(self) -> None:
        """Look again next time: someone may have tidied the engine up."""
        self._whole.clear()

    async def tidy(self) -> int:
        """Remove those whose image is gone and that nobody uses; how many that were."""
        removed = 0
        for volume, labels in (await self._engine.volumes(LABEL)).items():
            if await self._engine.image_id(labels.get(LABEL, "")) is None:
                await self._engine.remove(volume)  # the container that stands for it
                with contextlib.suppress(SandboxLostError):  # a sandbox still runs on it
                    await self._engine.remove_volume(volume)
                    removed += 1
        return removed

    async def _make(self, name: str, base: str) -> None:
        """Without its container a volume may be half full, so it is made anew, unless sandboxes run on it."""
        with contextlib.suppress(SandboxLostError):
            await self._engine.remove_volume(name)
        labels = {LABEL: base}
        await self._engine.create_volume(name, labels)
        try:
            await self._engine.make(name, base, labels, name, "/usr")
        except SandboxLostError:
            if name not in {held.name for held in await self._engine.containers(LABEL)}:  # else another was quicker
                raise
        except SandboxUnavailableError:
            raise
        except SandboxError as error:
            raise SandboxError(f"the base image's programs could not be lent to another image: {error}") from error


def name_of(base: str) -> str:
    """Name of the volume, and of the container that stands for its being whole."""
    return f"agent-swarm-runtime-{base.removeprefix('sha256:')[:20]}"
