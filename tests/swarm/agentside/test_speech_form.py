"""How a tier is spoken to: from what was seen of it, its model's family and the settings; and what is sent then."""

from __future__ import annotations

import json
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from pydantic import ValidationError

from pool.types import ChatRequest, Choice, Message, Traits
from swarm.config import Settings
from swarm.manners import Manners
from swarm.speech.families import FAMILIES, family_of
from swarm.speech.form import Form, choose
from swarm.speech.schema import schema
from swarm.speech.told import nudge, protocol
from swarm.speech.turn import read
from swarm.tools.specs import specs

SPECS = specs(testable=True)
QWEN = "Qwen/Qwen3-32B-AWQ"


def request(form: Form) -> ChatRequest:
    message = Message(role="user", content="hi")
    return ChatRequest(tier="t", session="s", messages=(message,), **form.fields(SPECS))


@pytest.mark.parametrize(
    ("traits", "way"),
    [
        (Traits(native=True), "native"),
        (Traits(native=True, structured=True), "native"),
        (Traits(structured=True), "constrained"),
        (Traits(), "text"),
        (Traits(model=QWEN, structured=True), "text"),  # it thinks in its answer, which a schema forbids
        (Traits(model=QWEN, structured=True, reasoning=True), "constrained"),
        (Traits(model="gpt-4-native-tools"), "text"),  # a name tells nothing of what works
    ],
)
def test_the_way_follows_what_was_seen_and_never_a_name(traits: Traits, way: str) -> None:
    assert choose(traits).way == way


@pytest.mark.parametrize(
    ("model", "family"),
    [
        ("Qwen/Qwen3-Coder-30B-A3B-Instruct", "Qwen3-Coder"),
        ("qwen3-coder-next-fp8", "Qwen3-Coder-Next"),
        ("Qwen3-30B-A3B-Thinking-2507", "Qwen3-Thinking"),
        ("Qwen3-Next-80B-A3B-Instruct", "Qwen3-Instruct"),
        ("Qwen/Qwen3.5-27B", "Qwen3.5"),
        ("Qwen2.5-Coder-1.5B-Instruct.Q4_K_M.gguf", "Qwen2.5"),
        ("zai-org/GLM-4.5-Air", "GLM-4.5"),
        ("openai/gpt-oss-20b", "gpt-oss"),
        ("DeepSeek-R1-Distill-Qwen-7B", "DeepSeek-R1"),
        ("deepseek-ai/DeepSeek-V3.1", "DeepSeek-V3.1"),
        ("mistralai/Devstral-Small-2507", "Mistral"),
        ("meta-llama/Llama-3.3-70B-Instruct", "Llama 3"),
        ("google/gemma-3-27b-it", "Gemma 3"),
        ("microsoft/Phi-4-mini-instruct", "Phi-4"),
        ("HuggingFaceTB/SmolLM3-3B", "SmolLM3"),
        ("ibm-granite/granite-4.0-h-small", "Granite"),
        ("moonshotai/Kimi-K2-Instruct", "Kimi-K2"),
        ("MiniMaxAI/MiniMax-M2.1", "MiniMax-M2"),
        ("our-own-finetune", "neutral"),
        ("", "neutral"),
    ],
)
def test_a_family_is_found_by_the_names_that_its_models_are_served_under(model: str, family: str) -> None:
    assert family_of(model).name == family


def test_an_unknown_model_is_sampled_as_its_server_likes() -> None:
    sent = request(choose(Traits(model="our-own-finetune", native=True)))
    assert sent == ChatRequest(tier="t", session="s", messages=sent.messages, tools=SPECS)


def test_a_familys_sampling_is_sent() -> None:
    sent = request(choose(Traits(model="Qwen3-Coder-30B-A3B-Instruct", native=True)))
    assert (sent.temperature, sent.sampling.top_p, sent.sampling.top_k) == (0.7, 0.8, 20)
    assert sent.sampling.repetition_penalty == 1.05


def test_thinking_that_is_switched_off_changes_the_template_and_the_sampling() -> None:
    sent = request(choose(Traits(model=QWEN, native=True), {"qwen3-32b*": Manners(thinking=False)}))
    assert sent.template == {"enable_thinking": False}
    assert (sent.temperature, sent.sampling.top_p) == (0.7, 0.8)
    assert request(choose(Traits(model=QWEN, native=True))).template == {}


@pytest.mark.parametrize(
    ("manners", "sent"),
    [
        ({"temperature": 0.3}, {"temperature": 0.3}),
        ({"top_p": 0.5}, {"sampling": {"top_p": 0.5}}),
        ({"top_k": 7}, {"sampling": {"top_k": 7}}),
        ({"min_p": 0.1}, {"sampling": {"min_p": 0.1}}),
        ({"repetition_penalty": 1.2}, {"sampling": {"repetition_penalty": 1.2}}),
        ({"presence_penalty": 0.4}, {"sampling": {"presence_penalty": 0.4}}),
        ({"stop": ("</s>",)}, {"stop": ("</s>",)}),
        ({"effort": "low"}, {"effort": "low"}),
    ],
)
def test_each_setting_of_a_model_changes_what_is_sent(manners: dict[str, Any], sent: dict[str, Any]) -> None:
    form = choose(Traits(model="a/model", native=True), {"model": Manners.model_validate(manners)})
    told = request(form).model_dump(exclude_defaults=True, exclude={"tier", "session", "messages", "tools"})
    told["sampling"] = {key: value for key, value in told.get("sampling", {}).items() if value is not None}
    assert {key: value for key, value in told.items() if value} == sent


