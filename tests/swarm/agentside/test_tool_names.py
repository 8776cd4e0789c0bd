"""Names of tools and arguments that other agents have taught models."""

from __future__ import annotations

import pytest

from swarm.tools.names import ALIASES, EDITORS, KEYS, key_of, meant, tool_of
from swarm.tools.specs import SMALL, TOOLS, UNTOLD, specs

FULL = {spec.name: spec.parameters["properties"] for spec in specs(testable=True)}


def test_every_name_leads_to_a_tool_and_to_an_argument_that_exist() -> None:
    assert {tool for tools in ALIASES.values() for tool in tools} <= set(TOOLS)
    known = {key for properties in FULL.values() for key in properties}
    assert {key for keys in KEYS.values() for key in keys} <= known
    assert not set(ALIASES) & set(TOOLS)


@pytest.mark.parametrize(
    ("name", "tool"),
    [
        ("bash", "shell"),
        ("Read-File", "view"),
        ("functions.apply_diff", "apply_patch"),
        ("container.exec", "shell"),
        ("str_replace", "edit"),
        ("shell", "shell"),
        ("todo_write", "task_list"),
        ("launch_missiles", None),
        ("", None),
    ],
)
def test_a_name_means_the_tool_that_other_agents_have_under_it(name: str, tool: str | None) -> None:
    assert tool_of(name, FULL) == tool


def test_a_name_means_the_next_best_tool_where_the_best_is_not_offered() -> None:
    assert tool_of("apply_diff", SMALL) == "edit"
    assert tool_of("find_files", SMALL) == "shell"
    assert tool_of("todo_write", SMALL) is None


@pytest.mark.parametrize(
    ("tool", "key", "means"),
    [
        ("edit", "old_string", "search"),
        ("edit", "new_str", "replace"),
        ("edit_lines", "old_string", "expect"),
        ("edit_lines", "new_content", "replace"),
        ("write", "file_text", "content"),
        ("view", "start_line", "first"),
        ("grep", "query", "pattern"),
        ("shell", "cmd", "command"),
        ("view", "Path", "path"),
        ("view", "nonsense", "nonsense"),
    ],
)
def test_a_key_means_the_argument_that_the_tool_has(tool: str, key: str, means: str) -> None:
    assert key_of(key, FULL[tool], ()) == means


def test_a_meaning_that_is_taken_is_not_taken_twice() -> None:
    assert key_of("old_str", FULL["edit"], {"search"}) == "old_str"


@pytest.mark.parametrize("editor", sorted(EDITORS))
def test_an_editor_of_several_tools_is_taken_apart(editor: str) -> None:
    assert meant(editor, {"command": "view", "path": "a", "view_range": [3, -1]}) == ("view", {"path": "a", "first": 3})
    assert meant(editor, {"command": "insert", "path": "a", "insert_line": 4, "new_str": "x"}) == (
        "edit_lines",
        {"path": "a", "new_str": "x", "first": 5, "last": 4},
    )
    assert meant(editor, {"command": "undo_edit", "path": "a"}) == (editor, {"command": "undo_edit", "path": "a"})


def test_a_call_of_ones_own_shape_stays_as_it_is() -> None:
    assert meant("shell", {"command": "view"}) == ("shell", {"command": "view"})
    assert meant("view", {"path": "a", "lines": "many"}) == ("view", {"path": "a", "lines": "many"})


def test_the_small_set_is_a_part_of_the_full_one_and_all_schemas_are_plain() -> None:
    small = {spec.name for spec in specs(testable=True, size="small")}
    assert small == SMALL < set(FULL)
    assert "run_tests" not in {spec.name for spec in specs(testable=False)}
    for spec in specs(testable=True):
        assert spec.description
        assert spec.parameters["additionalProperties"] is False
        assert set(spec.parameters["required"]) <= set(spec.parameters["properties"])
        for form in spec.parameters["properties"].values():
            assert form["type"] in ("string", "integer", "number", "boolean")
            assert not {"$ref", "anyOf", "title", "default"} & set(form)


def test_what_is_offered_costs_little() -> None:
    """Characters that every prompt begins with; raise the bounds only for a reason."""

    def size(which: str) -> int:
        offered = specs(testable=True, size=which)
        return sum(len(spec.description) + len(str(spec.parameters)) for spec in offered)

    assert size("small") < 2700
    assert size("full") < 4300


def test_what_a_small_model_is_not_told_of_is_taken_all_the_same() -> None:
    small = {spec.name: spec.parameters for spec in specs(testable=True, size="small")}
    for tool, untold in UNTOLD.items():
        assert untold <= set(TOOLS[tool].model_fields)
        assert not untold & set(small[tool]["properties"])
        assert not untold & set(small[tool]["required"])
        assert untold <= set(FULL[tool]), "the full set tells all"
