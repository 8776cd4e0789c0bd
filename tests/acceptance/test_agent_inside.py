"""mini-swe-agent, aider, Codex, opencode and Qwen Code, unmodified, do a task inside a bubblewrap sandbox: installed by
the set-up phase from the package registries, their models reached through the sandbox's one way out, the change sealed,
checked and delivered.

The models are a pretend server that follows a script, and the embedded one, real and tiny, held to a form by a grammar.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from house import House
from pool.pretend.script import Recorded, Scripted
from pool.testing import PretendServer, call
from stack import Layout, Stack, git, prepare, weights
from swarm.agents import RECIPES
from swarm.transcripts import lines
from tests.acceptance.conftest import SAMPLE, WORDS
from tests.acceptance.scripted import scripted

pytestmark = [pytest.mark.clients, pytest.mark.root, pytest.mark.model, pytest.mark.timeout(1200)]

PROBE = """python3 - <<'END'
import json, os, socket, subprocess

def tries(host, port):
    try:
        socket.create_connection((host, port), 2).close()
    except OSError as error:
        return str(error)
    return "reached"

try:
    found = str(socket.getaddrinfo("pypi.org", 443))
except OSError as error:
    found = str(error)
grep = "grep -rlE 'canary-[0-9a-f]{{48}}' /home /tmp /work /etc /run /var /proc/[0-9]*/environ 2>/dev/null"
told = {{
    "env": dict(os.environ),
    "found": found,
    "outside": tries("192.0.2.1", 443),
    "server": tries("127.0.0.1", {port}),
    "registries": tries("127.0.0.1", 8089),
    "models": tries("127.0.0.1", 8088),
    "routes": open("/proc/net/route").read().splitlines()[1:],
    "canary": subprocess.run(grep, shell=True, capture_output=True, text=True).stdout,
    "user": os.getuid(),
}}
print("PROBED" + json.dumps(told))
END"""
MEND = "sed -i '/value > high/{n;s/low/high/}' meterkit/scale.py && python3 -m pytest -q 2>&1 | tail -n 1"
PYTHON_3_12 = any(Path(folder, "python3.12").exists() for folder in ("/usr/bin", "/usr/local/bin"))
DONE = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
PATCH = """apply_patch <<'END'
*** Begin Patch
*** Update File: meterkit/scale.py
@@
     if value > high:
-        return low
+        return high
*** End Patch
END
python3 -m pytest -q 2>&1 | tail -n 1"""
FIXED = (
    (SAMPLE.folder / "meterkit" / "scale.py")
    .read_text()
    .replace("value > high:\n        return low", "value > high:\n        return high")
)
WHOLE = f"I mend the bound.\n\nmeterkit/scale.py\n```\n{FIXED}```\n"
GRAMMAR = f"""\
root ::= "```mswea_bash_command\\necho " [a-z]{{3,12}} " > note.txt && {DONE}\\n```"
"""
TINY = """\
model:
  model_class: litellm_textbased
  model_kwargs:
    max_tokens: 100
    extra_body:
      grammar: |
        {grammar}
