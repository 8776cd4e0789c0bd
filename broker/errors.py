"""Errors of the broker. A verdict on a proposal is a value (Refusal), never one of these.

BrokerError
├── ConfigError        broker.toml is missing, unreadable, too readable or wrong
├── RightsError        the caller's uid has not the role that the verb needs
├── CapabilityError    a capability that is forged, expired, used up or for something else
├── AbsentError        what was named is not known here
├── ConflictError      what was asked collides with what is there already
│   └── NeverError     a person was asked to approve what nobody can
├── StoppedError       a person, or the settings, stopped grants and deliveries in a repository or in all
├── BudgetError        what a repository may take for now is used up, or it is closed at this hour
├── FencedError        another broker has taken over what this one works on; it must stop
├── OutboxFullError    nothing more can be kept before a person has looked
├── BusyError          something else is done with the same repository at this moment
├── GitError           a git run that failed or broke its limits
├── ForgeError         the forge did not do what was asked
├── ProvenanceError    a statement, envelope or key that is not what it should be
└── AuditError         the log's chain is broken
"""

from __future__ import annotations


class BrokerError(Exception):
    """Base of all errors of this room: a message and, where there is one, the mend."""

    def __init__(self, message: str, mend: str = "") -> None:
        super().__init__(message)
        self.mend = mend


class ConfigError(BrokerError):
    """broker.toml is missing, unreadable, too readable or wrong."""


class RightsError(BrokerError):
    """The caller's uid has not the role that the verb needs."""


class CapabilityError(BrokerError):
    """A capability that is forged, expired, used up or for something else."""


class AbsentError(BrokerError):
    """What was named is not known here."""


class ConflictError(BrokerError):
    """What was asked collides with what is there already."""


class NeverError(ConflictError):
    """What no person can approve."""


class StoppedError(BrokerError):
    """A person, or the settings, stopped the repository or all of them."""


class BudgetError(BrokerError):
    """What a repository may take for now is used up, or it is closed at this hour; ``opens`` in s since the epoch."""

    def __init__(self, message: str, mend: str = "", opens: float | None = None) -> None:
        super().__init__(message, mend)
        self.opens = opens


class FencedError(BrokerError):
    """Another broker has taken over what this one works on: this process must stop."""


class OutboxFullError(BrokerError):
    """Nothing more can be kept before a person has looked."""


class BusyError(BrokerError):
    """Something else is done with the same repository at this moment, and is not done soon."""


class GitError(BrokerError):
    """A git run that failed or broke its limits."""


class ForgeError(BrokerError):
    """The forge did not do what was asked.

    ``reason`` names the kind for code (`broker.forge.rest.problems.Reason`). ``uncertain``: it may have been done all
    the same, so whoever asks again looks first. ``when``: seconds since the epoch before which asking is useless.
    """

    def __init__(
        self, message: str, mend: str = "", *, reason: str = "", uncertain: bool = False, when: float | None = None
    ) -> None:
        super().__init__(message, mend)
        self.reason = reason
        self.uncertain = uncertain
        self.when = when


class AuditError(BrokerError):
    """The log's chain is broken."""


class ProvenanceError(BrokerError):
    """A statement, envelope or key that is not what it should be."""
