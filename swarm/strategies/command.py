"""The strategy `cli:NAME`: an agent that others wrote does the work, as one long command inside the sandbox.

It has no terminal, no input and no network but the models' gateway, which charges the task's budget by the servers' own
counts. It is stopped when the budget or the time is over, or when neither it nor a model moves any more; what it
changed by then is kept.
"""

from __future__ import annotations

import asyncio
import importlib.resources
import re
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from pool.gateway.bound import Answered
from sandbox.errors import SandboxError
from sandbox.types import Command, Outcome
from swarm import prompts
from swarm.agents import PLACEHOLDERS, AgentConfig
from swarm.budgets.notices import told_before
from swarm.budgets.prices import facts
from swarm.errors import BudgetExceededError, ConfigError
from swarm.strategies import acp_client
from swarm.strategies.printed import Printed, ending
from swarm.types import Conclusion, Task
from swarm.work import Calls, Work

TICK = 1.0  # seconds between two looks at it
LAST_WORDS = 10.0  # seconds that it may go on after the budget is spent, to tell of it
SAVE_EVERY = 60.0  # seconds between two saves in passing
SAVE_SHARE = 20  # a save is not begun before so many times the last one's duration has passed
HOPELESS = 3  # calls refused for what no endpoint can do, before the first answer, after which it is stopped
LONGEST_WORD = 100_000  # bytes of the task in one argument or variable; the kernel takes 131072
REASON = 400  # characters of why a call failed
TASK_FILE, CLIENT_FILE = ".swarm-task.md", ".swarm-acp.py"
_MARK = re.compile(rf"\{{({'|'.join(PLACEHOLDERS)})\}}")
_WRITE = 'umask 077 && cat > "$HOME/$1" && printf %s "$HOME"'
_BUDGET = """\
This work may take: {left}. Each answer of a model is a turn. Once any of these is spent, no model answers any more and
the work ends as it is then, so bring it to an end before. What is left: curl -s "$OPENAI_BASE_URL/budget"."""
_CANNOT_START = {126, 127}
_QUIET = {"TERM": "dumb", "NO_COLOR": "1", "PAGER": "cat", "GIT_PAGER": "cat", "GIT_TERMINAL_PROMPT": "0", "CI": "1"}


@dataclass
class _Run:
    """One run of the agent, as far as it got."""

    work: Work
    agent: AgentConfig
    calls: Calls
    command: asyncio.Task[Outcome]
    printed: Printed
    saved_at: float
    save: asyncio.Future[None] | None = None
    save_took: float = 0.0
    over_since: float | None = None
    heard_at: float = field(default_factory=time.monotonic)
    without_tools: int = 0
    told: int = 0
    hopeless: str = ""


