"""Wrong documents are told in plain words, with the right line and the nearest right name."""

from __future__ import annotations

import tomllib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from swarm.config import Settings
from swarm.config_docs import toml_value
from swarm.config_lines import line_of, lines_of
from swarm.config_text import Problem, dotted, nearest, problems

DOCUMENT = """\
# head
[daemon]
state = "s"  # [not.a.table]
note = \"\"\"
[broker]
socket = 1
\"\"\"

[[pool.endpoints]]
name = "a"
tags = [
  "x = 1",
  "]",
]
[[pool.endpoints]]
name = "b"
[repositories."odd.name"]
tier = 't'
[limits]
steps = 1
"""


def test_lines_are_found_in_tables_arrays_and_quoted_names() -> None:
    lines = lines_of(DOCUMENT)
    assert lines["daemon", "state"] == 3
    assert lines["pool", "endpoints", 0, "name"] == 10
    assert lines["pool", "endpoints", 1, "name"] == 16
    assert lines["repositories", "odd.name", "tier"] == 18
    assert lines["limits", "steps"] == 20


def test_text_inside_strings_and_arrays_is_no_key() -> None:
    lines = lines_of(DOCUMENT)
    assert ("broker",) not in lines
    assert ("daemon", "socket") not in lines
    assert not any("x" in path for path in lines)


def test_a_missing_key_is_told_at_its_table() -> None:
    assert line_of(("limits", "tokens"), lines_of(DOCUMENT)) == 19
    assert line_of(("nowhere", "x"), lines_of(DOCUMENT)) is None


def found(text: str) -> dict[str, Problem]:
    with pytest.raises(ValidationError) as caught:
        Settings.model_validate(tomllib.loads(text))
    return {problem.key: problem for problem in problems(caught.value, Settings, text)}


@pytest.mark.parametrize(
    ("text", "key", "message"),
    [
        ("[deamon]\nstate = 's'", "deamon", "is no setting; did you mean daemon?"),
        ("[limits]\nstep = 3", "limits.step", "is no setting; did you mean steps?"),
        ("[daemon]\nwrokers = 3", "daemon.wrokers", "is no setting; did you mean workers?"),
        ("socket = 'x'", "socket", "is no setting here; did you mean daemon.socket?"),
        ("[[pool.endpoints]]\nurll = 'x'", "pool.endpoints[0].urll", "is no setting; did you mean url?"),
        ("[repositories.web]\nteir = 'x'", "repositories.web.teir", "is no setting; did you mean tier?"),
        ("[limits]\nwall = 'long'", "limits.wall", 'not "long"'),
        ("[limits]\nsteps = 0", "limits.steps", "must be more than 0, not 0"),
        (
            "[sandbox]\nbackend = 'podman'",
            "sandbox.backend",
            "must be one of 'auto', 'docker' or 'bwrap', not \"podman\"",
        ),
        ("[sandbox]\nlimits = 3", "sandbox.limits", "must be a table, not 3"),
        ("[pool]\nendpoints = 'x'", "pool.endpoints", 'must be a list, in [brackets], not "x"'),
    ],
)
def test_each_mistake_is_said_in_plain_words(text: str, key: str, message: str) -> None:
    assert message in found(text)[key].message


def test_a_missing_setting_says_what_it_is_for() -> None:
    assert (
        "a short name, shown in logs" in found("[[pool.endpoints]]\nurl = 'http://x'")["pool.endpoints[0].name"].message
    )


def test_a_wrong_key_is_never_printed() -> None:
    text = "[[pool.endpoints]]\nname = 'a'\nurl = 'http://x'\napi_key = 12345678"
    problem = found(text)["pool.endpoints[0].api_key"]
    assert "12345678" not in str(problem)
    assert problem.line == 4


def test_a_long_wrong_value_is_cut() -> None:
    assert len(found(f"[limits]\nwall = '{'x' * 5000}'")["limits.wall"].message) < 200


@settings(deadline=None)
@given(st.recursive(st.text(), lambda inner: st.lists(inner, max_size=3), max_leaves=5))
def test_toml_values_read_back_as_they_were(value: object) -> None:
    assert tomllib.loads(f"x = {toml_value(value)}") == {"x": value}


@settings(deadline=None)
@given(st.text())
def test_any_text_has_lines(text: str) -> None:
    assert all(1 <= line <= len(text.splitlines()) for line in lines_of(text).values())


def test_names_are_near_or_not() -> None:
    assert nearest("Fst", ["fast", "slow"]) == "fast"
    assert nearest("zebra", ["fast", "slow"]) is None
    assert dotted(("pool", "endpoints", 0, "url")) == "pool.endpoints[0].url"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('[repositories.web]\nguides = "AGENTS.md"', "repositories.web.guides: must be true or false, or list of text"),
        ("[repositories.web]\nguides = [1, 2]", "repositories.web.guides: must be true or false, or list of text"),
        ("[agents.x]\ncommand = 3", "agents.x.command: must be text, or list of text"),
        (
            "[agents.x]\ncommand = 'a'\nsuccess_exit_codes = []",
            "agents.x.success_exit_codes: must hold at least 1, and holds 0",
        ),
        ('[scheduling]\nfleet = "x"', 'scheduling.fleet: must be a whole number, not "x"'),
    ],
)
def test_a_value_of_the_wrong_kind_is_told_once_and_in_words(text: str, told: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Settings.model_validate(tomllib.loads(text))
    (only,) = problems(caught.value, Settings, text)
    assert str(only).partition(": ")[2] == told
    assert only.line == len(text.splitlines())
