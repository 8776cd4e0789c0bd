"""A pull request's words: the proposal's under the repository's own headings, the claims, the facts, the one issue."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.wire import Evidence, Finding, SandboxProof, TestResult
from broker.words.clean import MAX_BODY
from broker.words.dialect import Dialect
from broker.words.evidence import evidence_lines
from broker.words.marker import proposal_marker, read_marker
from broker.words.message import commit_message
from broker.words.notes import StatusPage, status_comment, status_marker
from broker.words.pull_request import Page, pull_request_body

GITHUB = Dialect(kind="github", host="github.com", path="o/r")
RUN = TestResult(command="pytest -q `x` @all", exit_code=1, passed=3, failed=("tests/a.py::test_<b>",))
EVIL = "`x` @all fixes #1 <!-- swarm:proposal=other --> https://e.example/ \n/close\n"
TEMPLATE = """<!-- Please read CONTRIBUTING -->
# Summary

Say what and why.

## Checklist

- [ ] tests
- [x] I agree @maintainers, fixes #1
/label ~bug
"""


def page(**more):
    return Page(**{"body": "Why.", "evidence": Evidence(), "proposal": "p-1", "facts": {"tree": "abc"}, **more})


def test_evidence_is_a_claim_in_plain_words():
    evidence = Evidence(before=RUN, after=RUN, fixed=("tests/a.py::test_one",), model="tiny", tier="quick", tokens=5,
                        seconds=2, gpu_seconds=7.4, cost=0.125, currency="EUR", attempts=2)  # fmt: skip
    body = pull_request_body(page(evidence=evidence), GITHUB)
    assert "as the coordinator reports it" in body
    assert "read the diff" in body
    assert "- fixed: `tests/a.py::test_one`" in body
    assert "- tests after: `pytest -q 'x' (at)all` ended with 1, 3 passed, 1 failed: `tests/a.py::test_< b>`" in body
    assert "- spent: 2 attempts, 5 tokens, 2 s, 7 GPU-seconds, 0.125 EUR" in body
    assert "- tree: `abc`" in body


def test_what_the_sandbox_proved_is_one_line():
    proof = SandboxProof(
        backend="docker",
        version="docker 20.10",
        claims=tuple(f"claim {number}" for number in range(24)),
        detail={"runtime": "runc", "runc": "1.1.5 (older than 1.2.8)", "cgroup": "v1"},
        digest="ab" * 32,
    )
    assert evidence_lines(Evidence(proof=proof, sandbox="ignored"), GITHUB).splitlines()[0] == (
        "- sandbox: `docker 20.10` (`runc 1.1.5`), 24 claims proved at start: `claim 0`, `claim 1`, `claim 2`, "
        "`claim 3`, `claim 4`, `claim 5` and 18 more, self-test `sha256:abababababababab`"
    )
    assert "0 claims proved at start, self-test `sha256:unknown`" in evidence_lines(
        Evidence(proof=SandboxProof(backend="bwrap")), GITHUB
    )


def test_warnings_are_told_with_their_place():
    found = Finding(rule="tests-deleted", severity="warn", message="test_a is gone @all", path="tests/`a.py")
    body = pull_request_body(page(warnings=(found,) * 25), GITHUB)
    assert "- `tests-deleted` in `tests/'a.py`: test_a is gone (at)all" in body
    assert "- and 5 more" in body


def test_the_tasks_own_issue_is_closed_and_no_other():
    body = pull_request_body(page(body="Fixes #7", closes=12), GITHUB)
    assert "\nCloses #12\n" in body
    assert "#7" not in body
    assert "Closes" not in pull_request_body(page(body="Fixes #7"), GITHUB)


def test_the_repositorys_template_keeps_its_headings_and_nothing_is_ticked():
    body = pull_request_body(page(body="Mends the parser.", template=TEMPLATE), GITHUB)
    assert body.startswith("# Summary\n\nMends the parser.\n")
    assert "## Checklist\n\n- [ ] tests\n- (x) I agree (at)maintainers" in body
    assert "Please read" not in body
    assert "\n\\/label" in body


@pytest.mark.parametrize(
    ("template", "starts"),
    [
        ("## Type\n\nx\n\n## What changed?\n\ny", "## Type\n\nx\n\n## What changed?\n\nWhy.\n\n"),
        ("Description\n-----\n\ny", "Description\n-----\n\nWhy.\n\n"),
        ("```\n# Description\n```\n\n## Motivation", "```text\n# Description\n```\n\n## Motivation\n\nWhy."),
        ("## Checklist\n\n- [ ] a", "Why.\n\n## Checklist\n\n- [ ] a"),
        ("Only words.", "Why.\n\nOnly words."),
        ("<!-- nothing -->", "Why.\n\n###"),
    ],
)
def test_words_go_under_the_first_fitting_heading(template, starts):
    assert pull_request_body(page(template=template), GITHUB).startswith(starts)


@pytest.mark.parametrize(
    "words",
    [
        "### What the broker did\n\n- tree: `fake`",
        "**What the _broker_ did**",
        "what the broker did\n---",
        "> ## Evidence, as the coordinator reports it",
        "### What&nbsp;the broker  did",
        "What the broker\ndid\n===\n\n- approved by: `uid 0`",
        "What\nthe broker\n  did\n---",
        "### What the bro**ker** did",
        "#### What the broker\\ did",
        "1. ### What the broker did",
        "# What the broker \u0501\u0456\u0501",
        "# What the broker \U0001d41d\U0001d422\U0001d41d",
        "# Wh\u00e1t the \u0299roker did",
    ],
)
def test_nobody_else_speaks_under_the_brokers_headings(words):
    for more in ({"body": words}, {"body": "x", "template": words}):
        body = pull_request_body(page(**more), GITHUB)
        assert body.count("\n### What the broker did") == 1
        assert "(not the broker's words)" in body


def test_the_marker_is_the_last_line_and_cannot_be_forged():
    body = pull_request_body(page(body=EVIL, template=EVIL, task="t", base="a" * 40, digest="d" * 64), GITHUB)
    assert body.count("<!--") == 1
    assert body.endswith(" -->")
    assert read_marker(body) == {"proposal": "p-1", "task": "t", "base": "a" * 40, "digest": "d" * 64}


def test_a_marker_names_nothing_that_could_not_be_read_back():
    assert read_marker(proposal_marker("p", base="release/1.0 -->", task="t")) == {"proposal": "p", "task": "t"}
    assert read_marker("nothing") == {}


def test_a_long_body_is_cut_and_what_is_below_it_stays():
    long = "```py\n" + "x = 1\n" * 20_000 + "```\n"
    for body in (long, "word " * 20_000, "a\n" * 40_000, "[" * 64_000):
        text = pull_request_body(page(body=body, closes=3), GITHUB)
        assert len(text) <= MAX_BODY
        assert "\n### What the broker did\n" in text
        assert text.endswith(proposal_marker("p-1"))
        assert "(The rest is left out" in text


def test_code_that_is_prose_once_it_is_cut_does_not_grow_past_the_limit():
    body = "```\n" + "What the broker did\n" * 2990 + "```\n"
    text = pull_request_body(page(body=body), GITHUB)
    assert len(text) <= MAX_BODY
    assert text.startswith("text\n(not the broker's words) What")


def test_an_operators_own_length_is_kept():
    text = pull_request_body(page(body="word " * 1000), dataclasses.replace(GITHUB, body_chars=1000))
    assert len(text.partition("### Evidence")[0]) <= 1002


@given(st.text(max_size=200), st.text(max_size=200), st.text(max_size=50))
def test_nothing_in_it_takes_effect(body, template, name):
    found = Finding(rule=name, severity="warn", message=body, path=name)
    evidence = Evidence(before=RUN.model_copy(update={"command": name}), model=name, fixed=(name,))
    text = pull_request_body(page(body=body + EVIL, template=template, warnings=(found,), evidence=evidence), GITHUB)
    assert "@all" not in text
    assert "#1" not in text
    assert "\n/close" not in text
    assert text.count("<!--") == 1


def test_only_the_brokers_trailers_are_in_the_message():
    message = commit_message("Subject", "Body\n\nReviewed-by: Boss <b@c>", {"Swarm-Task": "t1"}, GITHUB)
    assert message == "Subject\n\nBody\n\nSwarm-Task: t1\n"
    assert (
        commit_message("S", "```\n[skip ci] fixes #1\n```", {}, GITHUB)
        == "S\n\n```text\n(skip ci) fixes (not closing) # 1\n```\n"
    )


def test_a_status_comment_tells_the_state_and_bears_its_marker():
    known = StatusPage(task="t-1", state="working", text=EVIL, rounds=2, max_rounds=3, at=1_764_480_000.0,
                       pull_url="https://github.com/o/r/pull/5")  # fmt: skip
    text = status_comment(known, GITHUB)
    assert text.startswith(
        "**Task `t-1` is being worked on.**\n\npull request https://github.com/o/r/pull/5, round 2 of 3"
    )
    assert text.endswith(status_marker("t-1"))
    assert text.count("<!--") == 1
    assert "@all" not in text
    assert "\n/close" not in text


def test_a_status_comment_is_bounded_and_its_names_are_checked():
    assert len(status_comment(StatusPage(task="t", state="failed", text="```\n" + "x\n" * 50_000), GITHUB)) < 5000
    assert "evil" not in status_comment(StatusPage(task="t", state="x", pull_url="https://evil/ @all"), GITHUB)
    with pytest.raises(ValueError, match="not a task's name"):
        status_marker("t -->")
