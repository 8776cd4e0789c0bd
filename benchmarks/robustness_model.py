"""A scripted model for `agent_robustness`: it knows how to do a small task, and makes one known fault at a given rate.

It speaks through a pretend vLLM over real HTTP to whichever agent asks: from the tools that are offered it knows how to
say its next step, and from what came back since whether the last one was done. Which of its answers are faulty depends
on a seed and on how often it was asked, so that both agents meet the same faults. As a real vLLM does, its server
refuses a history that holds a call whose arguments are no JSON object (vllm-project/vllm#53269).
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pool.pretend.script import Recorded, Scripted, error
from pool.types import Choice, ToolCall

TASK = "total.sh prints a wrong sum: `sh check.sh` fails. Mend total.sh so that it passes."
TESTS = "sh check.sh"
FILES = {
    "total.sh": "# prints the sum of two numbers\na=$1\nb=$2\necho $((a - b))\n",
    "check.sh": 'test "$(sh total.sh 2 3)" = 5 && test "$(sh total.sh 0 7)" = 7 && echo ALL-PASSED\n',
    "big.log": "".join(f"{number:05d} nothing of interest happened here\n" for number in range(1500)),
}
SUBMIT = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
POISON = "<|reserved_special_token_7|>"
WORDS = (
    "I will now look at the file and mend what is wrong with it.",
    "Let me begin with the check, to see what it wants.",
    "The sum must be wrong somewhere. I look into it next.",
    "First I read total.sh, then I change it, then I run the check.",
    "I am going to work on this step by step.",
    "Sure! I can help with that. The file needs a small change.",
    "To mend the sum we have to find the line that computes it.",
    "Next I would open total.sh and read its last line.",
)
Arguments = dict[str, Any]


@dataclass(frozen=True)
class Step:
    """One step of the plan, as each agent's tools say it, and what in a result shows that it was done."""

    ours: tuple[str, Arguments]
    theirs: str
    shows: tuple[str, ...]

    def call(self, *, bash: bool) -> tuple[str, Arguments]:
        """The call by the tools that are offered."""
        return ("bash", {"command": self.theirs}) if bash else self.ours


PLAN = (
    Step(("view", {"path": "total.sh"}), "cat total.sh", ("a - b",)),
    Step(
        ("edit", {"path": "total.sh", "search": "echo $((a - b))", "replace": "echo $((a + b))"}),
        "sed -i 's/a - b/a + b/' total.sh && cat total.sh",
        ("a + b",),
    ),
    Step(("run_tests", {}), TESTS, ("ALL-PASSED",)),
    Step(("finish", {"title": "Mend the sum", "summary": "It subtracted."}), SUBMIT, ()),
)
_OURS = {"view": "read_file", "edit": "str_replace", "run_tests": "test", "finish": "submit"}
_KEYS = {"command": "cmd", "path": "file_path", "search": "old_str", "replace": "new_str", "title": "name"}


def native(name: str, arguments: str, content: str = "", reasoning: str = "") -> Choice:
    """An answer with a call where it belongs."""
    call = ToolCall(id=f"call-{name}", name=name, arguments=arguments)
    return Choice(content=content, reasoning=reasoning, tool_calls=(call,), finish_reason="tool_calls")


def hermes(name: str, arguments: Arguments) -> str:
    """A call as text."""
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


@dataclass
class Model:
    """Answers one agent's run. ``fault`` is one of `FAULTS` or empty, ``rate`` the share of answers that have it."""

    fault: str
    rate: float
    seed: str
    at: int = 0
    asked: int = 0
    seen: int = 0
    faulty: int = 0
    refused: int = 0
    random: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)  # noqa: S311  both agents are to meet the same faults

    def __call__(self, recorded: Recorded) -> Scripted | None:
        """The next answer, or the refusal of a poisoned history."""
        body = recorded.body
        if "tools" not in body:
            return None
        if poisoned(body["messages"]):
            self.refused += 1
            return error(400, "Expecting ',' delimiter: line 1 column 12 (char 11)")
        self._look(body["messages"])
        self.asked += 1
        bash = any(tool["function"]["name"] == "bash" for tool in body["tools"])
        wrong = self.random.random() < self.rate
        self.faulty += wrong
        if wrong and self.fault and body.get("tool_choice") != "required":  # a grammar holds it to a call then
            return FAULTS[self.fault](self, bash)
        return self.say(PLAN[self.at], bash)

    def say(self, step: Step, bash: bool) -> Choice:  # noqa: FBT001  how every fault is called
        """A step, said well."""
        name, arguments = step.call(bash=bash)
        return native(name, json.dumps(arguments), content="I go on.")

    def _look(self, messages: list[Any]) -> None:
        """Go on in the plan where a result since shows that a step was done. What was elided later stays seen."""
        new = messages[self.seen :] if len(messages) >= self.seen else messages[2:]
        self.seen = len(messages)
        told = "\n".join(str(one.get("content")) for one in new if one.get("role") in ("tool", "user"))
        while self.at < len(PLAN) - 1 and self.asked and any(mark in told for mark in PLAN[self.at].shows):
            self.at += 1


