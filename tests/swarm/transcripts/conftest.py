"""Small transcripts and trajectories, made here: what each program writes, in its own form."""

from __future__ import annotations

import json
from typing import Any

import pytest

from swarm.transcripts import journal
from swarm.transcripts.shape import Agent, Header, Transcript
from swarm.types import Step


def line(seq: int, kind: str, **data: Any) -> Step:
    return Step(task="t1", attempt="t1-1-abcd", seq=seq, at=1_700_000_000.0 + seq, kind=kind, data=data)


def asked(content: str, *calls: tuple[str, str, str]) -> dict[str, Any]:
    """A model's message, its calls as (id, name, arguments)."""
    made = [{"id": id_, "name": name, "arguments": arguments} for id_, name, arguments in calls]
    return {"role": "assistant", "content": content, **({"tool_calls": made} if made else {})}


USAGE = {"prompt_tokens": 100, "completion_tokens": 20, "cached_tokens": 80, "seconds": 1.5, "waited": 0.1}
NATIVE = (
    line(1, "phase_started", phase="work"),
    line(
        2,
        "note",
        text="the conversation begins",
        about="opening",
        native=True,
        messages=[{"role": "system", "content": "You mend."}, {"role": "user", "content": "Mend add."}],
    ),
    line(
        3,
        "model_call",
        endpoint="box",
        model="qwen",
        reasoning="a sign?",
        **USAGE,
        message=asked("I look.", ("c1", "view", '{"path": "a.py"}'), ("c2", "shell", "{broken")),
    ),
    line(4, "command", tool="view", text="1: a", message={"role": "tool", "content": "1: a - b", "tool_call_id": "c1"}),
    line(
        5,
        "command",
        tool="shell",
        exit_code=2,
        seconds=0.2,
        message={"role": "tool", "content": "no", "tool_call_id": "c2"},
    ),
    line(6, "salvage", ref="refs/salvage/x", tree="1" * 40),
    line(7, "message", author="ann", text="hurry", message={"role": "user", "content": "ann says: hurry"}),
    line(8, "model_call", endpoint="box", model="qwen", **USAGE, message=asked("done")),
    line(9, "note", text="a nudge: no tool was called", message={"role": "user", "content": "Call a tool."}),
    line(10, "sealed", tree="1" * 40, files=["a.py"]),
)
HEADER = Header(agent=Agent(name="agent-swarm", version="1"), task="t1", attempt="t1-1-abcd", tier="small")
MINI_1 = {
    "info": {
        "exit_status": "Submitted",
        "submission": "diff --git a/a b/a",
        "model_stats": {"instance_cost": 0.5, "api_calls": 1},
        "mini_version": "1.17.5",
        "config": {"model": {"model_name": "openai/small"}},
    },
    "messages": [
        {"role": "system", "content": "sys"},
        {"role": "user", "content": "task"},
        {"role": "assistant", "content": "THOUGHT: look\n```bash\nls\n```"},
        {"role": "user", "content": "<returncode>0</returncode>\n<output>a.py</output>"},
    ],
    "trajectory_format": "mini-swe-agent-1",
}
MINI_2 = {
    "info": {"exit_status": "Submitted", "submission": "", "mini_version": "2.4.6"},
    "messages": [
        {"role": "system", "content": "sys"},
        {"role": "user", "content": "task"},
        {
            "role": "assistant",
            "content": None,
            "reasoning_content": "hm",
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "bash", "arguments": '{"command": "ls"}'}}
            ],
            "extra": {
                "actions": [{"command": "ls", "tool_call_id": "c1"}],
                "response": {
                    "model": "small",
                    "usage": {
                        "prompt_tokens": 10,
                        "completion_tokens": 2,
                        "prompt_tokens_details": {"cached_tokens": 8},
                    },
                },
                "cost": 0.25,
                "timestamp": 1_700_000_000.5,
            },
        },
        {
            "role": "tool",
            "tool_call_id": "c1",
            "content": "a.py",
            "extra": {"raw_output": "a.py", "returncode": 1, "timestamp": 1_700_000_001.0, "exception_info": None},
        },
        {"role": "user", "content": "no call found", "extra": {"interrupt_type": "FormatError"}},
        {"role": "exit", "content": "", "extra": {"exit_status": "Submitted", "submission": ""}},
    ],
    "trajectory_format": "mini-swe-agent-1.1",
}
MINI_RESPONSES = {
    "info": {"mini_version": "2.4.6"},
    "messages": [
        {"role": "system", "content": "sys"},
        {"role": "user", "content": "task"},
        {
            "object": "response",
            "model": "small",
            "output": [
                {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]},
                {"type": "message", "content": [{"type": "output_text", "text": "I look."}]},
                {"type": "function_call", "call_id": "c1", "name": "bash", "arguments": '{"command": "ls"}'},
            ],
            "usage": {"input_tokens": 10, "output_tokens": 2, "input_tokens_details": {"cached_tokens": 4}},
            "extra": {"cost": 0.0, "timestamp": 1_700_000_000.5},
        },
        {"type": "function_call_output", "call_id": "c1", "output": "a.py", "extra": {"returncode": 0}},
    ],
    "trajectory_format": "mini-swe-agent-1.1",
}
SWE_AGENT = {
    "environment": "main",
    "trajectory": [
        {
            "action": "ls",
            "observation": "a.py",
            "response": "I look.",
            "thought": "I look.",
            "execution_time": 0.25,
            "state": {"open_file": "n/a"},
            "query": [{"role": "system", "content": "all of it again"}],
        }
    ],
    "history": [
        {"role": "system", "content": "sys", "agent": "main", "message_type": "system_prompt"},
        {"role": "user", "content": "a demonstration", "is_demo": True},
        {"role": "assistant", "content": "as shown", "is_demo": True},
        {"role": "user", "content": "task", "agent": "main"},
        {
            "role": "assistant",
            "content": "I look.",
            "thought": "I look.",
            "action": "ls",
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "bash", "arguments": '{"command":"ls"}'}}
            ],
        },
        {"role": "tool", "content": "a.py", "tool_call_ids": ["c1"]},
    ],
    "info": {
        "exit_status": "submitted",
        "submission": "diff",
        "model_stats": {"tokens_sent": 30, "tokens_received": 4, "api_calls": 1, "instance_cost": 0.0},
    },
    "replay_config": json.dumps({"agent": {"model": {"name": "gpt-small"}}}),
}


@pytest.fixture
def made() -> Transcript:
    """Of an attempt of our own, with native calls."""
    return journal.transcript(HEADER, NATIVE, ending="finished", reason="done")
