"""Task files: what they may say, and what is said when they are wrong."""

from __future__ import annotations

import pytest

from swarm.cli.task_file import FORMAT, bad_path, parse
from swarm.errors import ConfigError


def test_front_matter_and_words() -> None:
    wanted = parse("t.md", '+++\nrepository = "web"\npaths = ["a.py"]\n[budget]\nsteps = 5\n+++\n\nDo it.\n\nNow.\n')
    assert wanted.repository == "web"
    assert wanted.paths == ("a.py",)
    assert wanted.budget.steps == 5
    assert wanted.instructions == "Do it.\n\nNow."


def test_words_alone() -> None:
    assert parse("t.md", "Do it.\n+++\n").instructions == "Do it.\n+++"


def test_plain_toml_holds_the_words_too() -> None:
    wanted = parse("t.toml", 'instructions = """\nDo it."""\nstrategy = "agent"')
    assert (wanted.instructions, wanted.strategy) == ("Do it.", "agent")


def test_the_example_in_the_help_is_a_task_file() -> None:
    block = "\n".join(line[4:] for line in FORMAT.splitlines() if line.startswith("    "))
    assert parse("t.md", block).repository == "sample"


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("t.md", "\n\n+++\nrepo = 'x'\n+++\ny", "line 4: repo: is no setting; known here"),
        ("t.md", "+++\nrepositry = 'x'\n+++\ny", "line 2: repositry: is no setting; did you mean repository?"),
        ("t.md", "+++\nbudget.steps = 0\n+++\ny", "line 2: budget.steps: must be more than 0"),
        ("t.md", "+++\nx\n", "line 1: +++ opens settings that no second +++ closes"),
        ("t.md", "+++\nx = \n+++\ny", "is not TOML"),
        ("t.md", "+++\ninstructions = 'x'\n+++\ny", "instructions stand below"),
        ("t.toml", "paths = 'a.py'", "line 1: paths: must be a list, in [brackets]"),
        ("t.toml", "strategy = 'a guess'", "must be the name of a strategy, or cli:NAME"),
    ],
)
def test_each_mistake_is_told_with_its_line(name: str, text: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(name, text)
    assert words in str(caught.value)
    assert caught.value.mend


@pytest.mark.parametrize(
    "path",
    [
        "/etc/passwd",
        "../up",
        "a/../../b",
        "~/x",
        "a\x1b[31m.py",
        "a\nb",
        "",
        "a\\b",
        ".git/config",
        ".GIT/hooks",
        "a\u202eb",
    ],
)
def test_paths_that_leave_or_hide_are_refused(path: str) -> None:
    assert bad_path(path)


@pytest.mark.parametrize("path", ["a.py", "src/über/ä b.py", "..a", "a..b/c", "./a", ".gitignore", ".github/x"])
def test_paths_inside_are_taken(path: str) -> None:
    assert bad_path(path) is None
