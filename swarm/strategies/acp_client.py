"""Speaks the Agent Client Protocol with an agent, inside the sandbox: a program of the standard library alone (3.9+).

It is sent in, as one file, and run beside the agent, as the same user and with the same rights, so it opens nothing: it
starts the agent, gives it the task, grants what it asks, and prints what it tells in lines, which the host reads as it
reads any agent's output. The host believes none of it. The protocol: agentclientprotocol.com, version 1.

    python3 acp_client.py TASK_FILE SECONDS AUTHENTICATE -- COMMAND…

It ends with 0 when the agent says that its turn is over, 3 when it stopped for another reason of its own, 4 when it was
cancelled, 1 when it broke the protocol or died, 127 when it cannot be started.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import re
import signal
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

VERSION = 1
LONGEST = 16 * 1024 * 1024  # bytes of one message of the agent's
FILE = 4 * 1024 * 1024  # bytes of a file that it may read at once
LINE = 380  # characters of one line that is told
NONSENSE = 200  # lines that are no message, after which it is not listened to any more
BEGIN = 120.0  # seconds for an answer before the task is told
LAST = 5.0  # seconds from a cancel to the end, and before the end of the time
LOOK = 3.0  # seconds between two looks at what is left of the budget
DONE, BROKEN, STOPPED, CANCELLED, MISSING = 0, 1, 3, 4, 127
NO_METHOD, BAD_PARAMS, AUTH = -32601, -32602, -32000
_SPENT = re.compile(r"(?<![\d.])0(?:\.0+)? [a-z]")  # of "left: 0 turns, 12 tokens": something is

Json = dict[str, Any]


class BrokenError(Exception):
    """The agent broke the protocol, or died; the message says how."""


class RpcError(Exception):
    """An answer that is an error."""

    def __init__(self, error: Any) -> None:
        told = error if isinstance(error, dict) else {}
        self.code = told.get("code")
        super().__init__(f"{_short(told.get('message'))} {_short(told.get('data'))}".strip() or "no reason given")


class Teller:
    """Prints what happens in whole lines. The agent's own words are printed as they are, all else in brackets."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self._kind = ""
        self._open = ""

    def words(self, kind: str, text: str) -> None:
        """A piece of what it says ("") or thinks ("thought")."""
        if kind != self._kind:
            self.flush()
            self._kind = kind
        *lines, self._open = (self._open + text).split("\n")
        for line in lines:
            self._line(line)
        while len(self._open) > LINE:
            self._line(self._open[:LINE])
            self._open = self._open[LINE:]

    def note(self, kind: str, text: str) -> None:
        """One thing that happened."""
        self.flush()
        self._kind = ""
        self._write(f"[{kind}] {_short(text)}\n")

    def flush(self) -> None:
        """Nothing follows in this line."""
        if self._open:
            self._line(self._open)
        self._open = ""

    def _line(self, line: str) -> None:
        self._write(f"[{self._kind}] {line}\n" if self._kind else f"{line}\n")


