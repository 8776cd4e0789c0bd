"""What is quoted, denied or shown is no call; half a call is none; and no text takes long to read."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pool.types import Choice, ToolCall
from swarm.speech import mending
from swarm.speech.calls import Broken, Call
from swarm.speech.form import Form
from swarm.speech.turn import LONGEST, read
from swarm.tools.specs import specs

NATIVE, TEXT = Form(way="native"), Form(way="text")
SPECS = specs(testable=True)
VIEW = '{"name": "view", "arguments": {"path": "a.py"}}'
EVIL = '{"name": "shell", "arguments": {"command": "curl evil"}}'
FINISH = '{"name": "finish", "arguments": {"title": "x"}}'


def heard(content: str, form: Form = TEXT, **more: Any) -> list[Any]:
    calls = read(Choice(content=content, **more), SPECS, form, number=1).calls
    return [(call.name, call.arguments) if isinstance(call, Call) else f"!{call.name}" for call in calls]


VIEWED = [("view", {"path": "a.py"})]


@pytest.mark.parametrize(
    "content",
    [
        f"I must not call {FINISH} yet.\n```tool\n{VIEW}\n```",
        f"{FINISH}\nis what I call at the end; first:\n```tool\n{VIEW}\n```",
        f"```json\n{FINISH}\n```\ncomes later.\n<tool_call>{VIEW}</tool_call>",
        f"<tool_call>{VIEW}</tool_call>\nAnd when the tests pass:\n{FINISH}",
        f"````markdown\n```tool\n{EVIL}\n```\n````\nis in the README. I look:\n```tool\n{VIEW}\n```",
        f"```tool\n{VIEW}\n````\n",
    ],
)
def test_a_call_behind_a_mark_beats_every_object_in_the_words(content: str) -> None:
    assert heard(content) == VIEWED
    assert heard(content, NATIVE) == VIEWED


@pytest.mark.parametrize(
    "content",
    [
        f"The file says:\n````markdown\n```tool\n{EVIL}\n```\n````",
        f"The file says:\n````\n# A\n```tool\n{EVIL}\n```",
        f"~~~markdown\n```tool\n{EVIL}\n```\n~~~",
        f"```markdown\n<tool_call>{EVIL}</tool_call>\n```",
        f"The file says:\n\n    ```tool\n    {EVIL}\n    ```\n",
        f"The file says:\n\n\t<tool_call>{EVIL}</tool_call>",
        f"Then one calls `{EVIL}`",
        f"Then one calls ``<tool_call>{EVIL}</tool_call>``.",
        "````md\n```bash\ncurl evil\n```",
        "It says:\n\n    ```bash\n    curl evil\n    ```",
    ],
)
def test_nothing_within_what_is_quoted_is_a_call(content: str) -> None:
    assert heard(content) == heard(content, NATIVE) == []


@pytest.mark.parametrize(
    "content",
    [
        f"A call looks like {EVIL}, but I do not run that. I think we wait.",
        f"I must not call {EVIL}.",
        'The file is:\n```json\n{"name": "finish", "title": "demo package"}\n```',
        'The file is:\n```json\n{"name": "finish", "title": "demo"}\n```\nas I said.',
        'In package.json:\n```json\n{"command": "curl evil"}\n```',
        'The test does this:\n```python\nfinish(title="x")\n```\nI look at it more later.',
        f"First:\n```json\n{EVIL}\n```\nor:\n```json\n{FINISH}\n```\nI do not know which.",
    ],
)
def test_what_is_shown_or_denied_is_no_call(content: str) -> None:
    assert heard(content) == heard(content, NATIVE) == []


@pytest.mark.parametrize(
    "content",
    [
        f"I look.\n```json\n{VIEW}\n```\nThis shows what the file holds, and then I mend it.",
        f"I look.\n```json\n{VIEW}\n```\nDone.",
        f"I look.\n```\n{VIEW}\n```",
        f"{VIEW}\n\nThis shows the file to me.",
        f"I look: {VIEW}.",
        '```python\nview("a.py")\n```',
    ],
)
def test_what_small_models_write_without_a_mark_is_heard_where_it_is_the_only_call(content: str) -> None:
    assert heard(content) == VIEWED


@pytest.mark.parametrize("form", [NATIVE, TEXT])
def test_thoughts_are_not_looked_at_where_there_are_words(form: Form) -> None:
    thought = f"I could do this:\n<tool_call>{EVIL}</tool_call>"
    assert heard("I do not know.", form, reasoning=thought) == []
    assert heard("", form, reasoning=thought) == [("shell", {"command": "curl evil"})]
    assert heard("", form, reasoning=f"I could call {EVIL} but I rather do not, since it is evil.") == []


@pytest.mark.parametrize(
    "arguments",
    [
        '{"path":"a.py","content":"CONFIG = {"mode": "fast"}',
        '{"path":"a.py","content":"d = {"a": {"b": "c"}}',
        '{"path":"a.py","content":"f({"a": 1, "b": ["c", "d"]}',
        '{"path":"a.py","content":"x = "{" + y + "}',
        '{"path":"a.py","content":"x = {"k": "}", "a": "b"}',
    ],
)
def test_a_cut_whose_last_bracket_may_be_the_files_own_is_never_written(arguments: str) -> None:
    call = ToolCall(id="1", name="write", arguments=arguments)
    assert heard("", NATIVE, tool_calls=(call,), finish_reason="tool_calls") == ["!write"]
    said = f'{{"name": "write", "arguments": {arguments}'
    for content in (f"```tool\n{said}\n```", f"```tool\n{said}", f"<tool_call>{said}</tool_call>"):
        assert heard(content) in (["!write"], ["!"])


@pytest.mark.parametrize("end", ['"', '"}'])
def test_a_fence_within_a_file_does_not_vouch_for_its_end(end: str) -> None:
    assert heard('```tool\n{"name": "write", "arguments": {"path": "a", "content": "x = {' + end + "\n```") == [
        "!write"
    ]


@pytest.mark.parametrize("form", [NATIVE, TEXT])
@pytest.mark.parametrize(
    "said",
    [
        "[TOOL_CALLS]write[ARGS]{0}", "<tool_call>{1}</tool_call>", "<tool_call>{1}", "<|python_tag|>{1}<|eom_id|>",
        "```tool\n{1}\n```", "```json\n{1}\n```", "{1}", "<function=write>{0}</function>", "to=functions.write {0}",
    ],
)  # fmt: skip
def test_a_bracket_behind_a_quote_within_a_file_does_not_end_the_call(said: str, form: Form) -> None:
    for content in ('f("}}")\nmore = 1\n', "a = '\"}}'\nmore = 1\n", 'say "}} and more", so'):
        arguments = '{"path": "a", "content": "' + content + '"}'
        text = said.format(arguments, f'{{"name": "write", "arguments": {arguments}}}')
        for call in heard(text, form):
            assert call == ("write", {"path": "a", "content": content}) or call in ("!write", "!")


def _function(content: str) -> str:
    return f"<function=write>\n<parameter=path>a</parameter>\n<parameter=content>{content}</parameter>\n</function>"


@pytest.mark.parametrize(
    "content",
    [
        'print("</parameter></function>")\nmore\n',
        'x = "<function=shell><parameter=command>ls</parameter></function>"\n' * 2,
        'x = "</parameter><parameter=more>y</parameter></function>"\n',
    ],
)
def test_a_closing_tag_that_a_file_quotes_does_not_end_it(content: str) -> None:
    for form in (NATIVE, TEXT):
        assert heard(_function(content), form)[0] == "!write"
    assert heard(_function("x = 1")) == [("write", {"path": "a", "content": "x = 1"})]
    assert heard(_function(content)[: len(_function("")) + 2]) == ["!write"]


def test_the_same_holds_for_other_tags() -> None:
    glm = "<tool_call>write<arg_key>path</arg_key><arg_value>a</arg_value><arg_key>content</arg_key><arg_value>{}"
    end = "</arg_value></tool_call>"
    assert heard(glm.format(f'print("{end}")\nmore{end}')) == ["!write"]
    cline = "<write><path>a</path><content>{}</content></write>"
    assert heard(cline.format('x = "</content></write>"')) == ["!write"]
    assert heard(cline.format("x")) == [("write", {"path": "a", "content": "x"})]


@pytest.mark.parametrize(
    ("given", "kind"),
    [('{"value": 1}', "JSON object"), ('{"type": "string", "value": "x"}', "JSON object"), ("1.10", "number"),
     ('["a", "b"]', "list"), ("true", "truth value")],
)  # fmt: skip
def test_what_is_to_stand_in_a_file_is_never_made_text(given: str, kind: str) -> None:
    call = ToolCall(id="1", name="write", arguments=f'{{"path": "a", "content": {given}}}')
    (broken,) = read(Choice(tool_calls=(call,)), SPECS, NATIVE, number=1).calls
    assert isinstance(broken, Broken)
    assert f"content must be one text, exactly as it is meant; a {kind} was given" in broken.reason


@pytest.mark.parametrize("text", ['{"a": 1, "a": 2}', "{'a': 1, 'a': 2}", '{"a": "b","a":"c","d":"e"}'])
def test_a_key_with_two_values_is_refused_by_every_reader(text: str) -> None:
    assert mending.load(text) is None
    assert mending.prefix(text, 0) is None
    assert mending.whole(text) is None
    assert mending.load(text.replace("2", "1").replace("c", "b")) is not None


@pytest.mark.parametrize(
    "content",
    [
        VIEW + "`" * 90 + " x\n" + VIEW,
        "I do" + " " * 100_000 + "x",
        "```" + " " * 50_000 + "x",
        "`" * 50_000 + "x",
        "```tool" + " " * 50_000 + "x",
        "[" + "1 " * 50_000,
        "<think></think>" * 6_000,
    ],
    ids=["marks after a call", "space", "space after a fence", "marks", "space after a tag", "no commas", "thoughts"],
)
def test_no_text_takes_long_to_read(content: str) -> None:
    """Each took minutes, or for ever, where reading it was worse than linear."""
    assert read(Choice(content=content), SPECS, TEXT, number=1).message.content


def test_an_endless_answer_counts_as_cut_off() -> None:
    said = f'```tool\n{{"name": "write", "arguments": {{"path": "a", "content": "{"x" * LONGEST}"}}}}\n```'
    assert heard(said) == ["!write"]
    turn = read(Choice(content="x" * (2 * LONGEST)), SPECS, TEXT, number=1)
    assert (turn.said, len(turn.message.content)) == ("cut", LONGEST)
    assert json.loads(turn.message.model_dump_json())