"""
POOL = """
[[pool.endpoints]]
name = "scripted"
url = "{url}"
tier = "small"
[pool.embedded]
enabled = true
weights = "{weights}"
window = 8192
parallel = 1
[sandbox]
backend = "bwrap"
[sandbox.limits]
memory = 4294967296
disk = 2147483648
[sandbox.egress.packages]
mirrors = ["pypi.org:443", "files.pythonhosted.org:443", "registry.npmjs.org:443"]
[agents.tiny]
setup = {setup}
command = '''printf %s "$TINY" > "$HOME/tiny.yaml"; exec "$HOME/mini/bin/mini" --model "openai/$SWARM_MODEL" \
--task "$SWARM_TASK" --yolo --exit-immediately --output "$HOME/trajectory.json" \
--config mini_textbased.yaml --config "$HOME/tiny.yaml"'''
[agents.tiny.env]
TINY = {tiny}
{env}
"""


def words(text: str) -> str:
    """As a TOML string."""
    return json.dumps(text)


def pool_of(server: PretendServer) -> str:
    recipe = RECIPES["mini-swe-agent"]
    env = "\n".join(f"{name} = {words(value)}" for name, value in recipe.env.items())
    tiny = TINY.format(grammar=GRAMMAR.strip())
    setup = json.dumps(list(recipe.setup))
    return POOL.format(url=server.url, weights=weights(), setup=setup, tiny=words(tiny), env=env)


def script(recorded: Recorded) -> Scripted | None:
    """The next step of whatever conversation the server is asked in, told apart by the tools that come with it."""
    tools = {tool["function"]["name"] for tool in recorded.body.get("tools") or ()}
    if not tools:  # aider, which has the whole file answered where it knows nothing of a model
        return WHOLE if "file listing" in recorded.prompt else None
    said = sum(message["role"] == "assistant" for message in recorded.body["messages"])
    if "exec_command" in tools:
        return call("exec_command", cmd=PATCH).model_copy(update={"reasoning": "hm"}) if not said else "Mended."
    if "terminal" in tools:
        return call("terminal", command=MEND, security_risk="LOW", summary="mend") if not said else "Mended."
    if "run_shell_command" in tools:
        return call("run_shell_command", command=MEND, is_background=False) if not said else "Mended."
    if "todowrite" in tools:
        return call("bash", command=MEND) if not said else "Mended."
    steps = (PROBE.format(port=int(recorded.headers["host"].rsplit(":", 1)[1])), MEND, DONE)
    return call("bash", command=steps[min(said, 2)])


@dataclass(frozen=True)
class Inside:
    """A running stack, the secret that only its broker has, and the scripted server."""

    stack: Stack
    canary: str
    server: PretendServer


@pytest.fixture(scope="module")
def inside(installed: Path, one_user: House) -> Iterator[Inside]:
    """One stack for all tests: the agent is installed once."""
    base = installed / "agents"
    base.mkdir()
    with scripted(script, window=100_000) as server:
        stack, canary = prepare(Layout(base), one_user, (SAMPLE,), pool_of(server))
        try:
            stack.start()
            yield Inside(stack, canary, server)
        finally:
            stack.stop()
            print(stack.daemon.tail())  # noqa: T201 - pytest shows it when a test fails


@dataclass(frozen=True)
class Ran:
    """A task's end, its journal, and the requests with which its agent asked."""

    view: dict[str, Any]
    journal: list[dict[str, Any]]
    asked: list[Recorded]