class Client:
    """One conversation with an agent over its standard input and output."""

    def __init__(self, teller: Teller, root: Path) -> None:
        self._tell = teller
        self._root = root.resolve()
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._titles: dict[str, str] = {}
        self._process: asyncio.subprocess.Process | None = None
        self._nonsense = 0
        self.session = ""

    async def start(self, argv: list[str]) -> None:
        """Start the agent. Raises OSError where that cannot be."""
        pipe = asyncio.subprocess.PIPE
        self._process = await asyncio.create_subprocess_exec(
            *argv, stdin=pipe, stdout=pipe, limit=LONGEST, start_new_session=True
        )

    async def listen(self) -> None:
        """Hear the agent until it is silent for good. Raises BrokenError."""
        out = self._running().stdout
        assert out is not None  # noqa: S101 - a pipe was asked for; this tells mypy
        while True:
            try:
                line = await out.readline()
            except ValueError:
                raise BrokenError(f"the agent sent a message of more than {LONGEST} bytes") from None
            if not line:
                raise BrokenError("the agent ended in the middle of the conversation")
            if line.strip():
                await self._heard(line)

    async def ask(self, method: str, params: Json, seconds: float | None) -> Any:
        """Ask the agent. Raises RpcError, and BrokenError where no answer comes in time."""
        number = next(self._numbers)
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        await self._send({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        try:
            return await asyncio.wait_for(answer, seconds)
        except asyncio.TimeoutError:  # noqa: UP041 - before Python 3.11 it is another
            raise BrokenError(f"the agent gave no answer to {method} in {seconds:g} s") from None
        finally:
            self._waiting.pop(number, None)

    async def tell(self, method: str, params: Json) -> None:
        """Tell the agent something that has no answer."""
        await self._send({"jsonrpc": "2.0", "method": method, "params": params})

    async def end(self) -> None:
        """End the agent and all that it started."""
        process = self._process
        if process is None:
            return
        if process.stdin is not None:
            process.stdin.close()
        for number, seconds in ((0, 2.0), (signal.SIGTERM, 2.0), (signal.SIGKILL, 5.0)):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                if number:
                    os.killpg(process.pid, number)
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(process.wait(), seconds)
                break
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)

    def _running(self) -> asyncio.subprocess.Process:
        assert self._process is not None  # noqa: S101 - start comes first
        return self._process

    async def _send(self, message: Json) -> None:
        line = json.dumps(message, ensure_ascii=True).encode() + b"\n"
        pipe = self._running().stdin
        assert pipe is not None  # noqa: S101 - a pipe was asked for; this tells mypy
        try:
            pipe.write(line)
            await pipe.drain()
        except (ConnectionError, RuntimeError) as error:
            raise BrokenError("the agent does not listen any more") from error

    async def _heard(self, line: bytes) -> None:
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            message = None
        if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
            self._odd(line)
        elif "method" in message and "id" in message:
            await self._answer(message)
        elif "method" in message:
            self._told(message)
        else:
            self._answered(message)

    def _odd(self, line: bytes) -> None:
        """A log line among the messages, as some agents have them; too many, and it is no agent of this protocol."""
        self._nonsense += 1
        self._tell.note("printed", line[:LINE].decode("utf-8", "replace"))
        if self._nonsense > NONSENSE:
            raise BrokenError(f"the agent printed {self._nonsense} lines that are no messages")

    def _answered(self, message: Json) -> None:
        number = message.get("id")
        waiting = self._waiting.get(number) if isinstance(number, int) else None
        if waiting is None or waiting.done():
            self._tell.note("protocol", f"an answer to nothing that was asked: {number!r}")
        elif "error" in message:
            waiting.set_exception(RpcError(message["error"]))
        else:
            waiting.set_result(message.get("result"))

    async def _answer(self, message: Json) -> None:
        """What the agent asks of us; only what this program may do anyway is done."""
        method, params = str(message["method"]), _object(message.get("params"))
        ways: dict[str, Callable[[Json], Json]] = {
            "session/request_permission": self._permission,
            "fs/read_text_file": self._read,
            "fs/write_text_file": self._write,
        }
        told: Json
        if method not in ways:
            told = {"error": {"code": NO_METHOD, "message": f"{_short(method)} is not offered here"}}
        else:
            try:
                told = {"result": ways[method](params)}
            except (OSError, ValueError) as error:
                told = {"error": {"code": BAD_PARAMS, "message": _short(str(error))}}
        await self._send({"jsonrpc": "2.0", "id": message["id"], **told})

    def _permission(self, params: Json) -> Json:
        """Granted, for good where that is offered: the sandbox is the bound."""
        call = _object(params.get("toolCall"))
        chosen = choice(params.get("options"))
        self._tell.note("permission", f"{'granted' if chosen else 'not granted'}: {_title(call)}")
        return {"outcome": {"outcome": "selected", "optionId": chosen} if chosen else {"outcome": "cancelled"}}

    def _read(self, params: Json) -> Json:
        with self._inside(params).open("rb") as file:
            raw = file.read(FILE + 1)
        if len(raw) > FILE:
            raise ValueError(f"it has more than {FILE} bytes")
        lines = raw.decode("utf-8", "replace").splitlines(keepends=True)
        begin = max(1, _number(params.get("line"), 1)) - 1
        return {"content": "".join(lines[begin : begin + _number(params.get("limit"), len(lines))])}

    def _write(self, params: Json) -> Json:
        content = params.get("content")
        if not isinstance(content, str):
            raise ValueError("its content is no text")  # noqa: TRY004 - of a message, not of a call
        path = self._inside(params)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode("utf-8", "replace"))
        self._tell.note("wrote", str(path.relative_to(self._root)))
        return {}

    def _inside(self, params: Json) -> Path:
        """The path, which must be in the checkout. Raises ValueError."""
        told = params.get("path")
        if not isinstance(told, str) or not told.startswith("/") or "\0" in told:
            raise ValueError("its path is not absolute")
        path = Path(told).resolve()
        if self._root not in path.parents:
            raise ValueError(f"{told} is not in the checkout")
        if path.exists() and not path.is_file():
            raise ValueError(f"{told} is no ordinary file")
        return path

    def _told(self, message: Json) -> None:
        """What the agent tells of its work."""
        update = _object(_object(message.get("params")).get("update"))
        kind = update.get("sessionUpdate")
        if kind in ("agent_message_chunk", "agent_thought_chunk"):
            text = _object(update.get("content")).get("text")
            self._tell.words("" if kind == "agent_message_chunk" else "thought", text if isinstance(text, str) else "")
        elif kind in ("tool_call", "tool_call_update"):
            self._called(update)
        elif kind == "plan":
            entries = update.get("entries")
            done = [_object(each) for each in entries] if isinstance(entries, list) else []
            self._tell.note("plan", "; ".join(f"{each.get('content')} ({each.get('status')})" for each in done[:20]))

    def _called(self, update: Json) -> None:
        """A tool's call: told when it begins, and when it has ended."""
        id_, status = str(update.get("toolCallId")), update.get("status")
        if update.get("title"):
            if len(self._titles) > 10_000:
                self._titles.clear()
            self._titles[id_] = _title(update)
        if update.get("sessionUpdate") == "tool_call":
            self._tell.note("tool", self._titles.get(id_, id_))
        elif status in ("completed", "failed"):
            self._tell.note("tool", f"{status}: {self._titles.pop(id_, id_)}")


