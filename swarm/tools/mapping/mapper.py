"""The tool repo_map: reads the repository out of the sandbox, has it parsed in a jail, ranks it and draws it."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from sandbox.base import Sandbox
from sandbox.errors import SandboxPathError
from swarm.history import clean
from swarm.recording import fingerprint
from swarm.tools.arguments import RepoMap
from swarm.tools.files import Files
from swarm.tools.mapping import asking
from swarm.tools.mapping.definitions import Source, language_of
from swarm.tools.mapping.drawing import draw
from swarm.tools.mapping.ranking import rank
from swarm.tools.result import Result

BUDGET = 8000  # characters
_FILES, _LARGEST, _ALL = 1500, 300_000, 20_000_000  # files, bytes of one, bytes of all
_KNOWN = 5000  # files remembered by their content


class Mapper:
    """Makes maps; a file that has not changed is parsed once."""

    def __init__(self, sandbox: Sandbox, files: Files) -> None:
        self._sandbox, self._files = sandbox, files
        self._known: dict[str, Source] = {}

    async def map(self, asked: RepoMap, seconds: float | None) -> Result:
        """The map that a call asks for."""
        return Result(await self.draw(await self._files.place(asked.path or "."), asked.about, seconds=seconds))

    async def draw(
        self, folder: str = ".", about: str = "", *, budget: int = BUDGET, seconds: float | None = None
    ) -> str:
        """The map of a folder in at most about ``budget`` characters."""
        names = await self._files.names(folder, seconds)
        mapped = [name for name in names if language_of(name)]
        files = await self._read(mapped[:_FILES])
        sources = await self._sources(files, min(seconds or asking.SECONDS, asking.SECONDS))
        ranks, scores = await asyncio.to_thread(rank, sources, about)
        text = await asyncio.to_thread(draw, sources, ranks, scores, budget)
        shown = sum(1 for line in text.splitlines() if line and not line.startswith(" "))
        left = len(names) - shown
        note = f"[{shown} of {len(names)} files are shown" + (
            "; see others by glob, grep or path]" if left > 0 else "]"
        )
        if len(mapped) > len(files):
            note += f"\n[{len(mapped) - len(files)} source files are too large or too many to be read for the map]"
        return clean(f"{text}\n{note}") if text else f"no definition was found in {len(names)} files"

    async def _read(self, names: list[str]) -> dict[str, bytes]:
        """The files' bytes, within the bounds; links out of the repository and huge files are passed over."""
        files: dict[str, bytes] = {}
        room = _ALL
        for name in names:
            try:
                data = await self._sandbox.read(name, limit=_LARGEST + 1)
            except SandboxPathError:
                continue
            if len(data) > _LARGEST or b"\0" in data[:8192]:
                continue
            room -= len(data)
            if room < 0:
                break
            files[name] = data
        return files

    async def _sources(self, files: dict[str, bytes], seconds: float) -> list[Source]:
        keys = {path: f"{language_of(path)} {fingerprint(data)}" for path, data in files.items()}
        new = {path: data for path, data in files.items() if keys[path] not in self._known}
        found = await asking.read(new, seconds)
        if len(self._known) + len(found) > _KNOWN:
            self._known.clear()
        self._known |= {keys[path]: source for path, source in found.items()}
        known = ((path, self._known.get(key)) for path, key in keys.items())
        return [replace(source, path=path) if source else Source(path) for path, source in known]