class CommandAgent:
    """An agent of `swarm.agents` as a strategy."""

    def __init__(self, name: str, agent: AgentConfig, *, tick: float = TICK, save_every: float = SAVE_EVERY) -> None:
        self._name = name
        self._agent = agent
        self._tick = tick
        self._save_every = save_every

    async def work(self, work: Work) -> Conclusion:
        """Run it to its end. Raises SandboxError, and ConfigError where it cannot be started inside."""
        if work.models is None:
            raise ConfigError(f"the agent {self._name} has no way to the models here", "run it under swarm daemon")
        if work.past:
            await work.record("note", {"text": f"{self._name} begins anew on what it had changed"})
        command = await self._command(work)
        async with work.models.serving(work.attempt, work.task.id, work.tier, work.ledger) as calls:
            return await self._run(work, calls, command)

    async def _command(self, work: Work) -> Command:
        """What is run, with the task put where it looks for it."""
        text = told(work.task, work.test_command, await _heard(work), work.ledger.left())
        task_file = await _put(work, TASK_FILE, text.encode("utf-8", "replace"))
        variables = {"SWARM_TASK": short(text), "SWARM_TASK_FILE": task_file, "SWARM_MODEL": work.tier}
        argv = argv_of(self._agent, {"task": short(text), "task_file": task_file, "model": work.tier})
        if self._agent.protocol == "acp":
            client = await _put(work, CLIENT_FILE, _client())
            argv = ("python3", client, task_file, f"{_left(work):.1f}", self._agent.authenticate, "--", *argv)
        return Command(
            argv=argv,
            env=_QUIET | self._agent.env | variables,
            timeout=max(1.0, _left(work)),
        )

    async def _run(self, work: Work, calls: Calls, command: Command) -> Conclusion:
        printed = Printed()
        began = time.monotonic()

        def heard(data: bytes) -> None:
            run.heard_at = time.monotonic()
            printed.feed(data)

        await work.record("note", {"text": f"{self._name} begins", "doing": "tools"})
        task = asyncio.create_task(work.sandbox.run(command, heard), name=f"agent of {work.attempt}")
        run = _Run(work, self._agent, calls, task, printed, saved_at=began, told=told_before(work.past, work.attempt))
        why = ""
        try:
            while not task.done() and not why:
                await asyncio.wait({task}, timeout=self._tick)
                await _tell(run)
                why = _stop(run)
                await _save_in_passing(run, self._save_every)
        finally:
            await _ended(task, run.save)
        outcome = None if task.cancelled() else task.result()
        printed.end()
        await _tell(run)
        await self._note_end(work, outcome, time.monotonic() - began)
        return self._conclude(run, outcome, why)

    async def _note_end(self, work: Work, outcome: Outcome | None, seconds: float) -> None:
        ended = {"exit_code": outcome.exit_code, "timed_out": outcome.timed_out, "cut": outcome.cut} if outcome else {}
        await work.record("command", {"text": self._name, "seconds": round(seconds, 3), "changed": True, **ended})

    def _conclude(self, run: _Run, outcome: Outcome | None, why: str) -> Conclusion:
        model, calls = run.calls.model, run.calls
        if calls.over:
            return Conclusion(ending="limit_hit", summary=calls.over, model=model, limit=calls.limit)
        if outcome is None or run.hopeless:
            why = why or run.hopeless
            return Conclusion(ending="gave_up", summary=f"{self._name} was stopped: {why}", model=model)
        tail = ending(outcome.text)
        cancelled = self._agent.protocol == "acp" and outcome.exit_code == acp_client.CANCELLED
        if outcome.timed_out or cancelled:
            met = _met(run.work)
            why = f"{met}, and {self._name} had not ended"
            return Conclusion(ending="limit_hit", summary=why, model=model, limit=met.limit)
        if outcome.exit_code in self._agent.success_exit_codes:
            return Conclusion(ending="finished", summary=_summary(self._name, tail), model=model)
        if outcome.exit_code in _CANNOT_START and not calls.answers:
            said = ending(outcome.text, 2) or "its command is missing"
            raise ConfigError(
                f"the agent {self._name} cannot be started inside: {said}",
                f"see agents.{self._name}.command and agents.{self._name}.setup, and docs/agents.md",
            )
        return Conclusion(ending="gave_up", summary=_gave_up(self._name, outcome, tail), model=model)


async def _put(work: Work, name: str, data: bytes) -> str:
    """Where a file is, written into the agent's home. Raises ConfigError where there is no room for it."""
    written = await work.sandbox.run(Command(argv=("/bin/sh", "-c", _WRITE, "sh", name), stdin=data))
    if written.exit_code != 0:
        raise ConfigError(
            f"the task cannot be written into the agent's home: {ending(written.text, 2)}",
            "give the sandbox more room: sandbox.limits.disk",
        )
    return f"{written.text}/{name}"


def _client() -> bytes:
    """The program that speaks with an agent of the Agent Client Protocol inside."""
    return importlib.resources.files("swarm.strategies").joinpath("acp_client.py").read_bytes()


async def _heard(work: Work) -> tuple[str, ...]:
    """What people have said to the task by now; one of others' cannot be told more while it runs."""
    messages = await work.inbox(0)
    for one in messages:
        data = {"author": one.author, "text": one.text, "seq": one.seq, "of": one.task}
        await work.record("message", data)
    return tuple(prompts.said(one.author, one.text) for one in messages)


def told(task: Task, test_command: str | None, said: tuple[str, ...] = (), left: str = "") -> str:
    """The task in words, as an agent is given it, with what was ``said`` to it since and what it may spend."""
    request = task.request
    parts = [f"# {request.title}" if request.title else "", request.instructions.strip()]
    parts.append(f"Look first at: {', '.join(request.paths)}" if request.paths else "")
    parts.append(f"The result is checked with: {test_command}" if test_command else "")
    parts += said
    parts.append(_BUDGET.format(left=left) if left else "")
    return "\n\n".join(part for part in parts if part) + "\n"