def choice(options: Any) -> str | None:
    """The option of a permission that allows the most; None where none allows anything."""
    allowed: dict[Any, str] = {}
    for option in options if isinstance(options, list) else []:
        told = _object(option)
        if isinstance(told.get("optionId"), str):
            allowed.setdefault(told.get("kind"), told["optionId"])
    return allowed.get("allow_always") or allowed.get("allow_once")


async def converse(client: Client, task: str, until: float, authenticate: str) -> tuple[int, str]:
    """The whole conversation: the exit code, and a word on it. Raises BrokenError and RpcError."""
    files = {"readTextFile": True, "writeTextFile": True}
    hello = {
        "protocolVersion": VERSION,
        "clientCapabilities": {"fs": files, "terminal": False},
        "clientInfo": {"name": "agent-swarm", "version": "1"},
    }
    known = _object(await client.ask("initialize", hello, BEGIN))
    if known.get("protocolVersion") != VERSION:
        raise BrokenError(
            f"the agent speaks version {_short(known.get('protocolVersion'))} of the protocol, not {VERSION}"
        )
    if authenticate:
        await client.ask("authenticate", {"methodId": authenticate}, BEGIN)
    begun = _object(await client.ask("session/new", {"cwd": str(Path.cwd()), "mcpServers": []}, BEGIN))
    client.session = str(begun.get("sessionId") or "")
    if not client.session:
        raise BrokenError("the agent opened no session")
    prompt = {"sessionId": client.session, "prompt": [{"type": "text", "text": task}]}
    asking = asyncio.ensure_future(client.ask("session/prompt", prompt, None))
    cancelled = await _watched(client, asking, until)
    answer = _object(await asking)
    reason = answer.get("stopReason")
    if cancelled:
        return CANCELLED, f"cancelled: {cancelled}"
    return (DONE, "") if reason == "end_turn" else (STOPPED, f"the agent stopped: {_short(reason)}")


