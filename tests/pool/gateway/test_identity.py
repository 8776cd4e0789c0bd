"""Sessions and programs as clients name them."""

from __future__ import annotations

import pytest

from pool.gateway.identity import SESSION_HEADERS, Trees, identify

CHAT = {
    "model": "coder",
    "messages": [
        {"role": "system", "content": "You fix bugs."},
        {"role": "user", "content": "Fix the parser."},
        {"role": "assistant", "content": "Done?"},
    ],
}


@pytest.mark.parametrize("header", SESSION_HEADERS)
def test_every_session_header_of_the_ecosystem_names_the_session(header: str) -> None:
    found = identify({header: "s-1"}, CHAT)
    assert (found.session, found.source) == ("s-1", header)


@pytest.mark.parametrize(
    "body",
    [
        {"session_id": "s-2"},
        {"prompt_cache_key": "s-2"},
        {"vllm_xargs": {"session_id": "s-2"}},
        {"vllm_xargs": {"agentic_context": {"session": "s-2"}}},
    ],
)
def test_a_body_names_the_session_where_no_header_does(body: dict[str, object]) -> None:
    assert identify({}, CHAT | body).session == "s-2"
    assert identify({"x-session-id": "s-1"}, CHAT | body).session == "s-1"


def test_an_agent_that_says_nothing_keeps_one_session_over_its_turns() -> None:
    later = CHAT | {"messages": [*CHAT["messages"], {"role": "user", "content": "Go on."}]}
    assert identify({}, CHAT).session == identify({}, later).session
    other = CHAT | {"messages": [CHAT["messages"][0], {"role": "user", "content": "Fix the lexer."}]}
    assert identify({}, other).session != identify({}, CHAT).session


@pytest.mark.parametrize("header", ["x-request-id", "x-trace-id", "x-correlation-id"])
def test_an_id_of_one_request_never_scatters_a_session(header: str) -> None:
    """vllm-project/router falls back to X-Request-ID, and each turn then goes elsewhere."""
    assert identify({header: "1"}, CHAT).session == identify({header: "2"}, CHAT).session


def test_users_and_keys_keep_equal_conversations_apart() -> None:
    plain = identify({}, CHAT).session
    assert len({plain, identify({}, CHAT, "anna").session, identify({"x-user-id": "ben"}, CHAT).session}) == 3
    assert identify({"x-session-id": "s"}, CHAT, "anna").session != identify({"x-session-id": "s"}, CHAT, "ben").session


def test_one_caller_cannot_take_the_name_of_anothers_session() -> None:
    assert identify({"x-session-id": "b:s"}, CHAT, "a").session != identify({"x-session-id": "a:s"}, CHAT, "b").session


def test_names_that_no_header_could_carry_are_hashed() -> None:
    for name in ("x" * 500, "späti", "a\r\nevil: 1"):
        session = identify({"x-session-id": name}, CHAT).session
        assert session.isascii()
        assert session.isprintable()
        assert len(session) <= 128


def test_agents_of_one_tree_have_own_sessions_and_one_program() -> None:
    main = {"x-claude-code-session-id": "tree", "x-claude-code-agent-id": "main"}
    helper = {
        "x-claude-code-session-id": "tree",
        "x-claude-code-agent-id": "helper",
        "x-claude-code-parent-agent-id": "main",
    }
    one, two = identify(main, CHAT), identify(helper, CHAT)
    assert one.session != two.session
    assert one.program == two.program == "tree"
    assert two.parent == "main"


def test_a_tree_is_found_by_its_parents_alone() -> None:
    trees = Trees()
    root = identify({"x-session-id": "root"}, CHAT)
    child = identify({"x-session-id": "child", "x-parent-session-id": "root"}, CHAT)
    grandchild = identify({"x-session-id": "grandchild", "x-parent-session-id": "child"}, CHAT)
    assert [trees.root(one) for one in (root, child, grandchild)] == ["root", "root", "root"]
    assert trees.root(identify({"x-session-id": "grandchild"}, CHAT)) == "root"


def test_memory_of_trees_is_bounded() -> None:
    trees = Trees(most=100)
    for number in range(1000):
        trees.root(identify({"x-session-id": f"c{number}", "x-parent-session-id": "root"}, CHAT))
    assert len(trees._roots) == 100


@pytest.mark.parametrize("body", [{}, {"messages": [1, None]}, {"messages": [{"role": "user", "content": [{}]}]}])
def test_a_session_is_found_in_the_oddest_body(body: dict[str, object]) -> None:
    assert identify({}, {"vllm_xargs": [], "session_id": 5, "user": {}} | body).session