def poisoned(messages: list[Any]) -> bool:
    """Whether a server's chat template would choke on what an assistant is said to have said."""
    for message in messages:
        if message.get("role") != "assistant":
            continue
        if POISON in str(message.get("content")):
            return True
        for call in message.get("tool_calls") or ():
            try:
                arguments = json.loads(call["function"]["arguments"])
            except ValueError:
                return True
            if not isinstance(arguments, dict):
                return True
    return False


def _said(model: Model, bash: bool) -> tuple[str, Arguments]:  # noqa: FBT001
    return PLAN[model.at].call(bash=bash)


def _in_content(model: Model, bash: bool) -> Choice:  # noqa: FBT001
    return Choice(content=f"I go on.\n{hermes(*_said(model, bash))}")


def _in_reasoning(model: Model, bash: bool) -> Choice:  # noqa: FBT001
    return Choice(reasoning=f"I have to go on.\n{hermes(*_said(model, bash))}")


def _all_in_reasoning(model: Model, bash: bool) -> Choice:  # noqa: FBT001
    name, arguments = _said(model, bash)
    told = json.dumps({"name": name, "arguments": arguments})
    return Choice(reasoning=f"I have thought about it.\n\nI go on with this:\n```json\n{told}\n```")


def _broken_json(model: Model, bash: bool) -> Choice:  # noqa: FBT001
    name, arguments = _said(model, bash)
    return native(name, repr(arguments).replace("}", ",}") if arguments else "{}}")


def _cut_json(model: Model, bash: bool) -> Choice:  # noqa: FBT001
    name, arguments = _said(model, bash)
    return native(name, json.dumps(arguments or {"why": "to see whether it passes"})[:-4])


def _wrong_tool(model: Model, bash: bool) -> Choice:  # noqa: FBT001
    name, arguments = _said(model, bash)
    return native("execute_command" if bash else _OURS[name], json.dumps(arguments))


def _wrong_argument(model: Model, bash: bool) -> Choice:  # noqa: FBT001
    name, arguments = _said(model, bash)
    return native(name, json.dumps({_KEYS.get(key, key): value for key, value in arguments.items()}))


def _several(model: Model, bash: bool) -> Choice:  # noqa: FBT001
    """All that is left before the end in one answer, though the later steps rest on what the first ones give."""
    calls = [step.call(bash=bash) for step in (PLAN[model.at : -1] or PLAN[-1:])]
    asked = tuple(ToolCall(id=f"call-{n}", name=name, arguments=json.dumps(a)) for n, (name, a) in enumerate(calls))
    return Choice(tool_calls=asked, finish_reason="tool_calls")


def _repeated(model: Model, bash: bool) -> Choice:  # noqa: FBT001
    return model.say(PLAN[0], bash)


def _special_tokens(model: Model, bash: bool) -> Choice:  # noqa: FBT001
    name, arguments = _said(model, bash)
    told = json.dumps([{"name": name, "arguments": arguments}])
    return Choice(content=f"<|im_start|>assistant\n<|tool_call|>{told}<|/tool_call|><|im_end|>")


def _poisoned(model: Model, bash: bool) -> Choice:  # noqa: FBT001
    """A good call, and beside it a special token that the server's template refuses ever after."""
    name, arguments = _said(model, bash)
    return native(name, json.dumps(arguments), content=f"I go on. {POISON}")


def _long(model: Model, bash: bool) -> Choice:  # noqa: FBT001
    """A look at something long, another part each time, until the window is full."""
    command = f"tail -n {1500 - model.asked} big.log"
    return model.say(Step(("shell", {"command": command}), command, ()), bash)


FAULTS: dict[str, Callable[[Model, bool], Choice]] = {
    "call_in_content": _in_content,
    "call_in_reasoning": _in_reasoning,
    "answer_in_reasoning": _all_in_reasoning,
    "broken_json": _broken_json,
    "cut_json": _cut_json,
    "wrong_tool_name": _wrong_tool,
    "wrong_argument_name": _wrong_argument,
    "several_calls": _several,
    "repeated_call": _repeated,
    "special_tokens": _special_tokens,
    "poisoned_history": _poisoned,
    "empty_turn": lambda *_: Choice(),
    "reasoning_only": lambda model, _: Choice(reasoning=model.random.choice(WORDS)),
    "prose_only": lambda model, _: Choice(content=model.random.choice(WORDS)),
    "overflow": _long,
}
"""What an answer is instead, by the fault's name."""
