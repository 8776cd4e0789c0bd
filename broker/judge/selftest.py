"""Proves at start that this machine's git does what the broker relies on; remembered until that git changes."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from broker.errors import BrokerError, ConfigError
from broker.git_settings import ENVIRONMENT, FLAGS
from broker.gitdir import GitDir
from broker.judge.claims import CLAIMS, Experiment

_MEND = "install an unmodified git of version 2.39 or newer in /usr/bin, then start again; see: swarm-broker selftest"
_MEMORY = "git-proof.json"


class Claim(BaseModel):
    """One thing that git was seen to do, or not."""

    model_config = ConfigDict(frozen=True)

    name: str
    ok: bool
    message: str = ""
    mend: str = ""


class Proof(BaseModel):
    """What rests on which git. ``key`` names the binary as it lies there, the settings and the claims."""

    model_config = ConfigDict(frozen=True)

    version: str
    key: str
    claims: tuple[Claim, ...]
    seconds: float
    remembered: bool = False

    def fields(self) -> dict[str, str]:
        """For the log."""
        held = "; ".join(claim.name for claim in self.claims if claim.ok)
        return {"git": self.version, "claims": held, "remembered": str(self.remembered).lower()}


def prove(state: Path, claims: Mapping[str, Experiment] = CLAIMS) -> Proof:
    """All claims hold, by a test now or by one of this very git before. Raises ConfigError naming what does not."""
    memory = state / _MEMORY
    key = _key(claims)
    if (known := _remembered(memory)) and known.key == key:
        return known.model_copy(update={"remembered": True})
    began = time.monotonic()
    with tempfile.TemporaryDirectory(dir=state, prefix="selftest-") as scratch:
        version = _version(Path(scratch))
        found = examine(Path(scratch), claims)
    if failed := next((claim for claim in found if not claim.ok), None):
        raise ConfigError(f"{version} cannot be relied on ({failed.name}): {failed.message}", _MEND)
    proof = Proof(version=version, key=key, claims=found, seconds=round(time.monotonic() - began, 3))
    _remember(memory, proof)
    return proof


def examine(scratch: Path, claims: Mapping[str, Experiment] = CLAIMS) -> tuple[Claim, ...]:
    """Tests every claim in folders of its own under ``scratch``, which may be empty; two at a time."""
    slowest_first = list(reversed([*claims]))
    with ThreadPoolExecutor(2) as pool:
        begun = {
            name: pool.submit(_test, name, claims[name], scratch / f"claim-{at}")
            for at, name in enumerate(slowest_first)
        }
        return tuple(begun[name].result() for name in claims)


def _test(name: str, experiment: Experiment, folder: Path) -> Claim:
    try:
        folder.mkdir(mode=0o700)
        against = experiment(folder)
    except (BrokerError, OSError) as error:
        against = f"the test itself failed: {error}"[:500]
    return Claim(name=name, ok=not against, message=against.replace(str(folder), "."), mend=_MEND if against else "")


def _version(scratch: Path) -> str:
    try:
        return GitDir(scratch / "none").text("version")[:100]
    except (BrokerError, OSError) as error:
        raise ConfigError(f"git cannot be run: {error}", _MEND) from None


def _key(claims: Mapping[str, Experiment]) -> str:
    binary = shutil.which("git", path=ENVIRONMENT["PATH"])
    if binary is None:
        raise ConfigError(f"there is no git in {ENVIRONMENT['PATH']}", _MEND)
    lies = Path(os.path.realpath(binary)).stat()
    about = [binary, str(lies.st_mtime_ns), str(lies.st_size), str(lies.st_ino), os.uname().release]
    return hashlib.sha256("\0".join((*about, *FLAGS, *claims)).encode()).hexdigest()


def _remembered(memory: Path) -> Proof | None:
    try:
        return Proof.model_validate_json(memory.read_bytes())
    except (OSError, ValidationError):
        return None


def _remember(memory: Path, proof: Proof) -> None:
    draft = memory.with_suffix(".draft")
    draft.write_text(proof.model_dump_json(), "utf-8")
    draft.chmod(0o600)
    draft.replace(memory)
