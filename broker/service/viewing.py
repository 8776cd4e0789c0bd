"""A kept proposal as a person looks at it before his word: what it says, which files differ, and how; all bounded."""

from __future__ import annotations

from broker.diffs import diff_of
from broker.errors import BrokerError, GitError
from broker.gitdir import GitDir
from broker.judge.facts import Change, Facts, compare
from broker.judge.quarantine import take
from broker.outbox.rows import Kept
from broker.person_wire import ChangedFile, KeptProposal, ProposedChange
from broker.service.ward import Desk

_MAX_FILES = 1000
_MAX_WALKED = 100_000
_MAX_TREE_BYTES = 16 << 20
_MAX_DIFF = 1 << 20


class Viewing:
    """Looks; keeps nothing, changes nothing."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def kept(self, proposal: str) -> KeptProposal:
        """One with its words and, while its content is kept, the change read from exactly that. Raises AbsentError."""
        shown = self._desk.outbox.show(proposal)
        if not shown.size:
            return shown
        return shown.model_copy(update={"change": self._change(self._desk.outbox.get(proposal))})

    def _change(self, kept: Kept) -> ProposedChange:
        """The change; what hinders it is said and is no error: the verdict has to be seen all the same."""
        try:
            words, pack = self._desk.outbox.content(kept)
            ward = self._desk.wards.get(kept.repository)
            with self._desk.quarantine.open(ward.mirror.git, ward.object_format()) as store:
                if rejected := take(store, pack, ward.settings().policy):
                    return ProposedChange(problem=rejected[0].message)
                if store.commit_of(words.base_commit) is None:
                    return ProposedChange(
                        problem=f"its base {words.base_commit} is not at hand: look at it again later"
                    )
                return change_of(store, words.base_commit, words.tree)
        except (BrokerError, OSError) as error:
            return ProposedChange(problem=f"the content cannot be read: {error}"[:1000])


def change_of(store: GitDir, base_commit: str, tree: str) -> ProposedChange:
    """What ``tree`` changes against the base. Git diffs only what an own walk came to the end of. Raises GitError."""
    try:
        facts = _walked(store, base_commit, tree)
    except ValueError as error:
        return ProposedChange(problem=f"the tree cannot be walked: {error}")
    files = tuple(map(_file, facts.changes[:_MAX_FILES]))
    more = len(facts.changes) - len(files)
    if not facts.complete:
        return ProposedChange(files=files, more=more, cut=True, problem=facts.findings[-1].message)
    try:
        diff, cut = diff_of(store, base_commit, tree, _MAX_DIFF)
    except GitError as error:
        said = str(error).replace(str(store.path), "the quarantine")[:1000]
        return ProposedChange(files=files, more=more, cut=True, problem=f"there is no diff: {said}")
    return ProposedChange(files=files, more=more, diff=diff, cut=cut)


def _walked(store: GitDir, base_commit: str, tree: str) -> Facts:
    with store.objects() as objects:
        base = objects.tree_of(base_commit)
        return compare(
            lambda oid: objects.read(oid, "tree", _MAX_TREE_BYTES),
            base,
            tree,
            max_changes=_MAX_WALKED,
            max_entries=_MAX_WALKED,
        )


def _file(change: Change) -> ChangedFile:
    return ChangedFile(path=change.path, kind=change.kind, mode=change.new_mode, was=change.old_mode)
