"""What models call the tools and their arguments, as data: the names that other agents have taught them. Pure.

A name means the first of its tools that is offered; an argument's name means the first argument that the tool has and
that was not given. What is told here is never guessed: whoever reads a call guesses after that.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

ALIASES: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(
        ("bash", "sh", "terminal", "execute", "execute_command", "run", "run_command", "run_terminal_cmd", "exec",
         "exec_command", "execute_bash", "run_shell_command", "run_in_terminal", "command", "cmd", "local_shell",
         "container.exec", "run_terminal_command"),
        ("shell",),
    ),
    **dict.fromkeys(
        ("cat", "read", "read_file", "open", "open_file", "view_file", "show", "list_dir", "list_files", "ls",
         "list_directory", "file_read", "head", "read_output", "view_output", "get_output", "output", "more"),
        ("view",),
    ),
    **dict.fromkeys(
        ("str_replace", "search_replace", "replace", "edit_file", "replace_in_file", "search_and_replace", "str_edit",
         "multi_edit", "file_edit", "str_replace_editor", "modify_file"),
        ("edit",),
    ),
    **dict.fromkeys(
        ("replace_lines", "edit_range", "line_edit", "insert_lines", "insert", "insert_line", "edit_line",
         "replace_file_lines", "insert_edit_into_file"),
        ("edit_lines", "edit"),
    ),
    **dict.fromkeys(
        ("create", "create_file", "write_file", "write_to_file", "new_file", "save", "save_file", "file_write",
         "create_new_file", "overwrite"),
        ("write",),
    ),
    **dict.fromkeys(
        ("apply_diff", "patch", "applypatch", "apply_edit", "diff", "git_apply"),
        ("apply_patch", "edit"),
    ),
    **dict.fromkeys(
        ("find_files", "file_search", "find", "glob_files", "glob_search", "find_file", "glob_file_search"),
        ("glob", "shell"),
    ),
    **dict.fromkeys(
        ("search", "search_files", "grep_search", "ripgrep", "rg", "search_code", "code_search", "search_dir",
         "search_file_content", "search_text", "codebase_search", "find_in_files"),
        ("grep", "shell"),
    ),
    **dict.fromkeys(
        ("map", "repomap", "repository_map", "list_code_definition_names", "outline", "symbols", "code_map"),
        ("repo_map", "view"),
    ),
    **dict.fromkeys(("test", "tests", "pytest", "run_test", "runtests", "test_runner"), ("run_tests", "shell")),
    **dict.fromkeys(
        ("todo", "todos", "todo_write", "todowrite", "write_todos", "update_plan", "plan", "tasks", "task_tracker",
         "update_todo_list", "manage_todo_list"),
        ("task_list",),
    ),
    **dict.fromkeys(
        ("ask_user", "ask_followup_question", "ask_human", "ask_question", "request_help", "help", "clarify"),
        ("ask",),
    ),
    **dict.fromkeys(
        ("done", "submit", "attempt_completion", "complete", "finished", "exit", "task_complete", "complete_task",
         "final_answer", "task_done"),
        ("finish",),
    ),
}  # fmt: skip
"""Another name of a tool, and which tools it may mean, the best first."""

KEYS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("cmd", "code", "script", "bash_command", "commands"), ("command",)),
    **dict.fromkeys(("seconds", "timeout_seconds", "timeout_s"), ("timeout",)),
    **dict.fromkeys(("reset",), ("restart",)),
    **dict.fromkeys(
        ("file", "filename", "file_path", "filepath", "target_file", "absolute_path", "relative_path", "target",
         "relative_workspace_path", "file_name", "dir", "dir_path", "directory", "folder", "uri"),
        ("path",),
    ),
    **dict.fromkeys(
        ("old", "old_str", "old_string", "old_text", "find", "original", "before", "search_text", "old_code",
         "search_block"),
        ("search", "expect"),
    ),
    **dict.fromkeys(
        ("new", "new_str", "new_string", "new_text", "replacement", "after", "replace_text", "new_code",
         "replace_block", "replace_with"),
        ("replace", "content"),
    ),
    **dict.fromkeys(
        ("text", "contents", "file_text", "file_content", "body", "new_content", "data", "file_contents"),
        ("content", "replace", "items", "question", "summary"),
    ),
    "content": ("replace",),
    **dict.fromkeys(("replace_all", "all_occurrences", "global"), ("all",)),
    **dict.fromkeys(("expected", "old_lines", "current"), ("expect",)),
    **dict.fromkeys(
        ("start", "start_line", "from", "begin", "line_start", "first_line", "from_line", "startline", "line"),
        ("first",),
    ),
    **dict.fromkeys(("end", "end_line", "to", "line_end", "last_line", "to_line", "endline"), ("last",)),
    **dict.fromkeys(("diff", "input", "patch_text", "patchtext", "unified_diff"), ("patch",)),
    **dict.fromkeys(
        ("regex", "query", "regexp", "search_term", "search_pattern", "glob_pattern", "file_pattern"),
        ("pattern", "about"),
    ),
    "search": ("pattern", "about", "expect"),
    **dict.fromkeys(("include", "include_pattern", "file_glob", "files", "include_glob", "glob_filter"), ("glob",)),
    **dict.fromkeys(("case_insensitive", "i", "ignorecase"), ("ignore_case",)),
    **dict.fromkeys(("context_lines", "lines_of_context", "c"), ("context",)),
    **dict.fromkeys(("focus", "topic", "keywords", "mentions"), ("about",)),
    **dict.fromkeys(("test", "tests", "selector", "test_path", "nodeid", "test_name"), ("only",)),
    **dict.fromkeys(("todos", "tasks", "plan", "task_list", "list", "todo_list"), ("items",)),
    **dict.fromkeys(("message", "description", "result", "explanation", "answer"), ("summary", "question")),
    **dict.fromkeys(("reason", "prompt"), ("question", "summary")),
}  # fmt: skip
"""Another name of an argument, and which arguments it may mean, the best first."""

EDITORS = frozenset({"str_replace_editor", "str_replace_based_edit_tool", "file_editor", "editor", "text_editor"})
"""Names of one tool that holds several: its argument ``command`` tells which, see `meant`."""
_EDITOR_COMMANDS = {"view": "view", "create": "write", "str_replace": "edit", "insert": "edit_lines"}


def tool_of(name: str, offered: Collection[str]) -> str | None:
    """The offered tool that a name means, by its own name or another agent's; None where it means none."""
    plain = name.strip().lower().replace("-", "_")
    for word in (name, plain, plain.rpartition(".")[2]):
        if word in offered:
            return word
        for tool in ALIASES.get(word, ()):
            if tool in offered:
                return tool
    return None


