"""Takes in what a look at a forge brought: labels and commands of permitted people become tasks with a grant."""

from __future__ import annotations

import secrets
from dataclasses import dataclass

from broker.errors import AbsentError, ConflictError, ForgeError, StoppedError
from broker.followup import intake
from broker.followup.asking import Asking, LaterError
from broker.followup.parts import Followed
from broker.followup.plain import line
from broker.followup.records import Recorder
from broker.forge.base import Note
from broker.forge.rest.problems import Reason
from broker.wire import Comment, Event, GrantRequest, Thread

SLACK = 60.0  # seconds that a forge's clock may be behind ours
DAYS = 30  # that a task's grant is good


@dataclass(frozen=True)
class Wish:
    """Somebody wants an issue done: ``seen`` is the id that makes it be wanted once, ``at`` when it was written.

    ``asked``: when the sender last had the issue before them, as far as the wish tells, by the forge's clock.
    """

    number: int
    sender: str
    words: str
    seen: str
    at: float
    asked: float


class Taking:
    """The intake of one repository. Only ever called from its own thread."""

    def __init__(self, followed: Followed, recorder: Recorder) -> None:
        self._of = followed
        self._recorder = recorder
        self._declined: dict[str, float] = {}  # what this look turned down: written in one go, for a crowd's sake

    def look(self) -> None:
        """One look. What was there before the first one starts nothing. Raises ForgeError; it may be called again."""
        of = self._of
        marks = of.ledger.marks(of.name)
        now = of.clock()
        seen = of.tracker.look(marks)
        if not marks:
            with of.ledger.together():
                of.ledger.raise_floor(of.name, now - SLACK)
                of.ledger.set_marks(of.name, seen.marks)
            return
        asking = Asking(of, of.tracker.me())
        try:
            for thread in seen.threads:
                self._labelled(thread, asking)
            self._notes(seen.notes, asking)
        except (LaterError, StoppedError):
            return  # the marks stay: the next look brings the rest again
        finally:
            of.ledger.see(of.name, self._declined)
            self._declined = {}
        of.ledger.set_marks(of.name, seen.marks)

    # --- labels

    def _labelled(self, thread: Thread, asking: Asking) -> None:
        of, label = self._of, self._of.settings().intake.label
        key = f"label:{thread.number}"
        if label is None or thread.pull:
            return
        borne = intake.borne(thread, label)
        if borne is None:
            if of.ledger.is_seen(of.name, key):
                of.ledger.forget(of.name, key)  # put on again later, it counts again
            return
        if thread.state != "open" or of.ledger.is_seen(of.name, key):
            return
        who = of.tracker.labelled_by(thread.number, borne)
        if who is None:
            self._decline(thread.number, "", key, "the forge does not say who put the label on", of.clock())
            return
        self._start(Wish(thread.number, who.by, "", key, of.clock(), who.at), asking)

    # --- comments

    def _notes(self, notes: tuple[Note, ...], asking: Asking) -> None:
        of = self._of
        floor, command = of.ledger.floor(of.name) or 0.0, of.settings().intake.command
        new = [note for note in notes if note.comment.at > floor and not of.ledger.is_seen(of.name, f"note:{note.id}")]
        wordless = {note.id for note in new if intake.command_in(note.comment.text, command) is None}
        of.ledger.see(of.name, {f"note:{note.id}": note.comment.at for note in new if note.id in wordless})
        own = {pull.number for pull in of.own()}
        for note in new:
            if note.id in wordless:
                continue
            if note.pull and note.number not in own:  # its number may be an issue's too
                why = "it is on a pull request that is not the broker's"
                self._decline(note.number, note.comment.author, f"note:{note.id}", why, note.comment.at)
            else:
                self._commanded(note, asking)

    def _commanded(self, note: Note, asking: Asking) -> None:
        of, sender = self._of, note.comment.author
        words = intake.command_in(note.comment.text, of.settings().intake.command) or ""
        wish = Wish(note.number, sender, words, f"note:{note.id}", note.comment.at, note.comment.at)
        if not note.pull:
            self._start(wish, asking, note.comment)
        elif why := asking.why_not(sender, note.comment):
            self._decline(wish.number, sender, wish.seen, why, wish.at)
        else:
            comment = note.comment.model_copy(update={"text": words, "permitted": True})
            with of.ledger.together():
                of.ledger.see(of.name, {wish.seen: wish.at})
                of.ledger.ask(of.name, note.number, {note.id: comment})

    # --- a task

    def _start(self, wish: Wish, asking: Asking, comment: Comment | None = None) -> None:
        of = self._of
        try:
            if why := asking.why_not(wish.sender, comment):
                self._decline(wish.number, wish.sender, wish.seen, why, wish.at)
                return
            thread = of.tracker.thread(wish.number)
            if why := self._not_now(thread) or self._not_seen(wish, thread, asking):
                self._decline(wish.number, wish.sender, wish.seen, why, wish.at)
                return
            of.running()
            self._granted(wish, thread)
        except (AbsentError, ConflictError, ValueError) as error:  # one impossible issue does not stop the others
            self._decline(wish.number, wish.sender, wish.seen, str(error), wish.at)
        except ForgeError as error:
            if error.reason != Reason.LARGE:
                raise
            self._decline(wish.number, wish.sender, wish.seen, str(error), wish.at)

    def _not_now(self, thread: Thread) -> str:
        of = self._of
        now = of.clock()
        of.ledger.expire_tasks(now - DAYS * intake.DAY)
        today = of.ledger.started_since(of.name, now - intake.DAY)
        return intake.not_now(thread, of.ledger.open_task(of.name, thread.number), today, of.settings().intake)

    def _not_seen(self, wish: Wish, thread: Thread, asking: Asking) -> str:
        """A stranger's issue may say something else by now than what the sender read."""
        if intake.is_other(thread, wish.sender, wish.asked) and asking.why_not(thread.author):
            return "the issue was changed after it was asked for; ask for it again"
        return ""

    def _granted(self, wish: Wish, thread: Thread) -> None:
        of = self._of
        settings = of.settings()
        # By chance, not by count: a branch of an earlier state folder may still be there.
        task = f"i{wish.number}-{secrets.token_hex(3)}"
        request = GrantRequest(
            repository=of.name,
            base=settings.default_base,
            task=task,
            uses=1 + settings.follow.max_rounds,
            seconds=DAYS * 86_400,
            issue=wish.number,
        )
        grant = of.grant(request, f"forge:{wish.sender}")
        event = Event(
            number=0,
            at=of.clock(),
            repository=of.name,
            kind="intake",
            task=task,
            grant=grant,
            issue=wish.number,
            sender=wish.sender,
            title=line(thread.title, 300),
            text=intake.told(thread, wish.sender, wish.words),
            url=line(thread.url, 500),
        )
        # A grant that a kill left without an event is known to nobody; the wish comes again and gets another.
        with of.ledger.together():
            of.ledger.see(of.name, {wish.seen: wish.at})
            of.ledger.started(of.name, wish.number, task, wish.sender, of.clock())
            numbered = of.ledger.publish(event)
        of.audit.append("intake", repository=of.name, issue=wish.number, by=f"forge:{wish.sender}", task=task,
                        grant=grant.id, number=numbered.number)  # fmt: skip

    def _decline(self, number: int, sender: str, seen: str, why: str, at: float) -> None:
        self._declined[seen] = at
        self._recorder.note("intake-declined", issue=number, by=line(sender, 100), reason=line(why, 300))
