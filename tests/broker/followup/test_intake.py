"""Who and what may start a task: decisions on words that strangers choose."""

from __future__ import annotations

import pytest

from broker.config.repository import Intake
from broker.followup import intake
from broker.wire import Comment, Thread


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("/swarm", ""),
        ("/swarm ", ""),
        ("/swarm do it well", "do it well"),
        ("/swarm\nkeep the \u202eapi\u202c\x1b[31m", "keep the api[31m"),
        ("/swarm\r\nfirst\r\nsecond", "first\nsecond"),
    ],
)
def test_a_comment_that_begins_with_the_command_is_one(text: str, rest: str) -> None:
    assert intake.command_in(text, "/swarm") == rest


@pytest.mark.parametrize(
    "text",
    [
        "> /swarm", "```\n/swarm\n```", "    /swarm", " /swarm", "\n/swarm", "please /swarm", "- /swarm", "/swarmx",
        "/swarm-all", "/SWARM", "/swarm\u200b", "\u200b/swarm", "\ufeff/swarm", "<!-- -->/swarm", "`/swarm`", "/swarm/",
        "", "alice wrote:\n> /swarm\n\nno", "/swarm\x00now", "/swarm\u2028now",
    ],
)  # fmt: skip
def test_a_quote_a_code_block_and_whatever_else_holds_the_command_is_none(text: str) -> None:
    assert intake.command_in(text, "/swarm") is None


def test_without_a_configured_command_nothing_is_one() -> None:
    assert intake.command_in("/swarm", None) is None
    assert intake.command_in("", None) is None


@pytest.mark.parametrize("login", ["", "a b", "a\nb", "a/b", "-a", "a\u202eb", "x" * 101, "a..%2f", "a@b", "ä"])
def test_what_cannot_be_a_login_starts_nothing(login: str) -> None:
    assert intake.no_person(login, "swarm-bot") == "the login is none"


def test_bots_and_the_broker_itself_never_count() -> None:
    said = Comment(author="x", permitted=False, at=0, text="/swarm")
    assert intake.no_person("Swarm-Bot", "swarm-bot")
    assert intake.no_person("renovate[bot]", None)
    assert intake.no_person("helper", None, said.model_copy(update={"bot": True}))
    # the account is unknown here: its own hidden line still ends the loop
    assert intake.no_person("helper", None, said.model_copy(update={"text": "/swarm\n<!-- swarm:status=t1 -->"}))
    assert intake.no_person("alice", "swarm-bot", said) == ""


@pytest.mark.parametrize(
    ("held", "needed", "enough"),
    [
        ("write", "write", True), ("admin", "triage", True), ("triage", "write", False), ("read", "triage", False),
        ("none", "triage", False), ("maintain", "admin", False),
    ],
)  # fmt: skip
def test_a_permission_is_measured(held: str, needed: str, enough: bool) -> None:
    assert intake.may(held, needed) is enough


def test_what_speaks_against_a_start_is_said() -> None:
    thread = Thread(number=1, title="t", text="x", author="a", state="open")
    settings = Intake(label="agent", max_per_day=2)
    assert intake.not_now(thread, None, 1, settings) == ""
    assert "at it already" in intake.not_now(thread, "i1-aa", 0, settings)
    assert "in a day" in intake.not_now(thread, None, 2, settings)
    assert "closed" in intake.not_now(thread.model_copy(update={"state": "closed"}), None, 0, settings)
    assert "pull request" in intake.not_now(thread.model_copy(update={"pull": True}), None, 0, settings)


def test_a_huge_issue_is_cut_and_what_the_sender_said_stays() -> None:
    thread = Thread(number=1, title="t", text="x" * 1_000_000, author="a", state="open")
    text = intake.told(thread, "alice", "only the parser")
    assert len(text) <= intake.MAX_TEXT
    assert text.endswith("alice adds:\nonly the parser")
