"""No field reaches a server that would ignore it without a word."""

from __future__ import annotations

from typing import Any

import pytest

from pool.errors import PermanentError
from pool.types import ServerKind
from pool.wire.capability import Record, trait
from pool.wire.gate import Refusal, gate, gated, ordered

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}


def server(kind: ServerKind = "vllm", version: str | None = "0.32.0", **more: Any) -> Record:
    return Record(kind=kind, model="m", version=version, **more)


NEW, OLD, LLAMA, OTHER = server(), server(version="0.11.2"), server("llamacpp", None), server("other", None)


def refused(body: dict[str, Any], record: Record) -> str:
    out = gate(body, record)
    assert isinstance(out, Refusal), out
    return out.field


@pytest.mark.parametrize(
    ("old", "value", "form"),
    [
        ("guided_json", SCHEMA, "json"),
        ("guided_regex", "a+", "regex"),
        ("guided_choice", ["a", "b"], "choice"),
        ("guided_grammar", 'root ::= "a"', "grammar"),
    ],
)
def test_removed_guided_fields_are_said_in_the_new_words(old: str, value: Any, form: str) -> None:
    """vllm-project/vllm#53975: since 0.12 they are ignored with 200 and unconstrained text."""
    for body in ({"prompt": "x", old: value}, {"messages": [], old: value}):
        out = gated(body, NEW)
        assert out["structured_outputs"] == {form: value}
        assert old not in out
        assert gated(body, OLD)[old] == value


def test_new_words_are_said_in_the_old_ones_to_an_old_server() -> None:
    asked = {"prompt": "x", "structured_outputs": {"json": SCHEMA, "whitespace_pattern": " ?"}}
    out = gated(asked, OLD)
    assert out["guided_json"] == SCHEMA
    assert out["guided_whitespace_pattern"] == " ?"
    assert "structured_outputs" not in out
    assert refused({"prompt": "x", "structured_outputs": {"structural_tag": {}, "json_object": True}}, OLD)


def test_old_hints_about_white_space_are_kept() -> None:
    body = {"prompt": "x", "guided_json": SCHEMA, "guided_decoding_backend": "xgrammar:disable-any-whitespace"}
    assert gated(body, NEW)["structured_outputs"] == {"json": SCHEMA, "disable_any_whitespace": True}


def test_two_wishes_for_a_form_are_refused_since_servers_differ_in_which_one_wins() -> None:
    body = {"prompt": "x", "guided_json": SCHEMA, "response_format": {"type": "json_object"}}
    for record in (NEW, OLD, LLAMA, OTHER):
        assert "more than one form" in str(gate(body, record))


def test_llamacpp_fields_are_said_in_the_words_of_vllm() -> None:
    out = gated({"prompt": "x", "grammar": 'root ::= "a"', "repeat_penalty": 1.2, "n_predict": 5}, NEW)
    assert out == {
        "prompt": "x",
        "structured_outputs": {"grammar": 'root ::= "a"'},
        "repetition_penalty": 1.2,
        "max_tokens": 5,
    }
    out = gated({"prompt": "x", "json_schema": {"x-guidance": {"whitespace_flexible": False}, **SCHEMA}}, NEW)
    assert out["structured_outputs"] == {"json": SCHEMA}


def test_schema_beside_json_object_is_not_lost() -> None:
    """llama.cpp takes a schema there, vLLM ignores it and answers with any object."""
    body = {"messages": [], "response_format": {"type": "json_object", "schema": SCHEMA}}
    for record in (NEW, OLD, LLAMA, OTHER):
        assert gated(body, record)["response_format"]["json_schema"]["schema"] == SCHEMA


