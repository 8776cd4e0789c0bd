"""An agent of the Agent Client Protocol that follows a script: what it does is named by its first argument.

It stands for what agents do, hostile ones too; it is run inside the pretend sandbox, under the shipped client.
"""

from __future__ import annotations

import json
import os
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any


def say(**message: Any) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def heard() -> dict[str, Any]:
    line = sys.stdin.readline()
    if not line:
        sys.exit(0)
    return dict(json.loads(line))


def update(said: str, **more: Any) -> None:
    say(method="session/update", params={"sessionId": "s1", "update": {"sessionUpdate": said, **more}})


def asked(method: str, **params: Any) -> dict[str, Any]:
    say(id="a1", method=method, params={"sessionId": "s1", **params})
    while (message := heard()).get("id") != "a1":
        Path("heard").write_text(json.dumps(message))
    return message


def words(text: str, kind: str = "agent_message_chunk") -> None:
    update(kind, content={"type": "text", "text": text})


def model() -> str:
    body = {"model": os.environ["SWARM_MODEL"], "messages": [{"role": "user", "content": "hi"}]}
    url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
    request = urllib.request.Request(url, json.dumps(body).encode(), {"content-type": "application/json"})  # noqa: S310
    try:
        with urllib.request.urlopen(request) as answer:  # noqa: S310 - the gateway
            return str(json.load(answer)["choices"][0]["message"]["content"])
    except urllib.error.HTTPError as error:
        return f"{error.code}"


def works(prompt: str) -> None:
    """As a good one does: thinks, plans, asks for leave, edits, tells."""
    words("a sign?\n", "agent_thought_chunk")
    update("plan", entries=[{"content": "look", "status": "pending", "priority": "high"}])
    update("tool_call", toolCallId="t1", title="Edit calc.py", kind="edit", status="pending")
    options = [{"optionId": "no", "kind": "reject_once"}, {"optionId": "yes", "kind": "allow_always"}]
    got = asked("session/request_permission", toolCall={"toolCallId": "t1", "title": "Edit calc.py"}, options=options)
    assert got["result"]["outcome"] == {"outcome": "selected", "optionId": "yes"}, got
    path = str(Path("calc.py").absolute())
    assert asked("fs/write_text_file", path=path, content="one\ntwo\nthree\n")["result"] == {}
    assert asked("fs/read_text_file", path=path, line=2, limit=1)["result"] == {"content": "two\n"}
    update("tool_call_update", toolCallId="t1", status="completed")
    Path("answer").write_text(model())
    Path("prompt").write_text(prompt)
    words("I mended")
    words(" the sign.\nIt is done.")


def outside(prompt: str) -> None:
    """Asks for what is not in the checkout, and for what is not offered."""
    Path("link").symlink_to("/etc")
    os.mkfifo("pipe")
    tried = [
        asked("fs/read_text_file", path="/etc/hostname"),
        asked("fs/read_text_file", path="calc.py"),
        asked("fs/read_text_file", path=str(Path("pipe").absolute())),
        asked("fs/write_text_file", path=str(Path("pipe").absolute()), content="x"),
        asked("fs/read_text_file", path=str(Path("link").absolute() / "hostname")),
        asked("fs/write_text_file", path=str(Path().absolute() / ".." / "out.txt"), content="x"),
        asked("fs/write_text_file", path=str(Path("a").absolute()), content=7),
        asked("terminal/create", command="id"),
        asked("session/request_permission", toolCall=None, options=[{"optionId": "no", "kind": "reject_once"}, 3]),
    ]
    Path("tried.json").write_text(json.dumps(tried))


def flood(prompt: str) -> None:
    for number in range(20_000):
        words(f"line {number}\n")


def nonsense(prompt: str) -> None:
    for odd in ("[" * 5000, "{}", "null", '{"jsonrpc":"2.0","id":77,"result":{}}', "\x1b[2Jlog", '{"jsonrpc":"2.0"}'):
        sys.stdout.write(odd + "\n")
    update("new_kind", x=1)
    update("tool_call_update", toolCallId=["no"], status={"a": 1})
    say(method="session/update", params=[1])
    say(method="session/update", params={"update": {"sessionUpdate": "agent_message_chunk", "content": 3}})
    words("still here\n")


def logs(prompt: str) -> None:
    while True:
        sys.stdout.write("a log line\n")


def huge(prompt: str) -> None:
    while True:
        sys.stdout.write("x" * 1_000_000)


def dies(prompt: str) -> None:
    words("half\n")
    sys.stdout.flush()
    os._exit(9)


def waits(prompt: str) -> None:
    """Goes on until it is cancelled, and says so."""
    words("waiting\n")
    while heard().get("method") != "session/cancel":
        pass
    Path("cancelled").touch()


def deaf(prompt: str) -> None:
    words("waiting\n")
    time.sleep(600)


def spends(prompt: str) -> None:
    model()
    waits(prompt)


def refuses(prompt: str) -> None:
    pass


BEHAVIOURS = {each.__name__: each for each in (works, outside, flood, nonsense, logs, huge, dies, waits, deaf, spends)}


def main() -> None:
    behaviour = sys.argv[1]
    child = os.fork() if behaviour == "children" else 0
    if behaviour == "children" and not child:
        time.sleep(600)
    while True:
        message = heard()
        method, id_ = message.get("method"), message.get("id")
        if method == "initialize":
            say(id=id_, result={"protocolVersion": 9 if behaviour == "newer" else 1, "agentCapabilities": {}})
        elif method == "authenticate":
            Path("authenticated").write_text(message["params"]["methodId"])
            say(id=id_, result={})
        elif method == "session/new":
            if behaviour == "locked" and not Path("authenticated").exists():
                say(id=id_, error={"code": -32000, "message": "Authentication required"})
                continue
            say(id=id_, result={"sessionId": "s1"})
        elif method == "session/prompt":
            text = message["params"]["prompt"][0]["text"]
            BEHAVIOURS.get(behaviour, refuses)(text)
            say(id=id_, result={"stopReason": "refusal" if behaviour == "refuses" else "end_turn"})


if __name__ == "__main__":
    main()
