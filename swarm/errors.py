"""Errors of the hall. Each says what, why and how to mend it; the cli prints exactly that.

SwarmError
├── ConfigError        a setting is missing, unknown or impossible
├── TaskError          a task cannot be accepted, found or moved
│   ├── IllegalMoveError
│   ├── TaskNotFoundError
│   ├── ForeignTaskError         another one's, and the caller may move only its own
│   ├── KeyReusedError           its idempotency key came before, with another request
│   └── RepositoryNotFoundError
├── DaemonError        the daemon is not there, already there, or does not answer
├── BrokerError        the broker is not there or turned a call down
│   ├── BrokerUnreachableError  it is not there, or its forge is not: the same call may do later
│   └── BrokerShutError         a person stopped it, or a budget is used up: the same call may do later
├── BudgetExceededError  raised by the ledger; ends the work phase as limit_hit
├── ReplayError        a recorded attempt cannot be read, or not be replayed here
├── EvaluationError    a set, a case or an earlier run of an evaluation cannot be used
├── DiscoveryError     no test command that runs was found in a repository
├── TranscriptError    a transcript or another program's trajectory cannot be read, or not be written
└── StoreError         the database is unusable
    └── StoreAwayError           it cannot be used now; the same may do later
"""

from __future__ import annotations


class SwarmError(Exception):
    """Base of all errors of this room: a message and, where there is one, the mend."""

    def __init__(self, message: str, mend: str = "") -> None:
        super().__init__(message)
        self.mend = mend


class ConfigError(SwarmError):
    """A setting is missing, unknown or impossible."""


class TaskError(SwarmError):
    """A task cannot be accepted, found or moved."""


class IllegalMoveError(TaskError):
    """A state that may not follow the present one."""


class TaskNotFoundError(TaskError):
    """No task, or more than one, has this id."""


class ForeignTaskError(TaskError):
    """Another one's task, which this caller may not move."""


class KeyReusedError(TaskError):
    """The same idempotency key came with another request."""


class RepositoryNotFoundError(TaskError):
    """The broker knows no repository of this name."""


class StaleClaimError(TaskError):
    """Another worker has the task by now; what this one found is no longer wanted."""


class DaemonError(SwarmError):
    """The daemon is not there, already there, or does not answer."""


class BrokerError(SwarmError):
    """The broker is not there or turned a call down."""


class BrokerUnreachableError(BrokerError):
    """The broker does not answer, or cannot reach its forge: the same call may do later."""


class BrokerShutError(BrokerError):
    """The broker lets nothing through for now, by a person's word or a budget: the same call may do later."""


class BudgetExceededError(SwarmError):
    """The task has spent what it may; ``limit`` names which limit it was ("task.tokens", "repository:web.money")."""

    def __init__(self, message: str, mend: str = "", *, limit: str = "") -> None:
        super().__init__(message, mend)
        self.limit = limit


class ReplayError(SwarmError):
    """A recorded attempt cannot be read, or not be replayed here."""


class EvaluationError(SwarmError):
    """A set, a case or an earlier run of an evaluation cannot be used."""


class DiscoveryError(SwarmError):
    """No test command was found in a repository that runs its tests."""


class TranscriptError(SwarmError):
    """A transcript or another program's trajectory cannot be read, or not be written."""


class StoreError(SwarmError):
    """The database is unusable."""


class StoreAwayError(StoreError):
    """The database cannot be used now: it is being restarted, cut off, held up, or its disk is full."""
