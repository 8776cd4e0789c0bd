"""What a caller asks of a sandbox and gets back: frozen data, no I/O."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

Backend = Literal["docker", "bwrap"]

MIB = 1024 * 1024


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


class Command(Frozen):
    """One command, run as ``argv`` without a shell, in ``cwd`` relative to the workspace."""

    argv: tuple[str, ...] = Field(min_length=1)
    cwd: str = "."
    env: dict[str, str] = Field(default_factory=dict)
    stdin: bytes = b""
    timeout: float | None = Field(default=None, gt=0)


class Outcome(Frozen):
    """What a command did. A time-out, a kill and a missing program are outcomes, not exceptions.

    ``exit_code`` follows the shell (127 missing, 128+n killed by signal n). ``output`` is standard output and error
    interleaved, its middle cut out when it grew over the limit (``cut`` bytes are missing then).
    """

    exit_code: int
    output: bytes
    seconds: float
    timed_out: bool = False
    out_of_memory: bool = False
    cut: int = 0

    @property
    def text(self) -> str:
        """The output as text, undecodable bytes replaced."""
        return self.output.decode("utf-8", "replace")


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


class Checkout(Frozen):
    """Where a checkout comes from: a trusted bare git directory and a commit in it."""

    git_dir: Path
    commit: str
