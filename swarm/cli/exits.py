"""Exit codes: one number a kind of ending, the same in the help, the documentation and the program; and the mends."""

from __future__ import annotations

from enum import IntEnum

from pool.errors import EmbeddedError, NoEndpointError, PoolConfigError, PoolError
from sandbox.errors import ImageError, SandboxError
from swarm.errors import (
    BrokerError,
    ConfigError,
    DaemonError,
    EvaluationError,
    ReplayError,
    RepositoryNotFoundError,
    TaskError,
    TaskNotFoundError,
    TranscriptError,
)
from swarm.types import TaskState


class Code(IntEnum):
    """What the process ends with. Scripts rely on these numbers; they are only ever added to."""

    OK = 0
    FAULT = 1
    USAGE = 2
    CONFIG = 3
    DAEMON = 4
    BROKER = 5
    NOT_FOUND = 6
    TASK = 7
    POOL = 8
    SANDBOX = 9
    NO_CHANGE = 10
    LIMIT_HIT = 11
    GAVE_UP = 12
    CHECKS_FAILED = 13
    INFRA_FAILED = 14
    REFUSED = 15
    NEEDS_PERSON = 16
    CANCELLED = 17
    EXPIRED = 18
    DIFFERENT = 20
    CANNOT_REPLAY = 21
    NOT_WHOLE = 22
    UNFINISHED = 23
    CANNOT_EVALUATE = 24
    UNEXPECTED = 70
    INTERRUPTED = 130
    PIPE = 141


MEANINGS: dict[Code, str] = {
    Code.OK: "done; for a task that was waited for: delivered",
    Code.FAULT: "a check found a fault (doctor, config check), or a store is unusable",
    Code.USAGE: "the command line is wrong",
    Code.CONFIG: "swarm.toml, a task file, a transcript or a value that was given is missing, unreadable or wrong",
    Code.DAEMON: "the daemon does not answer, or is already there",
    Code.BROKER: "the broker does not answer, or turned the call down",
    Code.NOT_FOUND: "there is no such task or repository",
    Code.TASK: "the task cannot be accepted or moved",
    Code.POOL: "no model server can be used",
    Code.SANDBOX: "no sandbox can be made that keeps its claims",
    Code.NO_CHANGE: "task: nothing needed to change",
    Code.LIMIT_HIT: "task: its budget was spent",
    Code.GAVE_UP: "task: the agent gave up",
    Code.CHECKS_FAILED: "task: the tests did not pass",
    Code.INFRA_FAILED: "task: the machinery failed",
    Code.REFUSED: "task: the broker's policy refused the proposal",
    Code.NEEDS_PERSON: "task: a person has to decide, or to answer its agent",
    Code.CANCELLED: "task: cancelled",
    Code.EXPIRED: "task: nobody claimed it in time",
    Code.DIFFERENT: "replay: another tree came out than was recorded",
    Code.CANNOT_REPLAY: "replay: the attempt or the file cannot be replayed here",
    Code.NOT_WHOLE: "replay: the same tree, but not every recorded line was played, or not as recorded",
    Code.UNFINISHED: "eval: not every try was made, or the machinery failed in some; the report has the others",
    Code.CANNOT_EVALUATE: "eval: a set, a case or an earlier run cannot be used",
    Code.UNEXPECTED: "a fault of this program; the message names a log",
    Code.INTERRUPTED: "Ctrl-C; a task that was watched goes on",
    Code.PIPE: "the reader of our output went away",
}


_MENDS: tuple[tuple[type[Exception], str], ...] = (
    (EmbeddedError, "see what the embedded model needs with: swarm pool doctor"),
    (NoEndpointError, "see what is wrong with each server with: swarm pool doctor"),
    (PoolConfigError, "see each server with: swarm pool status"),
    (PoolError, "see each server with: swarm pool status, find others with: swarm init"),
    (ImageError, "what an image may be is in docs/sandbox-images.md"),
    (ReplayError, "what can be replayed, and where, is in docs/replay.md"),
    (TranscriptError, "what is read, and from which programs, is in docs/transcripts.md"),
    (EvaluationError, "how sets, runs and reports look is in docs/evaluation.md"),
    (SandboxError, "see what this machine can keep with: swarm sandbox doctor"),
)


def of_state(state: TaskState) -> Code:
    """The exit code of a task that was waited for; one that still goes on counts as done."""
    return Code.OK if state is TaskState.DELIVERED or not state.final else Code[state.name]


def table() -> str:
    """All codes as lines of text."""
    return "\n".join(f"{code.value:>4}  {MEANINGS[code]}" for code in Code)


def short() -> str:
    """All codes in a few words, for the foot of the help."""
    return ", ".join(f"{code.value} {code.name.lower()}" for code in Code)


def code_of(error: Exception) -> Code:
    """The exit code of an error that has a name."""
    kinds: tuple[tuple[type[Exception], Code], ...] = (
        (ConfigError, Code.CONFIG),
        (TranscriptError, Code.CONFIG),
        (DaemonError, Code.DAEMON),
        (BrokerError, Code.BROKER),
        (ReplayError, Code.CANNOT_REPLAY),
        (EvaluationError, Code.CANNOT_EVALUATE),
        (TaskNotFoundError, Code.NOT_FOUND),
        (RepositoryNotFoundError, Code.NOT_FOUND),
        (TaskError, Code.TASK),
        (PoolConfigError, Code.CONFIG),
        (PoolError, Code.POOL),
        (SandboxError, Code.SANDBOX),
    )
    return next((code for kind, code in kinds if isinstance(error, kind)), Code.FAULT)


def parted(error: Exception) -> tuple[str, str]:
    """What is wrong, and the mend; pool and sandbox say both in one line, the mend last."""
    text = str(error)
    what, _, mend = text.rpartition("; ")
    if isinstance(error, PoolConfigError) and what and "\n" not in text:
        return what, mend
    if isinstance(error, SandboxError) and "\n" not in text and mend.startswith("mend: "):
        return what, mend.removeprefix("mend: ")
    return text, _mend(error)


def _mend(error: Exception) -> str:
    told: str = getattr(error, "mend", "")
    usual = (mend for kind, mend in _MENDS if isinstance(error, kind))
    return told or next(usual, "swarm doctor examines the whole installation")