def done(inside: Inside, *options: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A task's end and its journal."""
    inside.server.requests.clear()
    ran = inside.stack.swarm("submit", "--repo", "sample", *options, "--wait", WORDS, seconds=900)
    view = inside.stack.newest()
    assert view["state"] not in {"infra_failed", "queued", "running"}, ran.stdout + ran.stderr
    return view, inside.stack.journal(view["task"]["id"])


def of(journal: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [step["data"] for step in journal if step["kind"] == kind]


@pytest.fixture(scope="module")
def mended(inside: Inside) -> Ran:
    """What mini-swe-agent made of the task, for all that is asked of it."""
    view, journal = done(inside, "--agent", "mini-swe-agent")
    return Ran(view, journal, [one for one in inside.server.requests if one.body.get("tools")])


def test_agent_of_others_turns_a_task_into_a_pull_request(inside: Inside, mended: Ran) -> None:
    view, journal = mended.view, mended.journal
    assert view["state"] == "delivered", view["reason"]
    assert len(inside.stack.pulls("sample")) == 1
    repository = inside.stack.layout.repository("sample")
    assert "return high" in git(repository, "show", f"{view['branch']}:meterkit/scale.py")
    assert of(journal, "sealed")[-1]["files"] == ["meterkit/scale.py"]
    assert view["report"]["fixed"]
    # its models were asked through the way out: one session, charged to the task by the server's own counts
    assert len(mended.asked) == len(of(journal, "model_call")) == view["spent"]["steps"] == 3
    assert {one.headers["x-session-id"] for one in mended.asked} == {view["attempts"][0]["id"]}
    assert view["spent"]["tokens"] == sum(step["tokens"] for step in of(journal, "model_call")) > 0
    assert "COMPLETE_TASK" in "\n".join(step["text"] for step in of(journal, "output"))


def test_its_story_is_told_as_a_transcript(inside: Inside, mended: Ran, tmp_path: Path) -> None:
    task, path = mended.view["task"]["id"], tmp_path / "told.jsonl"
    shown = inside.stack.swarm("transcript", "view", task, seconds=60).stdout
    assert "agent       mini-swe-agent" in shown
    assert "COMPLETE_TASK" in shown
    assert "── finished" in shown
    inside.stack.swarm("transcript", "export", task, "-o", str(path), seconds=60)
    told = lines.loads(path.read_bytes())
    assert [step.step_id for step in told.steps if step.source == "agent"]
    assert told.end is not None
    spent = sum(step["prompt_tokens"] for step in of(mended.journal, "model_call"))
    assert told.end.total_prompt_tokens == spent > 0
    assert inside.canary not in path.read_text()


def test_agent_inside_finds_no_other_network_and_no_key(inside: Inside, mended: Ran) -> None:
    messages = mended.asked[-1].body["messages"]
    assert inside.canary not in json.dumps(messages)
    outputs = [json.loads(one["content"])["output"] for one in messages if one["role"] == "tool"]
    probed = json.loads(next(one for one in outputs if one.startswith("PROBED")).removeprefix("PROBED"))
    assert probed["models"] == "reached"
    assert "reached" not in (probed["outside"], probed["server"], probed["registries"])
    assert "443" not in probed["found"]
    assert (probed["routes"], probed["canary"], probed["user"] >= 70000) == ([], "", True)
    keys = {name: value for name, value in probed["env"].items() if "KEY" in name or "TOKEN" in name}
    assert set(keys.values()) == {"sandbox"}


def test_spent_budget_stops_the_agent_and_keeps_its_work(inside: Inside) -> None:
    view, journal = done(inside, "--agent", "mini-swe-agent", "--max-steps", "2", "--attempts", "1")
    assert view["state"] == "limit_hit", view
    assert "2 of 2 steps are spent" in view["reason"]
    assert len([one for one in inside.server.requests if one.body.get("tools")]) == 2
    assert view["attempts"][0]["salvage"]
    assert "the budget of this task is spent" in "\n".join(step["text"] for step in of(journal, "output"))


def test_codex_turns_a_task_into_a_pull_request(inside: Inside) -> None:
    view, journal = done(inside, "--agent", "codex")
    assert view["state"] == "delivered", view["reason"]
    assert of(journal, "sealed")[-1]["files"] == ["meterkit/scale.py"]
    assert of(journal, "command")[-1]["exit_code"] == 0
    asked = [one for one in inside.server.requests if one.body.get("tools")]
    assert len(asked) == len(of(journal, "model_call")) == view["spent"]["steps"] == 2
    assert {one.headers["x-session-id"] for one in asked} == {view["attempts"][0]["id"]}
    thought, told = asked[-1].body["messages"][-2:]
    assert thought["reasoning"] == "hm", "its thoughts come back, though it asked for them encrypted"
    assert " passed" in told["content"]


def test_aider_turns_a_task_into_a_pull_request(inside: Inside) -> None:
    view, journal = done(inside, "--agent", "aider")
    assert view["state"] == "delivered", view["reason"]
    assert of(journal, "sealed")[-1]["files"] == ["meterkit/scale.py"], "its own files are not in the checkout"
    assert view["report"]["fixed"]
    asked = [one for one in inside.server.requests if one.body.get("messages")]
    assert len(asked) == len(of(journal, "model_call")) == view["spent"]["steps"]
    assert {one.headers["x-session-id"] for one in asked} == {view["attempts"][0]["id"]}
    assert "Applied edit to meterkit/scale.py" in "\n".join(step["text"] for step in of(journal, "output"))


@pytest.mark.parametrize("agent", ["opencode", "qwen-code"])
def test_agent_of_npm_turns_a_task_into_a_pull_request(inside: Inside, agent: str) -> None:
    view, journal = done(inside, "--agent", agent)
    assert view["state"] == "delivered", view["reason"]
    assert of(journal, "sealed")[-1]["files"] == ["meterkit/scale.py"], "its own files are not in the checkout"
    asked = [one for one in inside.server.requests if one.body.get("tools")]
    assert len(asked) == len(of(journal, "model_call")) == view["spent"]["steps"] == 2
    assert {one.headers["x-session-id"] for one in asked} == {view["attempts"][0]["id"]}
    printed = "\n".join(step["text"] for step in of(journal, "output"))
    assert "Mended." in printed
    assert agent != "opencode" or "[tool] completed: " in printed, "told over the Agent Client Protocol"


@pytest.mark.skipif(not PYTHON_3_12, reason="blocked: OpenHands needs python3.12 below /usr, where sandboxes see it")
def test_openhands_turns_a_task_into_a_pull_request(inside: Inside) -> None:
    view, journal = done(inside, "--agent", "openhands")
    assert view["state"] == "delivered", view["reason"]
    assert of(journal, "sealed")[-1]["files"] == ["meterkit/scale.py"], "its own files are not in the checkout"
    asked = [one for one in inside.server.requests if one.body.get("tools")]
    assert len(asked) == len(of(journal, "model_call")) == view["spent"]["steps"] == 2
    assert "Mended." in "\n".join(step["text"] for step in of(journal, "output"))


def test_agent_asks_a_real_model_and_its_commands_run_inside(inside: Inside) -> None:
    view, journal = done(inside, "--agent", "tiny", "--tier", "embedded", "--attempts", "1")
    asked = of(journal, "model_call")
    assert {step["tier"] for step in asked} == {"embedded"}
    assert view["spent"]["tokens"] == sum(step["tokens"] for step in asked) > 100
    assert of(journal, "command")[-1]["exit_code"] == 0
    assert of(journal, "sealed")[-1]["files"] == ["note.txt"]
    assert view["state"] == "checks_failed"  # a note mends nothing, and the checks say so
    assert inside.server.requests == []