def test_raw_completion_with_a_schema_gets_it_where_somebody_heeds_it() -> None:
    body = {"prompt": "x", "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}}}
    assert gated(body, NEW)["response_format"] == body["response_format"]
    assert gated(body, LLAMA)["json_schema"]["properties"] == SCHEMA["properties"]
    assert refused(body, OTHER) == "response_format"


def test_choice_is_a_grammar_for_llamacpp_and_cannot_break_out_of_it() -> None:
    out = gated({"prompt": "x", "guided_choice": ['a"b', "c\n| evil"]}, LLAMA)
    assert out["grammar"] == r'root ::= "a\"b" | "c\n| evil"'
    assert refused({"prompt": "x", "guided_regex": "a+"}, LLAMA) == "guided_regex"


def test_schema_as_text_that_is_no_json_is_refused() -> None:
    assert refused({"prompt": "x", "guided_json": "{"}, NEW) == "guided_json"
    assert gated({"prompt": "x", "guided_json": "{}"}, NEW)["structured_outputs"] == {"json": {}}


def test_priority_goes_only_where_it_is_honoured() -> None:
    """vllm-project/vllm#11361, #23347: under fcfs it is taken and ignored."""
    honours = server(traits={"priority": trait("vllm", "priority", "yes", "told")})
    assert gated({"prompt": "x", "priority": -3}, honours)["priority"] == -3
    for record in (NEW, LLAMA, OTHER):
        with pytest.raises(PermanentError, match="--scheduling-policy priority"):
            gated({"prompt": "x", "priority": -3}, record)
        assert gated({"prompt": "x", "priority": 0}, record) == {"prompt": "x"}


@pytest.mark.parametrize(
    ("told", "meant"), [(-1, "interactive"), (0, "default"), (7, "bulk"), (None, None), ("x", None), (True, None)]
)
def test_priority_of_a_client_is_a_class_of_ours(told: Any, meant: str | None) -> None:
    body = {"prompt": "x", "priority": told}
    assert ordered(body) == ({"prompt": "x"}, meant)
    assert body["priority"] == told


def test_seed_never_reaches_a_vllm_on_cpu() -> None:
    """One seeded request whose prompt is prefilled in chunks kills the whole server there."""
    assert refused({"prompt": "x", "seed": 1}, server(on_cpu=True)) == "seed"
    for record in (server(on_cpu=False), NEW, LLAMA, OTHER):
        assert gated({"prompt": "x", "seed": 1}, record)["seed"] == 1


@pytest.mark.parametrize(
    ("record", "name"), [(NEW, "reasoning"), (OLD, "reasoning_content"), (LLAMA, "reasoning_content")]
)
def test_past_reasoning_goes_under_the_name_that_is_read(record: Record, name: str) -> None:
    """vllm-project/vllm#38488, vllm-project/router#115: under the other name it is lost."""
    for told in ("reasoning", "reasoning_content"):
        body = {"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a", told: "thought"}]}
        (_, answer) = gated(body, record)["messages"]
        assert answer == {"role": "assistant", "content": "a", name: "thought"}
        assert told in body["messages"][1]


def test_fields_of_another_server_are_refused_and_their_defaults_dropped() -> None:
    assert refused({"prompt": "x", "mirostat": 2}, NEW) == "mirostat"
    assert gated({"prompt": "x", "mirostat": 0, "cache_prompt": True, "id_slot": 1}, NEW) == {"prompt": "x"}
    assert refused({"prompt": "x", "min_tokens": 4}, LLAMA) == "min_tokens"
    assert refused({"prompt": "x", "cache_salt": "s"}, LLAMA) == "cache_salt"
    assert gated({"prompt": "x", "min_tokens": 0, "session_id": "s"}, OTHER) == {"prompt": "x"}


def test_fields_wait_for_the_version_that_knows_them() -> None:
    assert refused({"prompt": "x", "truncation_side": "left"}, server(version="0.20.2")) == "truncation_side"
    assert gated({"prompt": "x", "truncation_side": "left"}, server(version="0.24.0"))["truncation_side"] == "left"
    wanted = {"prompt": "x", "return_weight_versions": True}
    assert refused(wanted, server(version="0.32.0")) == "return_weight_versions"
    assert gated(wanted, server(version="0.33.0")) == wanted
    assert "session_id" not in gated({"prompt": "x", "session_id": "s"}, server(version="0.27.1"))
    assert gated({"prompt": "x", "session_id": "s"}, server(version="0.30.0rc1"))["session_id"] == "s"
    assert gated({"prompt": "x", "session_id": "s"}, server(version=None))["session_id"] == "s"


def test_two_names_for_one_thing_must_agree() -> None:
    assert refused({"prompt": "x", "repeat_penalty": 1.1, "repetition_penalty": 1.2}, NEW) == "repeat_penalty"
    assert gated({"prompt": "x", "repeat_penalty": 1.1, "repetition_penalty": 1.1}, NEW)["repetition_penalty"] == 1.1


def test_tools_are_refused_only_where_they_were_seen_not_to_work() -> None:
    mute = server(traits={"tools": trait("vllm", "tools", "no", "the call came as text")})
    body = {"messages": [], "tools": [{"type": "function"}]}
    with pytest.raises(PermanentError, match="--enable-auto-tool-choice"):
        gated(body, mute)
    assert gated(body | {"tool_choice": "required"}, mute)["tools"]
    assert gated(body, NEW)["tools"]
    loose = server(traits={"forced_tools": trait("vllm", "forced_tools", "no", "it refuses")})
    assert gated(body, loose)["tools"]
    with pytest.raises(PermanentError, match="--tool-call-parser"):
        gated(body | {"tool_choice": {"type": "function", "function": {"name": "f"}}}, loose)


def test_body_of_the_caller_is_left_alone_and_what_no_table_names_passes() -> None:
    body = {"messages": [{"role": "user"}], "temperature": 0, "top_k": 4, "vendor_thing": {"a": 1}, "stop": None}
    before = dict(body)
    out = gated(body, NEW)
    assert body == before
    assert out == {key: value for key, value in before.items() if key != "stop"}


@pytest.mark.parametrize("record", [LLAMA, OTHER])
def test_an_echo_is_asked_for_only_where_it_is_honoured(record: Record) -> None:
    body = {"prompt": "x", "echo": True, "logprobs": 1, "max_tokens": 0}
    assert refused(body, record) == "echo"
    assert gated(body, NEW) == body
    assert gated({"prompt": "x", "echo": False}, record)["prompt"] == "x"
