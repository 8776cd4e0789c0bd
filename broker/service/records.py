"""What proves what was done: the log and its signed head, signed statements, and the commit that a forge shows now."""

from __future__ import annotations

import re

from broker.errors import AbsentError
from broker.person_wire import LogPage
from broker.service.ward import Desk
from broker.wire import PublicKey

_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")


class Records:
    """Reads for people, and of the statements for the coordinator too."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def log(self, after: int) -> LogPage:
        """The log from a number on."""
        return LogPage(entries=self._desk.audit.page(after))

    def log_head(self, number: int | None = None) -> bytes:
        """A signed word for the hash of one line, the last by default. Raises AbsentError."""
        audit = self._desk.audit
        wanted = audit.last if number is None else number
        line = next(iter(audit.page(wanted - 1, limit=1)), None) if wanted > 0 else None
        if line is None:
            raise AbsentError(f"the log has no line {wanted}", f"it has {audit.last}")
        return self._desk.provenance.sign_head(line.number, line.hash, self._desk.clock())

    def provenance(self, repository: str, number: int, commit: str | None = None) -> bytes:
        """The signed statement about a pull request. Raises AbsentError."""
        return self._desk.provenance.get(repository, number, commit)

    def key(self) -> PublicKey:
        """What statements and heads are checked with."""
        return self._desk.provenance.key()

    def commit(self, repository: str, number: int, below: str | None = None) -> bytes:
        """The bytes of the commit that a pull request is on now, fetched from the forge, or of one ``below`` it.

        Once its branch is gone, the commit that the forge still names, if the mirror has it. Raises AbsentError.
        """
        ward = self._desk.wards.get(repository)
        pull, git = ward.forge.pull(number), ward.mirror.git
        try:
            head = ward.mirror.head(pull.branch)
        except AbsentError:
            if git.commit_of(pull.commit) is None:
                mend = "swarm-broker verify --statement ... --git CLONE looks at a clone that holds it"
                raise AbsentError(f"the branch of {repository}#{number} is gone", mend) from None
            head = pull.commit
        if below is not None and (
            not _COMMIT.fullmatch(below) or not git.succeeds("merge-base", "--is-ancestor", below, head)
        ):
            raise AbsentError(f"{repository}#{number} does not stand on the commit {below[:64]}")
        return git.run("cat-file", "commit", below or head)
