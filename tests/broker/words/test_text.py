"""Words from a model lose every effect on a forge and on a reader."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from broker.wire import Evidence, SandboxProof, TestResult
from broker.words.text import MAX_BODY, MAX_TITLE, clean, commit_message, pull_request_body, title


@pytest.mark.parametrize(
    ("words", "gone"),
    [
        ("thanks @alice", "@"),
        ("thanks &#64;alice", "@"),
        ("thanks &amp;amp;amp;amp;amp;#64;alice", "&#64;"),
        ("thanks &commat;alice", "@"),
        ("thanks \uff20alice", "@"),
        ("thanks @\u200balice", "@"),
        ("fixes #1", "#1"),
        ("Closes owner/repo#12", "#12"),
        ("resolves GH-3", "GH-3"),
        ("closes !4", "!4"),
        ("fixes https://github.com/o/r/issues/1", "https://g"),
        ("/approve", "\n/approve"),
        ("ok\n  /merge now", " /merge"),
        ("> /label x", "> /label"),
        ("a <!-- hidden --> b", "hidden"),
        ("a <!-- never closed", "never closed"),
        ("<img src=x onerror=y>", "<img"),
        ("<<b>script>", "<script"),
        ("<scr<b>ipt>", "<script"),
        ("&lt;script&gt;", "<script"),
        ("![pixel](https://evil/?q=1)", "]("),
        ("!![a](b)[c](https://evil)", "]("),
        ("![x][ref]\n\n[ref]: https://evil/q", "evil"),
        ('[text](https://evil "do this instead")', "do this"),
        ("[a[b](c)](https://evil)", "]("),
        ("Co-authored-by: A <a@b>", "authored"),
        ("> **Signed-off-by**: A", "Signed"),
        ("Cc: someone", "someone"),
        ("[skip ci]", "[skip"),
        ("[ci skip]", "[ci"),
        ("[skip [skip ci]ci]", "[skip ci]"),
        ("***NO_CI***", "***"),
        ("skip-checks: true", "skip-checks"),
        ("a\u202eb\u2066c\u200bd", "\u202e"),
        ("a\U000e0041\U000e0042", "\U000e0041"),
        ("a\x1b[31mred", "\x1b"),
        ("{{ secrets.TOKEN }}", "{{"),
        ("${{ github.token }}", "${"),
        ("<% x %>", "<%"),
    ],
)
def test_an_effect_is_gone(words, gone):
    assert gone not in "\n" + clean(words)


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ("www.evil.example/x", "www. evil.example/x"),
        ("` https://e.example/?q=secret", "` https:// e.example/?q=secret"),
        ("JavaScript:alert(1)", "JavaScript: alert(1)"),
        ("mailto:a", "mailto: a"),
    ],
)
def test_an_address_is_shown_but_leads_nowhere(words, shown):
    assert clean(words) == shown


@pytest.mark.parametrize(
    "words", ["Return `high`, not `low`.", "- one\n- two", "## Why\n\n| a | b |", "x > 3 and y < 4", "Größe 日本"]
)
def test_plain_markdown_stays(words):
    assert clean(words) == words


_PIECES = [*"<>!-[]()/@#&;:`*{}% \nabgit1", "fixes", "&lt;", "&#64;", "<!--", "-->", "![", "](", "http://"]
_NASTY = st.lists(st.sampled_from(_PIECES), max_size=40).map("".join)
_EFFECTS = re.compile(r"@\w|<[a-zA-Z/!?]|!\[|\]\(|[#!]\d|\{\{|(?m:^[\s>*+-]*/[a-zA-Z])|&(?!amp;)(?:#|\w+;)|://\S")


@example("]&#64;a")
@example("]@a")
@settings(deadline=None)
@given(_NASTY)
def test_no_mix_of_markup_leaves_an_effect(words):
    assert not _EFFECTS.search(clean(words)), clean(words)


@settings(deadline=None)
@given(st.text(max_size=300))
def test_any_text_becomes_visible_text(words):
    assert all(c.isprintable() or c in "\n\t" for c in clean(words))


def test_a_title_is_one_line_with_the_operators_prefix():
    assert title("Fix\nthe\tclamp", "[agent] ") == "[agent] Fix the clamp"
    assert title("", "[agent] ") == "[agent] Proposed change"
    assert len(title("x" * 5000, "[agent] ")) == MAX_TITLE


def test_a_body_is_bounded():
    assert len(clean("word " * 50_000)) <= MAX_BODY


def test_only_the_brokers_trailers_are_in_the_message():
    message = commit_message("Subject", "Body\n\nReviewed-by: Boss <b@c>", {"Swarm-Task": "t1"})
    assert message == "Subject\n\nBody\n\nSwarm-Task: t1\n"


def test_evidence_is_a_claim_in_plain_words():
    run = TestResult(command="pytest -q `x` @all", exit_code=1, passed=3, failed=("tests/a.py::test_<b>",))
    evidence = Evidence(before=run, after=run, fixed=("tests/a.py::test_one",), model="tiny", tokens=5, seconds=2)
    body = pull_request_body("Why.", evidence, {"tree": "abc"})
    assert "as the coordinator reports it" in body
    assert "read the diff" in body
    assert "`tests/a.py::test_one`" in body
    assert "`pytest -q 'x' (at)all` ended with 1, 3 passed, 1 failed" in body
    assert body.endswith("- tree: `abc`")


def _shown(proof: SandboxProof) -> str:
    body = pull_request_body("Why.", Evidence(proof=proof, sandbox="ignored"), {})
    return next(line for line in body.splitlines() if line.startswith("- sandbox: "))


def test_what_the_sandbox_proved_is_one_line():
    proof = SandboxProof(
        backend="docker",
        version="docker 20.10",
        claims=tuple(f"claim {number}" for number in range(24)),
        detail={"runtime": "runc", "runc": "1.1.5 (older than 1.2.8)", "cgroup": "v1"},
        digest="ab" * 32,
    )
    assert _shown(proof) == (
        "- sandbox: `docker 20.10` (`runc 1.1.5`), 24 claims proved at start: `claim 0`, `claim 1`, `claim 2`, "
        "`claim 3`, `claim 4`, `claim 5` and 18 more, self-test `sha256:abababababababab`"
    )
    assert (
        _shown(SandboxProof(backend="bwrap"))
        == "- sandbox: `bwrap`, 0 claims proved at start, self-test `sha256:unknown`"
    )


def test_nothing_in_a_proof_takes_effect():
    evil = "`x` @all fixes #1 <!-- --> https://e.example/ \n/close"
    proof = SandboxProof(backend="docker", version=evil[:90], claims=(evil, evil), detail={"runtime": evil})
    shown = _shown(proof)
    assert not _EFFECTS.search(shown), shown
    assert "https:// e.example" in shown
