"""What an exception of a room means for a task: whether waiting, nobody or a person can mend it."""

from __future__ import annotations

from pool.errors import NoEndpointError, OverloadError, PoolError, TransientError
from sandbox.errors import ImageError, SandboxError, SandboxUnavailableError, SetUpError, WorkspaceError
from swarm.errors import BrokerError, BrokerShutError, BrokerUnreachableError, DiscoveryError, SwarmError
from swarm.types import AttemptResult, Conclusion, Failure, FailureKind, Fault

_PASSING_POOL = (OverloadError, TransientError, NoEndpointError)
_MEND = "; mend: "


def fault_of(error: Exception) -> Fault:
    """An exception as a fault. What no room owns up to is a fault of the program, and lasts."""
    why = str(error) or type(error).__name__
    whose: FailureKind = "infrastructure"
    match error:
        case PoolError():
            kind, what = ("passing" if isinstance(error, _PASSING_POOL) else "lasting"), "no model answered"
            mend, whose = "see what is wrong with each server: swarm pool doctor", "model"
        case SetUpError():
            kind, what, mend = "lasting", "the repository could not be set up", "correct its set-up commands, try again"
        case ImageError():
            kind, what = "lasting", "the repository's image cannot be had"
            why, mend = _apart(why, "see its image in the settings")
        case SandboxUnavailableError():
            kind, what = "lasting", "no sandbox can be had for it"
            why, mend = _apart(why, "see what it can do: swarm doctor")
        case SandboxError():
            kind, what = ("lasting" if isinstance(error, WorkspaceError) else "passing"), "the sandbox broke"
            why, mend = _apart(why, "see what it can do: swarm doctor")
        case BrokerUnreachableError():
            kind, what, mend = "passing", "the broker cannot be reached", error.mend
        case BrokerError():
            kind, what, mend = "person", "the broker turned the task down", error.mend
            whose = "person" if isinstance(error, BrokerShutError) else "policy"
        case DiscoveryError():
            kind, what, mend, whose = "person", "nothing could vouch for a change", error.mend, "person"
        case SwarmError():
            kind, what, mend = "lasting", "the daemon cannot go on with it", error.mend
        case _:
            kind, what, mend = "lasting", "the program has a fault", "look into the daemon's log"
            why = f"{type(error).__name__}: {why}"
    return Fault.model_validate({"kind": kind, "failure": Failure(what=what, why=why, mend=mend), "whose": whose})


def _apart(words: str, otherwise: str) -> tuple[str, str]:
    """The reason and the one mend in an exception's words; they stay whole where there are several or none."""
    why, _, mend = words.partition(_MEND)
    return (why, mend) if mend and _MEND not in mend else (words, otherwise)


def broken(fault: Fault) -> AttemptResult:
    """An attempt that a fault ended before anything was sealed."""
    return AttemptResult(conclusion=Conclusion(ending="infra_failed", summary=fault.text), fault=fault)
