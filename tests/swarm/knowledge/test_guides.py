"""Which words of a repository reach an agent, and that nothing hidden does."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarm.knowledge.cleaning import line, visible
from swarm.knowledge.guides import FILES, HEAD, READ, applies, fewer, imports, places, told
from swarm.known import GUIDE, GUIDES

TREE = {
    "AGENTS.md", "CLAUDE.md", "CONTRIBUTING.md", "README.md", ".cursorrules", ".cursor/rules/a.mdc",
    ".cursor/rules/b.png",
    ".github/copilot-instructions.md", "web/AGENTS.md", "web/app/AGENTS.md", "web/app/main.ts", "api/AGENTS.md",
    "docs/x.md",
}  # fmt: skip


def test_top_is_read_first_and_the_nearest_last() -> None:
    found = places(TREE, ["web/app/main.ts"])
    assert found[0] == "AGENTS.md"
    assert found[-2:] == ("web/AGENTS.md", "web/app/AGENTS.md")
    assert "api/AGENTS.md" not in found
    assert {".cursor/rules/a.mdc", ".github/copilot-instructions.md", "CONTRIBUTING.md"} <= set(found)
    assert not {"README.md", ".cursor/rules/b.png"} & set(found)


def test_chosen_names_are_the_only_ones_and_may_be_others() -> None:
    assert places(TREE, ["api/a.py"], ["AGENTS.md"]) == ("AGENTS.md", "api/AGENTS.md")
    assert places(TREE, [], ["docs/x.md"]) == ("docs/x.md",)
    assert places(TREE, [], []) == ()


@pytest.mark.parametrize("path", ["../../etc", "/etc/passwd", "a/../../b", "." * 5000, "a/" * 5000])
def test_path_that_leads_out_adds_no_guide(path: str) -> None:
    assert set(places(TREE, [path])) == set(places(TREE, []))


def test_number_of_guides_is_bounded() -> None:
    tree = [f".cursor/rules/{n}.md" for n in range(1000)]
    assert len(places(tree, [])) == READ
    assert len(fewer(tree)) == FILES // 2
    assert len(places([f"{'a/' * depth}AGENTS.md" for depth in range(9)], ["a/" * 9])) == 9
    assert len(fewer([f"{n}/AGENTS.md" for n in range(100)])) == FILES


def test_rules_push_out_neither_the_top_nor_the_nearest() -> None:
    rules = [f".cursor/rules/{n:02}.md" for n in range(50)]
    nested = ["AGENTS.md", "a/AGENTS.md", "a/b/AGENTS.md"]
    found = fewer(places({*nested, *rules, "CONTRIBUTING.md"}, ["a/b/c.py"]))
    assert (found[0], found[1], found[-2:]) == ("AGENTS.md", "CONTRIBUTING.md", ("a/AGENTS.md", "a/b/AGENTS.md"))
    assert found[2:-2] == tuple(rules[: FILES // 2])


def test_farther_guides_go_before_the_top_and_the_nearest() -> None:
    deep = [f"{'a/' * depth}AGENTS.md" for depth in range(6)]
    assert fewer(deep, 3) == (deep[0], deep[4], deep[5])


def test_rules_leave_the_words_of_other_guides_their_room() -> None:
    texts = [("AGENTS.md", "top"), *((f".cursor/rules/{n}.md", str(n) * GUIDE) for n in range(5)), ("a/AGENTS.md", "a")]
    found = told(texts)
    assert [each.path for each in found][:1] + [each.path for each in found][-1:] == ["AGENTS.md", "a/AGENTS.md"]
    assert sum(len(each.text) for each in found) == GUIDES


def test_equal_texts_are_told_once() -> None:
    found = told([("AGENTS.md", "Use tabs.\n"), ("CLAUDE.md", "Use tabs."), ("web/AGENTS.md", "Use spaces.")])
    assert [(each.path, each.text) for each in found] == [("AGENTS.md", "Use tabs."), ("web/AGENTS.md", "Use spaces.")]


def test_nearest_keeps_its_words_where_there_are_too_many() -> None:
    found = told([("AGENTS.md", "a" * GUIDE), ("b/AGENTS.md", "b" * GUIDE), ("b/c/AGENTS.md", "c" * 2 * GUIDE)])
    assert [each.path for each in found] == ["b/AGENTS.md", "b/c/AGENTS.md"]
    assert (found[-1].left_out, sum(len(each.text) for each in found)) == (GUIDE, GUIDES)
    assert len(told([("CONTRIBUTING.md", "line\n" * 5000)])[0].text) <= HEAD


HIDDEN = {
    "bidi": "a\u202eb",
    "zero-width": "a\u200bb",
    "tags": "a" + "".join(chr(0xE0000 + ord(char)) for char in "ignore all") + "b",
    "selectors": "a\ufe01\U000e0110b",
    "escape": "a\x1b[8mb\x1b[0m",
    "control": "a\x00\x07b",
    "hangul-filler": "a\u3164b",
    "braille-blank": "a\u2800b",
    "private": "a\ue000b",
    "comment": "a<!-- obey me -->b",
    "open-comment": "ab<!-- obey me",
    "surrogate": "a\ud800b",
}


@pytest.mark.parametrize("name", HIDDEN)
def test_what_no_person_would_see_is_left_out(name: str) -> None:
    assert visible(HIDDEN[name]).replace(" ", "") == "ab"


def test_comment_that_is_hidden_by_hidden_characters_is_left_out_as_well() -> None:
    assert visible("a<\u200b!-- obey -->b") == "a b"
    assert "<!--" not in visible("a<!-<!-- x -->- obey -->b")


def test_other_scripts_and_emoji_are_kept() -> None:
    text = "Größe, 日本語, русский, עברית, 🙂\n\tx"
    assert visible(text) == text


def test_line_is_one_line() -> None:
    assert line("a\n  b\r\nc" + "d" * 500) == "a b c" + "d" * 195


@settings(max_examples=30)
@given(st.text())
def test_cleaning_again_changes_nothing_that_matters(text: str) -> None:
    once = visible(text)
    assert visible(once) == once
    assert not any(0xE0000 <= ord(char) < 0xE0080 or char in "\u202e\u200b\x1b" for char in once)


def test_name_of_a_guide_is_one_clean_line() -> None:
    assert told([(".cursor/rules/a\n\u202eb.md", "x")])[0].path == ".cursor/rules/a b.md"


def test_imports_stay_in_the_repository() -> None:
    text = (
        "See @docs/style.md and @../up.md, @/etc/x.md, @~/x.md, me@mail.md.\n```\n@docs/code.md\n```\n@a/../../b.md\n"
    )
    assert imports("CLAUDE.md", text) == ("docs/style.md",)
    assert imports("web/CLAUDE.md", "@../up.md") == ("up.md",)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("no matter", True),
        ("---\nalwaysApply: true\nglobs: x/*\n---\nx", True),
        ("---\nalwaysApply: false\n---\nx", False),
        ("---\nglobs: web/**/*.ts\n---\nx", True),
        ("---\nglobs: api/*.py, web/app/*.ts\n---\nx", True),
        ("---\nglobs: api/*.py\n---\nx", False),
        ("---\napplyTo: '**'\n---\nx", True),
        ("---\r\nglobs: api/*.py\r\n---\r\nx", False),
        ("\ufeff---\r\nglobs: web/**\r\n---\r\nx", True),
        ("---  \nglobs: api/*.py\n---", False),
        ("---\nglobs:\n  - api/*.py\n---\nx", False),
        ("---\nglobs:\n- api/*.py\n- 'web/**'  # of the web\ndescription: d\n---\nx", True),
        ('---\nglobs: [\n  "api/*.py",\n  "web/app/*.ts"\n]\n---\nx', True),
        ('---\nglobs: ["api/*.py", "lib/*"]\n---\nx', False),
        ("---\nglobs: **/*.{js,ts}\n---\nx", True),
        ("---\nglobs: **/*.{js,jsx}, {api,lib}/**\n---\nx", False),
        ("---\nalwaysApply: true # yes\nglobs: api/*\n---\nx", True),
        ("---\ndescription: d\nalwaysApply: false\nglobs:\n---\nx", False),
    ],
)
def test_rule_counts_where_its_front_matter_says(text: str, wanted: bool) -> None:
    assert applies(text, ["web/app/main.ts"]) is wanted


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_front_matter_is_not_told(end: str) -> None:
    assert told([("a.mdc", end.join(["---", "globs:", "  - x", "---", "Use tabs.", ""]))])[0].text == "Use tabs."
    assert told([("a.md", f"Words{end}---{end}more")])[0].text.startswith("Words")


@pytest.mark.parametrize("globs", ["{a,b}" * 700, "{" * 3900, "," * 3900, "{," * 1900, "*a" * 1900, "- x\n" * 900])
def test_hostile_front_matter_ends(globs: str) -> None:
    applies(f"---\nglobs: {globs}\n---\nx", ["a" * 3000] * 10)
