"""One look's questions about people: what each may do, asked of the forge now."""

from __future__ import annotations

from dataclasses import dataclass, field

from broker.followup import intake
from broker.followup.parts import Followed
from broker.forge.base import Permission
from broker.wire import Comment

MAX_ASKED = 50  # logins that one look asks for; whoever is beyond is asked at the next


class LaterError(Exception):
    """The rest of this look has to wait; what was done stays done, and the marks stay where they are."""


@dataclass
class Asking:
    """Each login once in a look, and no more than MAX_ASKED of them."""

    followed: Followed
    me: str | None
    answers: dict[str, Permission] = field(default_factory=dict)

    def why_not(self, login: str, comment: Comment | None = None) -> str:
        """Why somebody's word does not count; empty if it does. Raises ForgeError, and LaterError for too many."""
        if why := intake.no_person(login, self.me, comment):
            return why
        needed = self.followed.settings().intake.permission
        held = self._permission(login)
        return "" if intake.may(held, needed) else f"the forge gives {held}, and {needed} is needed"

    def _permission(self, login: str) -> Permission:
        known = self.answers.get(login)
        if known is None:
            if len(self.answers) >= MAX_ASKED:
                raise LaterError
            known = self.answers[login] = self.followed.tracker.permission(login)
        return known
