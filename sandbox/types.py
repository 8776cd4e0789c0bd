"""What a caller asks of a sandbox and gets back: frozen data, no I/O."""

from __future__ import annotations

import hashlib
import json
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

Backend = Literal["docker", "bwrap"]
Network = Literal["none", "model", "packages"]

MIB = 1024 * 1024
GIB = 1024 * MIB


class Frozen(BaseModel):
    """Base of the room's values: immutable, unknown fields refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Limits(Frozen):
    """Bounds of one sandbox. Bytes and seconds."""

    memory: int = Field(default=1024 * MIB, ge=16 * MIB, description="bytes of memory")
    processes: int = Field(default=128, ge=4, description="processes and threads at a time")
    cpus: float = Field(default=1.0, gt=0, description="processors' worth of time")
    disk: int = Field(default=512 * MIB, ge=MIB, description="bytes that the workspace may hold")
    output: int = Field(default=256 * 1024, ge=1024, description="bytes of output kept of one command")
    wall: float = Field(default=300.0, gt=0, description="seconds that one command may run")


class SandboxSpec(Frozen):
    """One sandbox as asked for; every backend turns it into its own locked-down settings."""

    limits: Limits = Limits()
    env: dict[str, str] = Field(default_factory=dict)
    image: str | None = None
    network: Network = Field(default="none", description="the one way out: none, the model gateway, or packages")
    labels: dict[str, str] = Field(default_factory=dict, description="whose it is; told in logs and by reaping")


class Command(Frozen):
    """One command, run as ``argv`` without a shell, in ``cwd`` relative to the workspace.

    A ``session`` command is ``(shell, "-c", script, ...)``: it begins in the folder and with the exported variables
    that the session's last command ended with, and leaves its own to the next. ``cwd`` and ``env`` then matter for the
    first one only, or where they differ from the default.

    The ``whole`` output of one is passed on as it comes, however long it is and no faster than it is taken, and not
    kept: for a person who watches.
    """

    argv: tuple[str, ...] = Field(min_length=1)
    cwd: str = "."
    env: dict[str, str] = Field(default_factory=dict)
    stdin: bytes = b""
    timeout: float | None = Field(default=None, gt=0)
    session: bool = False
    whole: bool = False

    @model_validator(mode="after")
    def _session_has_a_script(self) -> Command:
        if self.session and (len(self.argv) < 3 or self.argv[1] != "-c"):
            raise ValueError('a session command is (shell, "-c", script, ...)')
        return self


class Outcome(Frozen):
    """What a command did. A time-out, a kill and a missing program are outcomes, not exceptions.

    ``exit_code`` follows the shell (127 missing, 128+n killed by signal n). ``output`` is standard output and error
    interleaved, its middle left out when it grew over the limit: ``cut`` bytes are missing then, after the first
    ``cut_at``.
    """

    exit_code: int
    output: bytes
    seconds: float
    timed_out: bool = False
    out_of_memory: bool = False
    cut: int = 0
    cut_at: int = 0

    @property
    def text(self) -> str:
        """The output as text, undecodable bytes replaced, and a line where something was left out."""
        if not self.cut:
            return self.output.decode("utf-8", "replace")
        head, tail = (
            part.decode("utf-8", "replace") for part in (self.output[: self.cut_at], self.output[self.cut_at :])
        )
        return f"{head}\n[{self.cut} bytes of output were left out here]\n{tail}"


class SealedTree(Frozen):
    """A workspace as git objects: what is checked is what is delivered.

    ``pack`` holds the objects of ``tree`` that ``base`` lacks, and leans on no other; ``files`` are the changed paths.
    """

    base: str
    tree: str
    base_tree: str
    files: tuple[str, ...]
    pack: bytes
    left_out: tuple[str, ...] = ()

    @property
    def changed(self) -> bool:
        """Whether anything differs from the base."""
        return self.tree != self.base_tree


class SelfTest(Frozen):
    """What a backend proved from inside before it was used; ``failed`` names claims that do not hold."""

    backend: Backend
    version: str
    proved: tuple[str, ...]
    failed: tuple[str, ...] = ()
    detail: dict[str, str] = Field(default_factory=dict)

    @property
    def digest(self) -> str:
        """Names exactly what was proved, and on what: SHA-256 over all of it, as hexadecimal digits."""
        return hashlib.sha256(json.dumps(self.model_dump(mode="json"), sort_keys=True).encode()).hexdigest()


class LeftBehind(Frozen):
    """A sandbox whose process is gone. ``living`` tells whether its workspace can still be read."""

    name: str
    labels: dict[str, str]
    created: float = Field(description="seconds since the epoch")
    living: bool
    ours: bool = Field(description="whether it belongs to the same state folder")
