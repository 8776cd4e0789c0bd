"""Whose account it is: asked once in a while, nobody where the token may not read it; and what a forge turns down."""

from __future__ import annotations

import pytest

from broker.errors import ForgeError
from broker.forge.account import Account
from broker.forge.dressed import Complaints
from broker.forge.rest.door import Reply
from broker.forge.rest.problems import Reason


class Visit:
    """Answers GET /user."""

    def __init__(self, *answers: bytes | ForgeError) -> None:
        self.answers, self.asked = list(answers), 0

    def get(self, path: str, doing: str = "") -> Reply:
        assert path == "/user"
        self.asked += 1
        answer = self.answers.pop(0)
        if isinstance(answer, ForgeError):
            raise answer
        return Reply(200, {}, answer)


def test_it_is_asked_once_in_ten_minutes():
    now = [0.0]
    account, visit = Account("login", clock=lambda: now[0]), Visit(b'{"login": "Bot"}', b'{"login": "other"}')
    assert [account.name(visit), account.name(visit)] == ["bot", "bot"]
    assert visit.asked == 1
    now[0] = 601.0
    assert account.name(visit) == "other"


@pytest.mark.parametrize("body", [b"{}", b'{"login": null}', b'{"login": "a b"}', b'{"login": ["x"]}'])
def test_an_answer_without_a_login_is_nobody(body):
    assert Account("login").name(Visit(body)) is None


def test_a_token_that_may_not_read_it_is_nobody_and_a_forge_that_fails_is_an_error():
    assert Account("login").name(Visit(ForgeError("no", reason=Reason.SCOPE))) is None
    account = Account("login")
    visit = Visit(ForgeError("down", reason=Reason.UNREACHABLE), b'{"login": "bot"}')
    with pytest.raises(ForgeError):
        account.name(visit)
    assert account.name(visit) == "bot", "nothing was remembered of the failure"


@pytest.mark.parametrize("reason", [Reason.INVALID, Reason.ABSENT, Reason.SCOPE, Reason.BLOCKED])
def test_a_refusal_becomes_words(reason):
    told = Complaints()
    with told.of("reviewer 'x'"):
        raise ForgeError("no", reason=reason)
    assert told.all == ("reviewer 'x': no",)


@pytest.mark.parametrize(
    "error",
    [ForgeError("x", reason=one) for one in (Reason.BROKEN, Reason.UNREACHABLE, Reason.LIMIT, Reason.TOKEN)]
    + [ForgeError("x", reason=Reason.INVALID, uncertain=True)],
)
def test_a_forge_that_fails_stays_an_error(error):
    told = Complaints()
    with pytest.raises(ForgeError), told.of("labels"):
        raise error
    assert told.all == ()
