"""Pull requests for a person: listed, shown, and merged where the forge is the embedded one."""

from __future__ import annotations

from broker.person_wire import PullRequests, PullRequestView
from broker.service.ward import PERSONS_PATIENCE, Desk
from broker.wire import PullRequest

_MAX_DIFF = 1 << 20


class Pulls:
    """What the broker opened."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def listing(self, repository: str) -> PullRequests:
        """A repository's pull requests. Raises AbsentError."""
        return PullRequests(pulls=self._desk.wards.get(repository).forge.pulls())

    def show(self, repository: str, number: int) -> PullRequestView:
        """One of them with its diff. Raises AbsentError."""
        forge = self._desk.wards.get(repository).forge
        diff, cut = forge.diff(number, _MAX_DIFF)
        return PullRequestView(pull=forge.pull(number), diff=diff, cut=cut)

    def merge(self, repository: str, number: int, by_uid: int) -> PullRequest:
        """Merges one. Raises AbsentError, ConflictError, BusyError."""
        ward = self._desk.wards.get(repository)
        with ward.turn(PERSONS_PATIENCE):
            merged = ward.forge.merge(number, f"uid {by_uid}")
        self._desk.audit.append("merge", repository=repository, number=number, uid=by_uid,
                                commit=merged.merged_commit or "")  # fmt: skip
        return merged