async def _watched(client: Client, asking: asyncio.Future[Any], until: float) -> str:
    """Wait for the turn's end; why it was cancelled, empty where it was not. Raises BrokenError where it goes on."""
    while not asking.done():
        await asyncio.wait({asking}, timeout=max(0.1, min(LOOK, until - time.monotonic())))
        why = "the time is over" if time.monotonic() >= until else await asyncio.to_thread(spent)
        if why and not asking.done():
            await client.tell("session/cancel", {"sessionId": client.session})
            await asyncio.wait({asking}, timeout=LAST)
            if not asking.done():
                asking.cancel()
                raise BrokenError(f"the agent went on after it was cancelled: {why}")
            return why
    return ""


def spent() -> str:
    """Why no model answers any more; empty while one does, and where that cannot be asked."""
    base = os.environ.get("OPENAI_BASE_URL", "")
    if not base.startswith("http://"):
        return ""
    try:
        with urllib.request.urlopen(f"{base}/budget", timeout=5) as answer:  # noqa: S310 - it begins with http
            told = answer.read(2000).decode("utf-8", "replace")
    except (OSError, ValueError):
        return ""
    return f"the budget is spent ({told.strip()})" if _SPENT.search(told) else ""


async def run(argv: list[str]) -> int:
    """The program."""
    task_file, seconds, authenticate, _, *command = argv
    teller = Teller(_print)
    client = Client(teller, Path.cwd())
    task = await asyncio.to_thread(Path(task_file).read_text, "utf-8", "replace")
    try:
        await client.start(command)
    except OSError as error:
        _print(f"{command[0]}: {error.strerror}\n")
        return MISSING
    until = time.monotonic() + max(float(seconds) / 2, float(seconds) - LAST - 2.0)
    talking = asyncio.ensure_future(converse(client, task, until, authenticate))
    hearing = asyncio.ensure_future(client.listen())
    try:
        await asyncio.wait({talking, hearing}, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.wait({talking}, timeout=1.0)  # the last answer and the end may come together
        code, word = await talking if talking.done() else (BROKEN, str(hearing.exception()))
    except RpcError as error:
        code, word = BROKEN, f"the agent answered with an error: {error}{_asks_who(error, authenticate)}"
    except BrokenError as error:
        code, word = BROKEN, str(error)
    finally:
        for each in (talking, hearing):
            each.cancel()
        await asyncio.gather(talking, hearing, return_exceptions=True)
        await client.end()
    teller.flush()
    if word:
        _print(f"{word}\n")
    return code


def _asks_who(error: RpcError, authenticate: str) -> str:
    return "; name one of its methods with `authenticate`" if error.code == AUTH and not authenticate else ""


def _print(text: str) -> None:
    sys.stdout.write(text.encode("utf-8", "replace").decode("utf-8"))
    sys.stdout.flush()


def _title(call: Json) -> str:
    return _short(call.get("title") or call.get("kind") or call.get("toolCallId"))


def _short(value: Any) -> str:
    text = "" if value is None else value if isinstance(value, str) else json.dumps(value)
    line = " ".join(text[: 4 * LINE].split())
    return line if len(line) <= LINE else f"{line[: LINE - 1]}…"


def _object(value: Any) -> Json:
    return value if isinstance(value, dict) else {}


def _number(value: Any, otherwise: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else otherwise


async def main() -> None:
    """Run, and leave at once: what the agent left running may still hold a pipe, which is no reason to wait."""
    code = await run(sys.argv[1:])
    sys.stdout.flush()
    os._exit(code)


if __name__ == "__main__":
    asyncio.run(main())
