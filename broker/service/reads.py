"""What the coordinator reads without the key: mirrors, an issue's words, its own pull request, all of it foreign."""

from __future__ import annotations

from typing import IO

from broker.capability import Rights
from broker.errors import AbsentError, CapabilityError
from broker.followup import intake
from broker.followup.plain import line, plain
from broker.outbox.rows import Own
from broker.service.grants import Grants
from broker.service.ward import Desk, Ward
from broker.wire import (
    Ask,
    Check,
    Comment,
    IssueRequest,
    MirrorRequest,
    PullState,
    Repositories,
    RepositoryInfo,
    Thread,
)

_COMMENTS, _CHECKS = 200, 200
_TEXT = 64 * 1024
_ALL_TEXT = 4 << 20  # characters of all comments of one answer together
_ASKED = 20  # authors whose permission is asked for one answer; whoever is beyond counts as not permitted
_NEW = "a person asks for another one: swarm-broker grant"


class Reads:
    """Reads for whoever holds a capability, of what it names."""

    def __init__(self, desk: Desk, grants: Grants) -> None:
        self._desk = desk
        self._grants = grants

    def repositories(self) -> Repositories:
        """Names alone; no address."""
        known = self._desk.current().repositories
        infos = (
            RepositoryInfo(name=ward.name, forge=known[ward.name].forge, default_base=known[ward.name].default_base)
            for ward in self._desk.wards.all()
            if ward.name in known
        )
        return Repositories(repositories=tuple(infos))

    # --- objects

    def mirror(self, request: MirrorRequest) -> tuple[str, IO[bytes]]:
        """A commit and a file with its pack; the caller closes it.

        The granted base as it was granted, or the own branch, or the default base of one of the grant's other
        repositories, as these are now. Raises CapabilityError, AbsentError.
        """
        rights = self._grants.rights(request.capability, "mirror")
        ward, commit = self._wanted(rights, request)
        pack = ward.mirror.pack(commit, request.have)
        self._desk.rationing.append(rights.grant, "mirror", grant=rights.grant, repository=ward.name, commit=commit)
        return commit, pack

    def _wanted(self, rights: Rights, request: MirrorRequest) -> tuple[Ward, str]:
        ward = self._desk.wards.get(rights.repository)
        if request.repository is not None and request.repository != rights.repository:
            return self._other(rights, request.repository)
        if request.head:
            return ward, ward.mirror.head(self._own(rights).branch)
        if ward.mirror.git.commit_of(rights.base_commit) is None:
            raise AbsentError("the base of this grant is no longer kept: it was used up or taken back long ago", _NEW)
        return ward, rights.base_commit

    def _other(self, rights: Rights, name: str) -> tuple[Ward, str]:
        if name not in rights.reads:
            raise CapabilityError(f"the capability does not name {name}", _NEW)
        if leak := self._grants.leak(rights):
            raise CapabilityError(leak.message, leak.mend)
        other = self._desk.wards.get(name)
        return other, other.mirror.refresh(other.settings().default_base)

    # --- words

    def issue(self, request: IssueRequest) -> Thread:
        """An issue or pull request of the granted repository with its comments. Raises AbsentError, ForgeError."""
        rights = self._grants.rights(request.capability, "read")
        number = request.number if request.number is not None else rights.issue
        if number is None:
            raise AbsentError("the capability is bound to no issue", "name its number")
        ward = self._desk.wards.get(rights.repository)
        thread = ward.tracker.thread(number)
        self._desk.rationing.append(rights.grant, "read-issue", grant=rights.grant, repository=ward.name, issue=number)
        return thread.model_copy(
            update={
                "number": number,
                "title": line(thread.title, 300),
                "text": plain(thread.text, _TEXT),
                "author": line(thread.author, 100),
                "labels": tuple(line(label, 100) for label in thread.labels[:100]),
                "comments": self._comments(ward, thread.comments),
                "url": line(thread.url, 500),
            }
        )

    def pull_state(self, request: Ask) -> PullState:
        """The grant's own pull request as the forge shows it now. Raises AbsentError, ForgeError."""
        rights = self._grants.rights(request.capability, "read")
        ward, own = self._desk.wards.get(rights.repository), self._own(rights)
        pull = ward.forge.pull(own.number)
        self._desk.rationing.append(
            rights.grant, "read-pull", grant=rights.grant, repository=ward.name, pull=own.number
        )
        notes = ward.tracker.reviews(own.number)
        return PullState(
            number=own.number,
            state=pull.state,
            draft=pull.draft,
            head=pull.commit,
            ours=pull.commit in own.commits,
            mergeable=ward.tracker.mergeable(own.number) if pull.state == "open" else None,
            checks=tuple(_check(check) for check in ward.tracker.checks(pull.commit)[:_CHECKS]),
            reviews=self._comments(ward, tuple(note.comment for note in notes)),
            rounds=own.rounds,
            url=line(pull.url, 500),
        )

    def _own(self, rights: Rights) -> Own:
        for own in reversed(self._desk.outbox.own(rights.repository, rights.task)):  # the newest
            if own.branch == rights.branch:
                return own
        raise AbsentError(f"task {rights.task} has no pull request", "propose it first")

    def _comments(self, ward: Ward, comments: tuple[Comment, ...]) -> tuple[Comment, ...]:
        """Cleaned, the newest where there are too many, each with what the forge says of its author now."""
        permitted: dict[str, bool] = {}
        shown, room = [], _ALL_TEXT
        for comment in reversed(comments[-_COMMENTS:]):
            text = plain(comment.text, min(_TEXT, max(room, 100)))
            room -= len(text)
            shown.append(
                comment.model_copy(
                    update={
                        "author": line(comment.author, 100),
                        "permitted": self._permitted(ward, comment, permitted),
                        "text": text,
                        "path": None if comment.path is None else line(comment.path, 500),
                    }
                )
            )
            if room <= 0:
                break
        return tuple(reversed(shown))

    @staticmethod
    def _permitted(ward: Ward, comment: Comment, known: dict[str, bool]) -> bool:
        author = comment.author
        if comment.bot or not intake.is_login(author):
            return False
        if author not in known:
            if len(known) >= _ASKED:
                return False
            known[author] = intake.may(ward.tracker.permission(author), ward.settings().intake.permission)
        return known[author]


def _check(check: Check) -> Check:
    return Check(
        name=line(check.name, 200), state=check.state, summary=plain(check.summary, 4000), url=line(check.url, 500)
    )
