"""No text leaves for GitLab in which a line is a command."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from broker.config.repository import Repository
from broker.errors import ForgeError
from broker.forge.base import Dressing
from broker.forge.gitlab.quick import quick_actions, without_actions
from broker.words.clean import clean
from broker.words.dialect import dialect_of
from tests.forges.gitlab_stand_in import _QUICK
from tests.forges.remote import Make

ACTIONS = [
    "/merge",
    "text\n/merge",
    "text\n/approve \nmore",
    "/label ~bug ~security",
    "/MERGE",
    "\n\n/close\n",
    "```\ncode\n```\n/merge",
    "> quote\n/assign @ann",
    "text\r/merge",
    "text\r\n/merge\r\n",
    "text\x0b/merge",
    "text\x0c/merge",
    "text\x85/merge",
    "text\u2028/merge",
    "text\u2029/merge",
    "  /merge",
    "\t/merge",
    "> /merge",
    "- /merge",
    "* /merge",
    "1. /merge",
    "\u200b/merge",
    "\ufeff/merge",
    "/target_branch main",
    "/react :thumbsup:",
    "/run_pipeline",
    "/shrug",
    "/x: y",
]
HARMLESS = [
    "",
    "a/b",
    "see /merge here",
    "\\/merge",
    "/usr/bin/env python",
    "/etc/passwd is a path",
    "// a comment",
    "/* another */",
    "/ merge",
    "/1",
    "</details>",
    "1/x",
    "https://example.org/merge",
]


@pytest.mark.parametrize("text", ACTIONS)
def test_a_line_that_gitlab_could_execute_is_refused(text):
    with pytest.raises(ForgeError, match="nothing was sent"):
        without_actions(text, "the note")


@pytest.mark.parametrize("text", HARMLESS)
def test_a_line_that_is_no_command_passes(text):
    assert without_actions(text, "the note") == text


@given(st.text(alphabet=st.sampled_from("/ \n\r\t>-*`~abMmergE\u2028\x85\u200b"), max_size=40))
@example("/merge")
def test_whatever_the_stand_in_would_execute_is_refused(text):
    executed = _QUICK.search(text.replace("\r\n", "\n").replace("\r", "\n"))
    assert not executed or quick_actions(text)


@given(st.text(max_size=200) | st.lists(st.sampled_from(ACTIONS), max_size=4).map("\n".join))
def test_cleaned_words_pass_the_last_door(text):
    dialect = dialect_of(
        Repository.model_validate(
            {"forge": "gitlab", "url": "https://git.example.org/team/web", "credential": {"token": {"file": "/x"}}}
        )
    )
    cleaned = clean(text, dialect)
    assert without_actions(cleaned, "the description") == cleaned


@pytest.mark.parametrize("text", ["/merge", "done\n/merge\n", "- /approve"])
def test_neither_description_nor_note_with_a_command_reaches_the_forge(make_remote: Make, text):
    here = make_remote("gitlab")
    head = here.project.bare.commit({"a.txt": "2\n"}, here.project.base, branch="swarm/t1")
    order = here.order(head)
    here.forge.open(order)
    for send in (
        lambda: here.forge.open(order.model_copy(update={"body": text, "branch": "swarm/t2"})),
        lambda: here.forge.revise(1, "T", text),
        lambda: here.tracker.note(1, "m", text, pull=True),
        lambda: here.tracker.note(1, "m", text),
    ):
        before = len(here.project.calls)
        with pytest.raises(ForgeError, match="would execute"):
            send()
        assert len(here.project.calls) == before
    assert here.project.actions == []
    assert here.pull(1)["state"] == "opened"


def test_the_stand_in_really_executes_what_it_is_sent(make_remote: Make):
    """Else the test above could not fail."""
    here = make_remote("gitlab")
    head = here.project.bare.commit({"a.txt": "2\n"}, here.project.base, branch="swarm/t1")
    here.forge.open(here.order(head))
    rest = here.project.obey("before\n/merge\n/label ~bug\nafter", here.pull(1))
    assert (here.pull(1)["state"], rest) == ("merged", "before\nafter")
    assert here.project.actions == [("merge", ""), ("label", "~bug")]


def test_a_title_becomes_one_line_and_no_command(make_remote: Make):
    here = make_remote("gitlab")
    head = here.project.bare.commit({"a.txt": "2\n"}, here.project.base, branch="swarm/t1")
    here.forge.open(here.order(head).model_copy(update={"title": "a\n/merge\r\nb"}))
    assert here.pull(1)["title"] == "Draft: a /merge b"


def test_dressing_names_no_label_that_is_not_there(make_remote: Make):
    """GitLab makes a label that it does not know."""
    here = make_remote("gitlab")
    head = here.project.bare.commit({"a.txt": "2\n"}, here.project.base, branch="swarm/t1")
    here.forge.open(here.order(head))
    known = list(here.project.labels)
    told = here.forge.dress(1, Dressing(labels=("agen", "agent", "AGENT")))
    assert here.project.labels == known
    assert here.pull(1)["labels"] == ["agent"]
    assert len(told) == 2
