"""The end of a run, whatever it was, as the end of an attempt. Pure."""

from __future__ import annotations

from swarm.faults import broken
from swarm.runs import Ended
from swarm.types import AttemptResult, Conclusion, Failure, Fault, Outcome


def outcome_of(ended: Ended, stuck: Fault | None = None) -> Outcome:
    """What a run came to; ``stuck`` is why it was ended by the watchdog, where it was."""
    match ended.how:
        case "done":
            return Outcome.model_validate_json(ended.value)
        case "cancelled" if stuck is not None:
            return Outcome(result=broken(stuck))
        case "cancelled":
            return Outcome(result=cancelled(None))
        case _:
            failure = Failure(what="the attempt broke", why=ended.value, mend="look into the daemon's log, then retry")
            return Outcome(result=broken(Fault(kind="lasting", failure=failure)))


def cancelled(result: AttemptResult | None) -> AttemptResult:
    """An attempt that a person ended."""
    conclusion = Conclusion(ending="cancelled", summary="cancelled by a person")
    return AttemptResult(conclusion=conclusion, sealed=result.sealed if result else None)