def short(text: str) -> str:
    """What fits into one argument of a program, told where the rest is."""
    raw = text.replace("\0", "").encode("utf-8", "replace")
    if len(raw) <= LONGEST_WORD:
        return raw.decode()
    return (
        raw[:LONGEST_WORD].decode("utf-8", "ignore") + "\n[the whole task is in the file that SWARM_TASK_FILE names]\n"
    )


def argv_of(agent: AgentConfig, values: dict[str, str]) -> tuple[str, ...]:
    """The command as words; a shell is only told what the settings say, never the task's own words."""
    if isinstance(agent.command, str):
        return ("/bin/sh", "-c", agent.command)
    return tuple(_MARK.sub(lambda mark: values[mark[1]], word) for word in agent.command)


async def _tell(run: _Run) -> None:
    """Let the journal have what was printed and asked since the last look."""
    if text := run.printed.taken():
        await run.work.record("output", {"text": text})
    failed: Counter[tuple[str, str]] = Counter()
    for call in run.calls.taken():
        if call.status != "200":
            failed[call.status, call.reason[:REASON]] += 1
            _judge(run, call)
            continue
        who = {name: getattr(call, name) for name in ("tier", "endpoint", "model", "tokens")}
        usage = call.usage.model_dump() if call.usage else {}
        cost = facts(call, run.work.ledger.bill(call, call.tokens))
        await run.work.record("model_call", {**who, **usage, "seconds": round(call.seconds, 3), **cost})
    if notice := run.work.ledger.notice(run.told):  # for people to see: an agent of others has to ask for it
        run.told = notice.passed
        await run.work.record("budget", {**notice.facts(), "noticed": notice.passed})
    if failed:
        words = ", ".join(f"{n} with {status}{f' ({why})' if why else ''}" for (status, why), n in failed.items())
        await run.work.record("note", {"text": f"calls of a model that failed: {words}"})


def _judge(run: _Run, call: Answered) -> None:
    """Note an agent that asks for tool calls where nobody makes any: it would only try again, for minutes."""
    if call.status == "400" and call.param == "tools":
        run.without_tools += 1
    if run.without_tools >= HOPELESS and not run.calls.answers:
        run.hopeless = f"{run.without_tools} calls were refused: {call.reason[:REASON]}"


def _stop(run: _Run) -> str:
    """Why it must end now; empty while it need not."""
    now = time.monotonic()
    if run.calls.over:
        run.over_since = run.over_since or now
        return "the budget is spent" if now - run.over_since > LAST_WORDS else ""
    if run.hopeless:
        return run.hopeless
    if min(now - run.heard_at, run.calls.quiet) > run.agent.idle:
        return f"it printed nothing and asked no model for {run.agent.idle:g} s"
    return ""


async def _save_in_passing(run: _Run, every: float) -> None:
    """Have the workspace saved beside the running command, so that hours of work outlive the daemon."""
    now = time.monotonic()
    if run.save is not None and run.save.done():
        error, run.save = run.save.exception(), None
        run.save_took, run.saved_at = now - run.saved_at, now
        if isinstance(error, SandboxError):  # it changes while it is read; the next one may do
            await run.work.record("note", {"text": f"the work could not be saved in passing: {error}"})
        elif error is not None:
            raise error
    if run.save is None and now - run.saved_at > max(every, SAVE_SHARE * run.save_took):
        run.saved_at = now
        run.save = asyncio.ensure_future(run.work.save())


async def _ended(*tasks: asyncio.Future[Any] | None) -> None:
    """End what still runs, and wait for that."""
    running = {task for task in tasks if task is not None}
    for task in running:
        task.cancel()
    await asyncio.wait(running)


def _met(work: Work) -> BudgetExceededError:
    """Which limit an agent was stopped at: one that is spent, else that of the time."""
    try:
        work.ledger.admit()
    except BudgetExceededError as error:
        return error
    return work.ledger.late()


def _left(work: Work) -> float:
    return work.ledger.seconds_left()


def _summary(name: str, tail: str) -> str:
    """What a pull request says of the work: what the agent itself said at its end."""
    said = "\n".join(f"    {line}" for line in tail.splitlines())
    return f"Made by the agent {name}, which ended with:\n\n{said}" if said else f"Made by the agent {name}."


def _gave_up(name: str, outcome: Outcome, tail: str) -> str:
    if outcome.out_of_memory:
        return f"{name} ran out of memory; sandbox.limits.memory bounds it"
    last = tail.splitlines()[-1:] or ["it printed nothing"]
    return f"{name} ended with exit code {outcome.exit_code}: {last[0]}"