@pytest.mark.parametrize(
    ("speak", "traits", "way"),
    [
        ("text", Traits(model="m", native=True), "text"),
        ("constrained", Traits(model="m", native=True, structured=True), "constrained"),
        ("constrained", Traits(model="m", native=True), "text"),
        ("native", Traits(model="m"), "text"),  # what was seen not to work is not tried
    ],
)
def test_a_way_to_speak_can_be_set_among_those_that_work(speak: Any, traits: Traits, way: str) -> None:
    assert choose(traits, {"m": Manners(speak=speak)}).way == way


def test_settings_of_thoughts_and_turns_reach_the_form() -> None:
    form = choose(Traits(model="m"), {"m": Manners(reasoning="keep", strict_turns=True)})
    assert form.keeps_reasoning
    assert form.strict_turns


def test_the_most_particular_pattern_counts() -> None:
    set_ = {"*": Manners(top_k=1), "qwen*": Manners(top_k=2), "qwen3-32b": Manners(top_k=3)}
    assert [choose(Traits(model=m), set_).sampling.top_k for m in ("x", "Qwen2", "Qwen3-32B")] == [1, 2, 3]


def test_models_are_set_in_the_file_of_settings_by_pattern() -> None:
    told = Settings.model_validate({"models": {"qwen3-*": {"top_k": 5, "speak": "text"}}}).models
    form = choose(Traits(model="Qwen/Qwen3-8B", native=True), told)
    assert (form.sampling.top_k, form.way) == (5, "text")
    with pytest.raises(ValidationError, match="top_q"):
        Settings.model_validate({"models": {"m": {"top_q": 5}}})


def test_a_call_is_demanded_only_where_calls_are_native() -> None:
    assert Form(way="native").fields(SPECS, demanded=True)["tool_choice"] == "required"
    assert "tool_choice" not in Form(way="native").fields(SPECS)
    for way in ("text", "constrained"):
        assert "tool_choice" not in Form(way=way).fields(SPECS, demanded=True)  # type: ignore[arg-type]


def test_a_form_out_of_the_journal_is_the_same() -> None:
    form = choose(Traits(model=QWEN, native=True))
    assert Form.model_validate(json.loads(json.dumps(form.model_dump(mode="json")))) == form


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_thoughts_are_only_said_to_be_kept_of_families_that_think(family: Any) -> None:
    assert family.thinks or family.switch or family.manners.reasoning in (None, "loop")


def test_the_schema_takes_each_tools_calls_and_nothing_else() -> None:
    check = Draft202012Validator(schema(SPECS)).is_valid
    call = {"thought": "I look.", "name": "view", "arguments": {"path": "a.py"}}
    assert check(call)
    assert not check({**call, "name": "fly"})
    assert not check({**call, "arguments": {"command": "ls"}})
    assert not check({"name": "view", "arguments": {"path": "a.py"}})


def test_the_schema_holds_nothing_that_grammars_stumble_over() -> None:
    told = json.dumps(schema(SPECS))
    for word in (
        "description",
        "minLength",
        "maxLength",
        'pattern":',
        "exclusiveMinimum",
        "format",
        "$ref",
        'title": "',
    ):
        assert f'"{word}' not in told.replace('"pattern": {', "").replace('"title": {', "")


def test_the_thought_comes_first_so_that_the_model_may_think_before_it_is_bound() -> None:
    assert all(list(one["properties"]) == ["thought", "name", "arguments"] for one in schema(SPECS)["anyOf"])


def test_what_is_told_of_the_protocol_is_read_as_what_it_means() -> None:
    for form in (Form(way="text"), Form(way="constrained", shape="object")):
        told = protocol(form, SPECS)
        example = next(part for part in told.split("\n\n") if '"name": "view"' in part)
        (call,) = read(Choice(content=example), SPECS, form, number=1).calls
        assert (call.name, call.arguments) == ("view", {"path": "README.md"})  # type: ignore[union-attr]
        assert all(tool.name in told for tool in SPECS)
    assert protocol(Form(way="native"), SPECS) == ""


@pytest.mark.parametrize("way", ["native", "text", "constrained"])
def test_each_kind_of_silence_is_answered_in_words_of_its_own(way: Any) -> None:
    form = Form(way=way, shape="object" if way == "constrained" else "fenced")
    told = {nudge(said, form) for said in ("words", "thought", "nothing", "cut")}
    assert len(told) == 4
    assert all("call finish" in one for one in told)


def test_a_schema_that_was_refused_leaves_the_words_as_they_are() -> None:
    held = Form(way="constrained", shape="object")
    loose = held.loosened()
    assert "json_schema" in held.fields(SPECS)
    assert "json_schema" not in loose.fields(SPECS)
    assert protocol(loose, SPECS) == protocol(held, SPECS)
    assert loose.loosened() == loose
