"""What has to be installed before work can begin, as data; the key under which its result is kept. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Literal

from pydantic import Field

from sandbox.types import Frozen

_FORM = 2  # of what is kept; another number makes everything that was kept unknown


class SetUp(Frozen):
    """Commands that run once, with the package registries in reach, before any task of a repository does.

    ``inputs`` are patterns of tracked files (``*`` matches any text, slashes too): they are all that the set-up sees,
    and it runs anew when one of them changes. None means that it sees the whole checkout, history included, and runs
    anew with each commit.
    """

    commands: tuple[str, ...] = ()
    inputs: tuple[str, ...] | None = None
    network: Literal["none", "packages"] = "packages"
    seconds: float = Field(default=900.0, gt=0, description="all commands together")

    def then(self, later: SetUp | None) -> SetUp:
        """This set-up with the commands of another after it; together they run as long as both."""
        if later is None or not later.commands:
            return self
        if not self.commands:
            return later
        return SetUp(
            commands=self.commands + later.commands,
            inputs=None if self.inputs is None or later.inputs is None else self.inputs + later.inputs,
            network="packages" if "packages" in {self.network, later.network} else "none",
            seconds=self.seconds + later.seconds,
        )


class Ground(Frozen):
    """What a set-up is made on; a result of one is of no use on another.

    ``system`` pins the image (an id or a content hash), ``policy`` says what the network of a set-up lets through.
    """

    backend: str
    system: str
    policy: str = ""


def counting(setup: SetUp, paths: Mapping[bytes, str]) -> dict[bytes, str]:
    """The tracked files that the set-up sees, and what they are."""
    if setup.inputs is None:
        return dict(paths)
    return {path: oid for path, oid in paths.items() if _matches(path, setup.inputs)}


def key_of(setup: SetUp, ground: Ground, paths: Mapping[bytes, str], env: Mapping[str, str], commit: str = "") -> str:
    """Name of the result: the same for the same commands on the same ground with all that they see the same.

    Whatever a set-up saw and its key does not cover would let one repository decide what another's tasks run.
    """
    parts = {
        "form": _FORM,
        "ground": ground.model_dump(),
        "commands": setup.commands,
        "network": setup.network,
        "env": sorted(env.items()),
        "commit": commit if setup.inputs is None else "",
        "inputs": sorted((path.hex(), oid) for path, oid in counting(setup, paths).items()),
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _matches(path: bytes, patterns: Iterable[str]) -> bool:
    name = path.decode("utf-8", "surrogateescape")
    return any(fnmatchcase(name, pattern) for pattern in patterns)