def key_of(key: str, known: Collection[str], given: Collection[str]) -> str:
    """The argument that a key means; one already known, of no known meaning, or whose meaning is taken, stays."""
    if key in known:
        return key
    plain = key.strip().lower().replace("-", "_")
    options = (plain, *KEYS.get(plain, ()))
    return next((option for option in options if option in known and option not in given), key)


def meant(name: str, arguments: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """A call as this project would make it, where another agent's has another shape; else as it is.

    The editors that models know hold several tools in one, told apart by ``command``; a range of lines is a pair there,
    and ``insert_line`` is the line after which the text goes.
    """
    given = dict(arguments)
    plain = name.strip().lower().replace("-", "_").rpartition(".")[2]
    if plain in EDITORS and given.get("command") in _EDITOR_COMMANDS:
        name = _EDITOR_COMMANDS[given.pop("command")]
    for key in ("view_range", "line_range", "range", "lines"):
        pair = given.get(key)
        if isinstance(pair, list) and len(pair) == 2 and all(isinstance(end, int) for end in pair):
            given.pop(key)
            given |= {"first": max(1, pair[0])} | ({"last": pair[1]} if pair[1] > 0 else {})
    line = given.get("insert_line")
    if isinstance(line, int | str) and str(line).isdigit() and "first" not in given:
        given.pop("insert_line")
        given |= {"first": int(line) + 1, "last": int(line)}
    return name, given
