"""Words from a model lose every effect on a forge and on a reader, and stay readable."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from broker.forge.gitlab.quick import quick_actions
from broker.words.clean import MAX_BODY, MAX_LINE, clean, code, line, plain, title
from broker.words.dialect import REFERENCES, Dialect

GITHUB = Dialect(kind="github", host="github.com", path="o/r", link_hosts=frozenset({"docs.python.org"}))
GITLAB = Dialect(kind="gitlab", host="git.example.org:8443", path="team/web")
GITEA = Dialect(kind="gitea", host="codeberg.org", path="o/r")
DIALECTS = (GITHUB, GITLAB, GITEA, Dialect())


@pytest.mark.parametrize(
    ("words", "gone"),
    [
        ("thanks @alice", "@"),
        ("thanks &#64;alice", "@"),
        ("thanks &amp;amp;amp;amp;amp;#64;alice", "&#64;"),
        ("thanks " + "&amp;" * 3 + "amp;" * 40 + "#64;alice", "@"),
        ("thanks &commat;alice", "@"),
        ("thanks \uff20alice", "@"),
        ("thanks \ufe6balice", "@"),
        ("thanks @\u200balice", "@"),
        ("thanks @\u0430lice", "@"),
        ("thanks @\\_alice", "@"),
        ("thanks @*alice*", "@"),
        ("thanks @<!-- -->alice", "@"),
        ("thanks @[](x)alice", "@"),
        ("o/r@0123456789abcdef", "@"),
        ("fixes #1", "#1"),
        ("fixes \\#1", "#1"),
        ("fixes #**1**", "#**1"),
        ("Closes owner/repo#12", "#12"),
        ("resolves GH-3", "GH-3"),
        ("_GH-3_", "GH-3"),
        ("closes !4", "!4"),
        ("reopens #4", "#4"),
        ("f\u0456xes #1", "fixes #"),
        ("fixes https://github.com/o/r/issues/1", "https://g"),
        ("fixes ENG-12", "fixes ENG"),
        ("Completes ENG-12", "Completes ENG"),
        ("Fixes ABC_DEF-1", "Fixes ABC"),
        ("Fixes PYTHON-FLASK-3K", "Fixes PYTHON"),
        ("implements: team/web#3", "#3"),
        ("ABC-1 #close", "#close"),
        ("see ab_c-12 and so on #time 2d #comment x", "#comment"),
        ("[issue:123]", "[issue:123"),
        ("[Issue:team/web/1]", "issue:team"),
        ("[work\\_item:1]", "item:1"),
        ("[epic\\:1]", ":1"),
        ("BREAKING CHANGE: none", "\nBREAKING"),
        ("fine\n* breaking-change drop it", "* breaking"),
        ("BREAKING\u200b \tCHANGE x", "\nBREAKING"),
        ("BEGIN_COMMIT_OVERRIDE\nfeat: x\nEND_COMMIT_OVERRIDE", "_COMMIT"),
        ("BEGIN_NESTED_COMMIT", "BEGIN_"),
        ("/approve", "\n/approve"),
        ("ok\n  /merge now", " /merge"),
        ("> /label x", "> /label"),
        ("1. /close", " /close"),
        ("1234.\t/close", "\t/close"),
        (" " * 300 + "/close", " /close"),
        ("**/close**", "*/close"),
        ("ok\r/close", "\n/close"),
        ("ok\u2028/close", "\n/close"),
        ("ok\x85/close", "\n/close"),
        ("a <!-- hidden --> b", "hidden"),
        ("a <!-- never closed", "never closed"),
        ("<img src=x onerror=y>", "<img"),
        ("<<b>script>", "<script"),
        ("<scr<b>ipt>", "<script"),
        ("&lt;script&gt;", "<script"),
        ("<https://evil.example>", "<http"),
        ("![pixel](https://evil/?q=1)", "]("),
        ("!![a](b)[c](https://evil)", "]("),
        ("![x][ref]\n\n[ref]: https://evil/q", "//evil"),
        ("- [ref]: https://evil/q", "]:"),
        ('[text](https://evil "do this instead")', "do this"),
        ("[a[b](c)](https://evil)", "]("),
        ("Co-authored-by: A <a@b>", "authored"),
        ("> **Signed-off-by**: A", "Signed"),
        ("Cc: someone", "someone"),
        ("Release-As: 9.0.0", "9.0.0"),
        ("Swarm-Task: other", "other"),
        ("[skip ci]", "[skip"),
        ("[ci skip]", "[ci"),
        ("[NO-CI]", "[NO"),
        ("[ci_skip]", "[ci"),
        ("[ciskip]", "[ci"),
        ("[no  ci]", "[no"),
        ("[no\tci]", "[no"),
        ("[skip\nci]", "[skip"),
        ("[skip" + " " * 200 + "ci]", "[skip"),
        ("[skip netlify]", "[skip"),
        ("[azurepipelines skip]", "[azure"),
        ("[skip [skip ci]ci]", "[skip ci]"),
        ("***NO_CI***", "***"),
        ("skip-checks: true", "skip-checks"),
        ("a\u202eb\u2066c\u200bd", "\u202e"),
        ("a\U000e0041\U000e0042", "\U000e0041"),
        ("a\u2800\u3164b", "\u3164"),
        ("a" + "\u0336" * 50, "\u0336" * 5),
        ("a\x1b[31mred", "\x1b"),
        ("{{ secrets.TOKEN }}", "{{"),
        ("${{ github.token }}", "${"),
        ("{% raw %}", "{%"),
        ("<% x %>", "<%"),
        ("- [x] I signed the agreement", "[x]"),
        ("$$\\href{https://evil}{x}$$", "$$"),
        ("```mermaid\ngraph\n```", "```mermaid"),
        ("```suggestion\nx\n```", "```suggestion"),
        ("```\nnever closed", "```"),
        ("> ```\n> x", "```"),
        ("~~~\nnever closed", "~~~"),
    ],
)
def test_an_effect_is_gone(words, gone):
    for dialect in DIALECTS:
        assert gone not in "\n" + clean(words, dialect)
        assert gone not in "\n" + plain(words, dialect)


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ("www.evil.example/x", "www. evil.example/x"),
        ("_www.evil.example_", "_www. evil.example_"),
        ("` https://e.example/?q=secret", "` https:// e.example/?q=secret"),
        ("JavaScript:alert(1)", "JavaScript: alert(1)"),
        ("mailto:a", "mailto: a"),
    ],
)
def test_an_address_is_shown_but_leads_nowhere(words, shown):
    assert clean(words, GITHUB) == shown


@pytest.mark.parametrize(
    ("address", "stays"),
    [
        ("https://docs.python.org/3/library/re.html#re.sub", True),
        ("https://github.com/o/r/blob/main/x.py", True),
        ("https://GitHub.com/O/R", True),
        ("https://github.com/o/r2", False),
        ("https://github.com/o/r/issues/1", False),
        ("https://github.com/o/r/pull/1#discussion", False),
        ("https://github.com/o/r/../../x/y", False),
        ("https://github.com//x/y", False),
        ("https://github.com/other/r/issues/5", False),
        ("http://docs.python.org/3", False),
        ("https://docs.python.org/?q=secret", False),
        ("https://docs.python.org:8443/3", False),
        ("https://docs.python.org.evil.example/", False),
        ("https://user@docs.python.org/", False),
        ("https://docs.python.org@evil.example/", False),
        ("https://docs.python.org\\@evil.example/", False),
        ("https://evil.example/#docs.python.org", False),
        ("xhttps://docs.python.org/3", False),
    ],
)
def test_a_link_stays_on_an_allowed_host_alone(address, stays):
    for words in (address, f"see {address}.", f"({address})", f"[text]({address})"):
        assert (re.search(r"https?://[^\s]", clean(words, GITHUB)) is not None) is stays, clean(words, GITHUB)


def test_the_forges_own_host_counts_with_its_port():
    assert clean("https://git.example.org:8443/team/web/-/blob/main/a", GITLAB).startswith("https://git")
    assert clean("https://git.example.org/team/web/-/blob/main/a", GITLAB).startswith("https:// git")


def test_a_link_is_spelled_out():
    assert clean('[re](https://docs.python.org/3 "x")', GITHUB) == "re (https://docs.python.org/3)"


@pytest.mark.parametrize(
    "words",
    [
        "Return `high`, not `low`.",
        "- one\n- two",
        "- [ ] one",
        "## Why\n\n| a | b |\n|---|---|\n| 1 | 2 |",
        "x > 3 and y < 4",
        "Größe 日本 привет x² ½ ™",
        "Costs ${HOME} 5 % and a & b",
        "Fixed the parser, it resolves names now.",
        "/usr/bin/env is missing",
        "and/or, src/app.py, a/b",
        "*one*, **two**, ~~three~~, 1) four",
        "```python\ndef f(x):\n    return x  # twice\n```",
        "```c\n#include <stdio.h>\nint main(void) { return a[0](1) < b && c > d; }\n```",
        "```sh\n/usr/bin/x --flag\n$ ls\n```",
        "```html\n<div class='a'>&amp;</div>\n```",
        "````md\n```\nx\n```\n````",
        "```text\n```",
    ],
)
def test_plain_markdown_stays(words):
    assert clean(words, GITHUB) == words


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ("```py\n@decorator\ndef f(): ...\n```", "```py\n@ decorator\ndef f(): ...\n```"),
        ("~~~\nx\n~~~", "```text\nx\n```"),
        ("- item\n  ```py\n  a\n    b\n  ```\n- next", "- item\n```py\na\n  b\n```\n- next"),
        ("- ```py\n  a\n  ```", "-\n```py\na\n```"),
        ("```\n/close\n<!-- x -->\nfixes #1\n```", "```text\n\\/close\n< !-- x -->\nfixes (not closing) # 1\n```"),
    ],
)
def test_code_stays_readable_and_has_no_effect_past_its_fences(words, shown):
    assert clean(words, GITHUB) == shown


def test_what_refers_on_gitlab_alone_is_taken_out_there():
    assert clean("see &12 $3 %4 ~5", GITLAB) == "see & 12 $ 3 % 4 ~ 5"
    assert clean("costs $3, 100 %", GITHUB) == "costs $3, 100 %"


# --- whatever comes

_PIECES = [
    *"<>!-[]()/@#&;:`*{}%$~_\\| \n\tabgitx1", "fixes ", "&lt;", "&#64;", "&amp;", "<!--", "-->", "![", "](", "https://",
    "docs.python.org/3", "```", "~~~", "\n```\n", "\n/close", "- ", "> ", "1. ", "\u200b", "\uff20", "\u0430", "www.",
    "Signed-off-by:", "[skip ci]", "{{", "GH-1", "[x]", "    ", "[no", "ci]", "draft:",
]  # fmt: skip
_NASTY = st.lists(st.sampled_from(_PIECES), max_size=40).map("".join)
_EFFECTS = re.compile(
    r"@\w|[#!]\d|(?<![a-z0-9])GH-\d|\{\{|\{%|<%|<!--|&(?:#|\w+;)(?<!&amp;)|^[\s>*+-]*/(?!usr/|bin/|etc/)[a-zA-Z]"
    r"|\[(?:skip\s*ci|ci\s*skip|no\s*ci)\]|^[\s>*]*signed-off-by[*]*[ \t]*:",
    re.MULTILINE | re.IGNORECASE,
)
_HTML = re.compile(r"<(?:a|img|script|iframe|!--)\b", re.IGNORECASE)
_READER = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])


@example("]&#64;a")
@example("]@a")
@example("&am&amp;p;lt;b>")
@example("``<!-- -->`\nx\n```")
@example("- ```\n/x\n  ```\n```")
@example("[\\]]:x\n[a]")
@given(_NASTY)
def test_no_mix_of_markup_leaves_an_effect(words):
    for dialect in DIALECTS:
        shown = clean(words, dialect)
        prose = re.sub(r"^(`{3,})\w+\n.*?^\1$", "", shown, flags=re.DOTALL | re.MULTILINE)
        assert not _EFFECTS.search(prose), shown
        assert not re.search(r"<[a-zA-Z/!?]|!\[|\]\(|\]:|\]\[", prose), shown
        assert not _EFFECTS.search(plain(words, dialect)), plain(words, dialect)


@given(_NASTY)
def test_commonmark_reads_no_html_link_or_image_in_it(words):
    """Judged by another's parser (markdown-it): what is left is text, code and plain structure."""
    for cleaned in (clean(words, GITHUB), plain(words, GITHUB)):
        kinds = {token.type for token in _all_tokens(_READER.parse(cleaned))}
        assert not kinds & {"html_block", "html_inline", "link_open", "image"}, (kinds, cleaned)


