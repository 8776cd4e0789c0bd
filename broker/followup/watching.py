"""Watches the broker's own pull requests: reviews, checks, conflicts, ends. One event at a time each, rounds capped."""

from __future__ import annotations

from dataclasses import dataclass, replace

from broker.errors import AbsentError, ForgeError, StoppedError
from broker.followup import watch
from broker.followup.asking import Asking, LaterError
from broker.followup.ledger import Watched
from broker.followup.parts import Followed, Own
from broker.followup.plain import line
from broker.followup.records import Recorder
from broker.followup.status import Sticky
from broker.forge.base import Dressing, Note
from broker.forge.rest.problems import Reason
from broker.wire import Check, Event, PullRequest

AT_ONCE = 3  # pull requests that one look asks about, some six requests each; those looked at longest ago
HUMAN = "needs-human"
SLACK = 60.0  # seconds that a forge's clock may be behind ours


@dataclass(frozen=True)
class Looked:
    """One pull request at one look."""

    own: Own
    pull: PullRequest
    known: Watched


class Watching:
    """The own pull requests of one repository. Only ever called from its own thread."""

    def __init__(self, followed: Followed, recorder: Recorder, sticky: Sticky) -> None:
        self._of = followed
        self._recorder = recorder
        self._sticky = sticky

    def open_ones(self) -> tuple[Own, ...]:
        """Those that are not over, the one that was looked at longest ago first."""
        of = self._of
        over = of.ledger.over(of.name)
        left = [own for own in of.own() if own.number not in over]
        return tuple(sorted(left, key=lambda own: self._looked_at(own.number)))

    def behind(self, since: float) -> bool:
        """Whether one of them was not looked at since then."""
        return any(self._looked_at(own.number) < since for own in self.open_ones()[:1])

    def _looked_at(self, number: int) -> float:
        known = self._of.ledger.watched(self._of.name, number)
        return known.looked if known else 0.0

    def look(self) -> None:
        """One look at a few of them. Raises ForgeError; it may be called again."""
        of = self._of
        chosen = self.open_ones()[:AT_ONCE]
        if not chosen:
            return
        if of.ledger.floor(of.name) is None:
            of.ledger.raise_floor(of.name, of.clock() - SLACK)
        asking = Asking(of, of.tracker.me())
        for own in chosen:
            try:
                self._one(own, asking)
            except StoppedError:
                continue
            except ValueError as error:  # one that cannot be read does not hide the others
                self._recorder.note("pull-unreadable", pull=own.number, reason=type(error).__name__)
            except ForgeError as error:
                if error.reason != Reason.LARGE:
                    raise
                self._recorder.note("pull-unreadable", pull=own.number, reason=line(str(error), 300))

    def _one(self, own: Own, asking: Asking) -> None:
        of = self._of
        now = of.clock()
        known = replace(of.ledger.watched(of.name, own.number) or Watched(own.number, own.task, "", 0.0), looked=now)
        of.ledger.watch(of.name, known)  # before anything can fail: the next look begins with another one
        try:
            pull = of.forge.pull(own.number)
        except AbsentError:
            self._end(known, "closed", "")
            return
        if pull.branch != own.branch:  # a repository made anew may give its number to another's
            self._end(known, "closed", "")
            return
        if not known.head:
            known = replace(known, head=pull.commit, active=pull.created)
        elif pull.commit != known.head:
            known = replace(known, head=pull.commit, active=now, busy=None)
        if pull.state != "open":
            self._end(known, pull.state, pull.url)
            return
        looked = Looked(own, pull, known)
        if self._collect(looked, asking):
            looked = replace(looked, known=replace(known, active=now))
        of.ledger.watch(of.name, looked.known)
        self._step(looked)

    # --- what people say

    def _collect(self, looked: Looked, asking: Asking) -> bool:
        """Keeps what permitted people said, each word once; whether anybody said anything new."""
        of, number = self._of, looked.pull.number
        if not of.settings().follow.reviews:
            return False
        floor = of.ledger.floor(of.name) or 0.0
        notes = [note for note in of.tracker.reviews(number) if note.comment.at > floor]
        new = [note for note in notes if not of.ledger.is_seen(of.name, f"note:review:{note.id}")]
        for note in new:
            try:
                why = asking.why_not(note.comment.author, note.comment)
            except LaterError:
                break
            self._hear(number, note, why)
        return bool(new)

    def _hear(self, number: int, note: Note, why: str) -> None:
        of = self._of
        with of.ledger.together():
            of.ledger.see(of.name, {f"note:review:{note.id}": note.comment.at})
            if not why:
                of.ledger.ask(of.name, number, {note.id: note.comment.model_copy(update={"permitted": True})})
        if why:
            self._recorder.note("review-left-out", pull=number, by=line(note.comment.author, 100), reason=why)

    # --- what follows

    def _step(self, looked: Looked) -> None:
        of, known, pull = self._of, looked.known, looked.pull
        follow = of.settings().follow
        facts = self._facts(looked)
        wanted = watch.decide(known, facts, follow, of.clock())
        if wanted == "needs-human":
            self._call_human(looked)
        elif wanted != "nothing":
            keys = {f"{wanted}:{pull.number}:{known.head}": of.clock()} if wanted != "review" else {}
            event = self._event(wanted, known, watch.text_of(wanted, facts, pull), pull.url)
            busy = replace(known, busy=of.clock(), rounds=known.rounds + 1, active=of.clock(), told=False)
            with of.ledger.together():
                of.ledger.see(of.name, keys)
                if wanted == "review":
                    of.ledger.told(of.name, pull.number)
                of.ledger.watch(of.name, busy)
                numbered = of.ledger.publish(event)
            of.audit.append("follow-up", repository=of.name, pull=pull.number, kind=wanted, round=busy.rounds,
                            number=numbered.number)  # fmt: skip
        else:
            self._expire(looked)

    def _facts(self, looked: Looked) -> watch.Facts:
        of, number, head = self._of, looked.pull.number, looked.known.head
        words = of.ledger.pending(of.name, number)
        if watch.is_busy(looked.known, of.clock()) or words:
            return watch.Facts(words)
        follow = of.settings().follow
        conflict = (
            follow.conflicts
            and not of.ledger.is_seen(of.name, f"conflict:{number}:{head}")
            and of.tracker.mergeable(number) is False
        )
        return watch.Facts((), conflict, () if conflict or not follow.checks else self._failing(looked))

    def _failing(self, looked: Looked) -> tuple[Check, ...]:
        """Failed checks of the broker's own commit; what somebody else pushed is theirs to mend."""
        of, head = self._of, looked.known.head
        if head not in looked.own.commits or of.ledger.is_seen(of.name, f"check:{looked.pull.number}:{head}"):
            return ()
        return watch.failing(of.tracker.checks(head))

    def _call_human(self, looked: Looked) -> None:
        # Both of these may be done twice without harm, so they come before the line that says that they were done.
        of, pull, known = self._of, looked.pull, looked.known
        of.running()
        of.forge.dress(pull.number, Dressing(labels=(HUMAN,)))
        rounds = of.settings().follow.max_rounds
        self._sticky.tell(
            pull.number, known, "waiting", f"{rounds} rounds are used up: a person has to go on from here."
        )
        with of.ledger.together():
            of.ledger.watch(of.name, replace(known, told=True))
            of.ledger.publish(self._event(HUMAN, known, "", pull.url))
        of.audit.append("needs-human", repository=of.name, pull=pull.number, rounds=known.rounds)

    def _expire(self, looked: Looked) -> None:
        of, pull, known = self._of, looked.pull, looked.known
        days, now = of.settings().policy.expire_days, of.clock()
        if not watch.expired(known.active, days, now):
            return
        thread = of.tracker.thread(pull.number, pull=True)
        latest = max([known.active, thread.updated, *(comment.at for comment in thread.comments)])
        if not watch.expired(latest, days, now):
            of.ledger.watch(of.name, replace(known, active=latest))
            return
        try:
            of.running()
        except StoppedError:
            return
        self._sticky.tell(pull.number, known, "cancelled", f"Closed, since nothing happened here for {days} days.")
        of.forge.close(pull.number)
        of.audit.append("expired", repository=of.name, pull=pull.number, days=days)
        self._end(known, "closed", pull.url)

    def _end(self, known: Watched, state: str, url: str) -> None:
        of = self._of
        event = self._event("merged" if state == "merged" else "closed", known, "", url)
        with of.ledger.together():
            of.ledger.watch(of.name, replace(known, over=True, busy=None))
            of.ledger.told(of.name, known.number)
            of.ledger.finished(of.name, known.task)
            of.ledger.publish(event)
        of.audit.append("pull-over", repository=of.name, pull=known.number, state=state)

    def _event(self, kind: str, known: Watched, text: str, url: str) -> Event:
        of = self._of
        values = {"kind": kind, "task": known.task, "pull": known.number, "text": text, "url": line(url, 500)}
        return Event.model_validate({"number": 0, "at": of.clock(), "repository": of.name, **values})
