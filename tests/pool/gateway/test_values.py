"""Values that no server could honour get 400 with the field's name, and everything that one could honour passes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pool.gateway.reading import CHAT, TEXT, check_labels, class_of, deadline_of, read
from pool.gateway.replies import RefusedError
from pool.gateway.values import LABEL, NAME, parsed
from pool.testing import pretend_vllm

HELLO = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
CALL = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}


def refused(raw: bytes, path: Any = CHAT) -> tuple[int, str | None]:
    with pytest.raises(RefusedError) as caught:
        read(path, raw)
    assert len(caught.value.refusal.message) < 500
    return caught.value.refusal.status, caught.value.refusal.param


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("max_tokens", ["-1", "0", "1.5", "true", '"7"', "[7]", "{}", "9" * 40, "-9" + "0" * 30]),
        ("max_completion_tokens", ["-1", "0", "0.5"]),
        ("n", ["0", "-1", "1.5", '"2"', "true", "1000000000"]),
        ("best_of", ["0"]),
        ("temperature", ["NaN", "Infinity", "-Infinity", "1e400", "-0.1", '"hot"', "true", "[]"]),
        ("top_p", ["1.1", "-1", "NaN", '"x"']),
        ("presence_penalty", ["1e400", '"1"']),
        ("seed", ["1.5", '"x"', "1" * 30]),
        ("stream", ["1", '"true"', "[]"]),
        ("stream_options", ["true", "[]"]),
        ("stop", ["5", "[5]", "{}"]),
        ("tools", ["{}", "[5]", '"f"']),
        ("tool_choice", ["5", "[]"]),
        ("logprobs", ['"yes"', "1.5"]),
        ("response_format", ['"json"', "[]"]),
        ("session_id", ["5", '"' + "s" * 1_000_000 + '"']),
        ("prompt_cache_key", ['"' + "s" * (LABEL + 1) + '"']),
        ("cache_salt", ['""', "5"]),
        ("priority", ['"high"', "NaN"]),
        ("model", ['"' + "m" * (NAME + 1) + '"']),
        ("messages.0", ["[5]", '["hi"]', "[null]"]),
        ("messages.0.role", ["[{}]", '[{"role": 5}]', '[{"role": ""}]']),
        ("messages.1.content", ['[{"role": "user"}, {"role": "user", "content": 5}]']),
        ("messages.0.content", ['[{"role": "user", "content": [5]}]', '[{"role": "user", "content": {}}]']),
        ("messages.0.tool_calls", ['[{"role": "assistant", "tool_calls": {}}]']),
        ("messages.0.tool_calls.0", ['[{"role": "assistant", "tool_calls": [5]}]']),
        ("messages.0.tool_call_id", ['[{"role": "tool", "content": "", "tool_call_id": 5}]']),
    ],
)  # fmt: skip
def test_what_no_server_could_honour_is_refused_by_name(field: str, values: list[str]) -> None:
    top = field.partition(".")[0]
    for value in values:
        rest = {name: told for name, told in HELLO.items() if name != top}
        raw = b'{"%s": %s, %s' % (top.encode(), value.encode(), json.dumps(rest)[1:].encode())
        assert refused(raw) == (400, field), value[:80]


@pytest.mark.parametrize("prompt", [5, None, {}, [], [1.5], ["a", 1], [[1], "a"], [[True]], [[]], [None]])
def test_a_prompt_is_text_or_token_ids(prompt: Any) -> None:
    assert refused(json.dumps({"model": "m", "prompt": prompt}).encode(), TEXT) == (400, "prompt")


@pytest.mark.parametrize(
    "more",
    [
        {"max_tokens": None, "n": None, "temperature": None, "stop": None, "tools": None, "stream": None},
        {"max_tokens": 1, "n": 2, "temperature": 0, "top_p": 1, "seed": -1, "stop": ["a"], "user": ""},
        {"messages": [{"role": "assistant", "content": None, "tool_calls": [CALL]}, {"role": "tool", "content": "x"}]},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "x"}, "y"]}]},
        {"tools": [{"type": "function", "function": {"name": "f"}}], "tool_choice": "required"},
        {"logprobs": True, "top_logprobs": 5, "priority": -1.5, "min_p": 0.1, "top_k": -1},
    ],
)
def test_what_servers_honour_passes(more: dict[str, Any]) -> None:
    assert read(CHAT, json.dumps(HELLO | more).encode()).body == HELLO | more


def test_a_whole_number_may_be_written_with_a_point_and_goes_on_without() -> None:
    told = read(CHAT, b'{"model": "m", "messages": [{"role": "user"}], "max_tokens": 10.0, "top_k": 5e1, "top_p": 1.0}')
    assert [type(told.body[name]) for name in ("max_tokens", "top_k", "top_p")] == [int, int, float]
    assert (told.ceiling, told.body["top_k"]) == (10, 50)
    assert refused(json.dumps(HELLO | {"n": 0.0}).encode()) == (400, "n")
    assert refused(json.dumps(HELLO | {"seed": 1e300}).encode()) == (400, "seed")


@pytest.mark.parametrize("prompt", ["", "x", ["a", "b"], [1, 2], [[1], [2, 3]]])
def test_every_kind_of_prompt_passes(prompt: Any) -> None:
    assert read(TEXT, json.dumps({"model": "m", "prompt": prompt, "logprobs": 3, "echo": True}).encode())


def test_no_token_may_be_wanted_where_the_prompt_is_scored() -> None:
    scored = {"model": "m", "prompt": "x", "max_tokens": 0, "echo": True, "logprobs": 1}
    assert read(TEXT, json.dumps(scored).encode()).ceiling is None
    assert refused(json.dumps(scored | {"echo": False}).encode(), TEXT) == (400, "max_tokens")
    assert refused(json.dumps(HELLO | {"max_tokens": 0, "echo": True}).encode()) == (400, "max_tokens")


def test_a_number_beyond_all_is_named_wherever_it_is() -> None:
    for raw, where in (
        (b'{"tools": [{"function": {"parameters": {"maximum": 1e999}}}]}', "tools.0.function.parameters.maximum"),
        (b'{"a": {"b": [1, -Infinity]}}', "a.b.1"),
        (b'{"vllm_xargs": {"x": NaN}}', "vllm_xargs.x"),
    ):
        with pytest.raises(RefusedError) as caught:
            parsed(raw)
        assert caught.value.refusal.param == where


@pytest.mark.parametrize("told", ["-1", "0", "nan", "inf", "soon", "1e400", "5 s", "٣s"])
def test_a_deadline_that_is_none_is_refused(told: str) -> None:
    with pytest.raises(RefusedError) as caught:
        deadline_of({"x-request-deadline": told}, 600.0, stream=False)
    assert (caught.value.refusal.status, caught.value.refusal.param) == (400, "X-Request-Deadline")


def test_a_class_that_is_none_is_refused_and_anothers_word_is_not() -> None:
    with pytest.raises(RefusedError) as caught:
        class_of({"x-request-class": "urgent"})
    assert caught.value.refusal.param == "X-Request-Class"
    assert class_of({"x-smg-priority": "urgent"}) == "urgent"
    assert class_of({"x-request-class": " Bulk ", "x-smg-priority": "x"}) == "bulk"


def test_a_name_in_a_header_has_a_bound() -> None:
    check_labels({"x-session-id": "s" * LABEL}, ("x-session-id", "thread-id"))
    with pytest.raises(RefusedError) as caught:
        check_labels({"x-session-id": "s" * (LABEL + 1)}, ("x-session-id",))
    assert caught.value.refusal.param == "x-session-id"


JSONS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=12,
)
NAMES = st.sampled_from(["max_tokens", "n", "temperature", "stop", "messages", "tools", "seed", "stream", "user", "x"])


@given(st.dictionaries(NAMES, JSONS, max_size=4))
def test_no_value_breaks_it(odd: dict[str, Any]) -> None:
    raw = json.dumps(HELLO | odd).encode()
    for path in (CHAT, TEXT):
        try:
            read(path, raw)
        except RefusedError as error:
            assert error.refusal.status == 400  # noqa: PT017  both ends are right


@pytest.mark.parametrize("body", [{"max_tokens": 0}, {"n": 0}, {"temperature": -1}, {"messages": [{"role": 1}]}])
async def test_nothing_of_it_reaches_a_server(gateway: Any, body: dict[str, Any]) -> None:
    async with pretend_vllm() as server, gateway(server) as house:
        before = len(server.requests)
        answer = await house.chat(body)
        assert answer.status_code == 400
        assert answer.json()["error"]["param"].startswith(next(iter(body)))
        response = await house.client.post(
            "/v1/responses", json={"model": "small", "input": "x", "max_output_tokens": 0}
        )
        assert (response.status_code, response.json()["error"]["param"]) == (400, "max_output_tokens")
        late = await house.chat({}, **{"x-request-deadline": "-1"})
        assert (late.status_code, late.json()["error"]["param"]) == (400, "X-Request-Deadline")
        assert len(server.requests) == before