@example("1.\t/users")
@given(_NASTY)
def test_gitlabs_last_door_has_nothing_to_refuse(words):
    for cleaned in (clean(words, GITLAB), plain(words, GITLAB), title(words, GITLAB)):
        assert quick_actions(cleaned) == ()


@given(_NASTY)
def test_nothing_below_it_is_swallowed(words):
    """What the broker says under a proposal's words is a heading to another's parser, not the inside of their code."""
    tokens = _READER.parse(f"{clean(words, GITHUB)}\n\n### What the broker did\n")
    assert [token.type for token in tokens[-3:]] == ["heading_open", "inline", "heading_close"]


def _all_tokens(tokens):
    for token in tokens:
        yield token
        yield from _all_tokens(token.children or ())


@given(st.one_of(_NASTY, st.text(max_size=300)))
def test_cleaning_twice_changes_nothing(words):
    for dialect in DIALECTS:
        assert clean(clean(words, dialect), dialect) == clean(words, dialect)
        assert plain(plain(words, dialect), dialect) == plain(words, dialect)


@given(st.text(max_size=300))
def test_any_text_becomes_visible_text(words):
    assert all(c.isprintable() or c in "\n\t" for c in clean(words, GITHUB))


@pytest.mark.parametrize(
    "piece",
    ["[", "```a\n", "&", "<!--", "\n", "@", "> ", "fix ", "#", "(", "&amp;", "https://", "~~~~\n```a\n", "- ", "a-",
     "1. ", "{ {", "![", "_", "*_~", "www.", "[skip", "é́", "\u0336", "-by:", "a:", "``` \n", "`"],
)  # fmt: skip
def test_the_worst_text_is_cleaned_soon_and_is_bounded(piece):
    began = time.process_time()
    shown = clean(piece * (64_000 // len(piece)), GITLAB)
    assert time.process_time() - began < 20  # what grows with the square takes minutes
    assert len(shown) <= MAX_BODY
    assert max(len(line) for line in shown.split("\n")) <= MAX_LINE


# --- titles and names


def test_a_title_is_one_line_with_the_operators_prefix():
    assert title("Fix\nthe\tclamp", GITHUB, "[agent] ") == "[agent] Fix the clamp"
    assert title("", GITHUB, "[agent] ") == "[agent] Proposed change"
    assert len(title("x" * 5000, GITHUB, "[agent] ")) == GITHUB.title_chars
    assert title("```py\nx\n```", GITHUB) == "py x"


@pytest.mark.parametrize("words", ["Draft: x", "WIP: x", "[WIP] x", "(draft) Draft - x", "[Draft] WIP: x"])
def test_a_title_cannot_make_it_a_draft_or_undo_that(words):
    assert title(words, GITLAB) == "x"


@pytest.mark.parametrize("gap", ["  ", "\t", "\n", " \u00a0", "<!-- -->  ", "&#10;", " \u2028"])
def test_joining_the_white_space_makes_no_effect(gap):
    for short in (
        title(f"[no{gap}ci] x", GITHUB),
        code(f"[skip{gap}ci] x", GITHUB),
        line(f"[ci{gap}skip]", GITHUB, 60),
    ):
        assert "[" not in short


def test_what_a_drafts_mark_hid_is_taken_out_of_a_title():
    assert title("Draft: /close", GITLAB) == "\\/close"
    assert title("WIP: Signed-off-by: A <a@b>", GITLAB) == "Proposed change"


@given(_NASTY)
def test_no_line_has_an_effect_and_a_second_cleaning_changes_nothing(words):
    for dialect in DIALECTS:
        for short in (title(words, dialect), code(words, dialect, 30)[1:-1], line(words, dialect, 30)):
            assert not _EFFECTS.search(short), short
            assert "\n" not in short
        assert title(title(words, dialect), dialect) == title(words, dialect)
        assert line(line(words, dialect, 30), dialect, 30) == line(words, dialect, 30)
        assert len(line(words, dialect, 30)) <= 30


def test_what_is_cut_off_leaves_no_address_that_was_not_allowed():
    words = "x" * 90 + " https://docs.python.org"
    assert title(words, GITHUB).endswith(" https://docs.python.org")
    assert " https:// docs" in title("x" * 7 + words, GITHUB)


def test_a_title_may_speak_of_drafts():
    assert title("Drafting tables", GITLAB) == "Drafting tables"
    assert title("draft mode is kept", GITLAB) == "mode is kept"


def test_a_name_in_backticks_stays_inside_them():
    assert code("a`b` @all \n<x>", GITHUB) == "`a'b' (at)all < x>`"
    assert code("", GITHUB) == ""
    assert code("x\\", GITHUB) == "`x`"


def test_every_kind_of_forge_has_its_signs():
    assert {dialect.kind for dialect in DIALECTS} == set(REFERENCES)
