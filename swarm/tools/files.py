"""The workspace's files as the tools see them: paths as models write them, whole reads, writes that keep the mode."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sandbox.base import Sandbox
from sandbox.errors import SandboxPathError
from sandbox.types import Command

LIMIT = 4_000_000  # bytes of a file that is read whole
_LISTED = 8_000_000  # bytes of names
_SECONDS = 30.0
# What git knows or would add, else every file but what tools put there themselves. Names end with NUL.
_LIST = (
    'cd -- "$1" || exit 1; '
    "if git rev-parse --is-inside-work-tree >/dev/null 2>&1; "
    "then git ls-files -z --cached --others --exclude-standard; "
    "else find . \\( -name .git -o -name node_modules -o -name __pycache__ -o -name .venv \\) -prune "
    "-o \\( -type f -o -type l \\) -exec printf '%s\\0' {} +; fi"
)


@dataclass(frozen=True)
class Content:
    """A file's bytes, the first of them where ``whole`` does not hold."""

    data: bytes
    whole: bool


class Files:
    """One workspace's files. Raises SandboxPathError for a path that is no file's or lies outside."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        self._root = ""

    async def place(self, path: str) -> str:
        """A path relative to the root in its plainest form; models like to write the root before it. One that lies
        elsewhere stays as it is, for whoever refuses it."""
        plain = path.strip()
        if plain.startswith("/"):
            root = await self.root()
            for known in (root, "/workspace", "/testbed", "/repo"):
                if f"{plain}/".startswith(f"{known}/"):
                    plain = plain.removeprefix(known).lstrip("/")
                    break
            if plain.startswith("/"):
                return plain
        return "/".join(part for part in plain.split("/") if part not in ("", ".")) or "."

    async def root(self) -> str:
        """The workspace's absolute path inside."""
        if not self._root:
            outcome = await self._sandbox.run(Command(argv=("/bin/sh", "-c", "pwd -P")))
            self._root = outcome.output.decode("utf-8", "surrogateescape").strip() or "/"
        return self._root

    async def read(self, path: str) -> Content:
        """A file up to the limit."""
        data = await self._sandbox.read(path, limit=LIMIT + 1)
        return Content(data[:LIMIT], len(data) <= LIMIT)

    async def need(self, path: str, seconds: float | None = None) -> Content:
        """The same; the error tells of files of that name elsewhere, for whoever got the folder wrong."""
        outside(path)
        try:
            return await self.read(path)
        except SandboxPathError as error:
            name = path.rpartition("/")[2]
            alike = [one for one in await self.names(seconds=seconds) if one.rpartition("/")[2] == name]
            elsewhere = f". Files of that name: {', '.join(alike[:5])}" if alike and path not in alike else ""
            raise SandboxPathError(f"{str(error)[:300]}{elsewhere}") from error

    async def find(self, path: str) -> Content | None:
        """The same; None where there is no such file. A path outside raises nevertheless."""
        outside(path)
        try:
            return await self.read(path)
        except SandboxPathError:
            if await self._is("-e", path):
                raise
            return None

    async def write(self, path: str, data: bytes, *, executable: bool | None = None) -> None:
        """A whole file; one that is there keeps its executable bit unless told."""
        bit = await self.executable(path) if executable is None else executable
        await self._sandbox.write(path, data, executable=bit)

    async def remove(self, path: str) -> None:
        """A file or link. Nothing where there is none."""
        outside(path)
        await self._sandbox.run(Command(argv=("rm", "-f", "--", f"./{path}")))

    async def executable(self, path: str) -> bool:
        """Whether a file may be run."""
        return await self._is("-x", path)

    async def is_folder(self, path: str) -> bool:
        """Whether it is a folder of the workspace, not a link to one."""
        outside(path)
        return await self._is("-d", path) and not await self._is("-L", path)

    async def names(self, folder: str = ".", seconds: float | None = None) -> Sequence[str]:
        """The files below a folder that belong to the project, sorted, relative to the root; what git ignores is left
        out. A hostile number of names is cut off. A file is its own only name."""
        outside(folder)
        names = await self._listed(folder, min(seconds or _SECONDS, _SECONDS))
        if not any(names) and folder not in (".", "") and not await self._is("-d", folder):
            if await self._is("-f", folder):
                return [folder]
            raise SandboxPathError(f"there is no folder {folder} in the repository")
        before = "" if folder in (".", "") else f"{folder.strip('/')}/"
        return sorted({before + name.removeprefix("./") for name in names if name})

    async def _listed(self, folder: str, seconds: float) -> list[str]:
        data = bytearray()

        def take(piece: bytes) -> None:
            if len(data) < _LISTED:
                data.extend(piece)

        command = Command(argv=("/bin/sh", "-c", _LIST, "sh", f"./{folder}"), timeout=seconds, whole=True)
        await self._sandbox.run(command, take)
        return data.decode("utf-8", "surrogateescape").rpartition("\0")[0].split("\0")

    async def _is(self, test: str, path: str) -> bool:
        return (await self._sandbox.run(Command(argv=("test", test, f"./{path}")))).exit_code == 0


def outside(path: str) -> None:
    """Raises SandboxPathError for a path that leaves the repository by its name alone."""
    if path.startswith("/") or ".." in path.split("/") or "\0" in path:
        raise SandboxPathError(f"{path} lies outside the repository; paths are relative to its root")
