"""Tasks and journal lines as text: pure, and everything foreign in it is cleaned."""

from __future__ import annotations

import time
from collections.abc import Iterator

from swarm.cli.clean import clean, one_line
from swarm.shown import DaemonStatus, EndpointView, HostView
from swarm.types import Attempt, Budget, CheckReport, Spent, TaskState, TaskView, TestRun

GOOD, BAD, BUSY = "green", "red", "cyan"
HEADERS = ("id", "state", "repository", "spent", "age", "title")
ENDPOINT_HEADERS = ("endpoint", "tier", "state", "model", "in flight", "remark")
_INDENT = 15


def style(state: TaskState) -> str:
    """The colour of a state."""
    if state in {TaskState.DELIVERED, TaskState.NO_CHANGE}:
        return GOOD
    return BAD if state.final else BUSY


def title(view: TaskView, width: int = 60) -> str:
    """What a task is about, on one line."""
    request = view.task.request
    lines = request.instructions.strip().splitlines() or [""]
    return one_line(request.title or lines[0], width)


def row(view: TaskView, now: float) -> tuple[str, ...]:
    """One line of the list, under HEADERS."""
    return (
        view.task.id,
        view.state.value,
        view.task.request.repository,
        f"{many(view.spent.steps, 'step')}, {amount(view.spent.tokens)} tokens",
        age(now - view.task.created),
        title(view),
    )


def summary(view: TaskView) -> Iterator[str]:
    """How a task stands, in a few lines."""
    yield f"task {view.task.id} {view.state.value}" + (f": {clean(view.reason)}" if view.reason else "")
    facts = {
        "waits": waits(view),
        "answer": f'swarm message {view.task.id} "...", then: swarm resume {view.task.id}' if view.asks else None,
        "runs on": view.host,
        "fault of": view.failure,
        "pull request": view.pull_request,
        "branch": view.branch,
        "commit": view.commit,
        "checks": report(view.report) if view.report else None,
        "kept": kept(view) if view.state.final and view.state is not TaskState.DELIVERED else None,
        "spent": spent(view.spent),
        "time": timings(view.timings),
    }
    yield from (f"  {name:<{_INDENT - 2}}{clean(str(value))}" for name, value in facts.items() if value)


def waits(view: TaskView) -> str | None:
    """Where a queued task stands, and when it is likely to be done; None for any other."""
    if view.place is None:
        return None
    when = f", done in {seconds(view.eta.low)} to {seconds(view.eta.high)}" if view.eta else ", when is not known yet"
    return f"place {view.place} in the queue{when}" + (f"; {view.waits_for}" if view.waits_for else "")


def whole(view: TaskView) -> Iterator[str]:
    """Everything that is known of a task."""
    request = view.task.request
    yield from summary(view)
    facts = {
        "repository": request.repository + (f", base {request.base}" if request.base else ""),
        "base commit": request.base_commit,
        "test command": request.test_command,
        "strategy": request.strategy + (f", tier {request.tier}" if request.tier else ""),
        "paths": ", ".join(request.paths),
        "budget": budget(view.task.budget),
        "created": moment(view.task.created) + (f" by {view.user}" if view.user else ""),
    }
    yield from (f"  {name:<{_INDENT - 2}}{clean(value)}" for name, value in facts.items() if value)
    for attempt in view.attempts:
        yield from tried(attempt, view.stand_of(attempt))
    if view.report:
        yield from _evidence(view.report)
    yield "  instructions"
    yield from (f"    {line}" for line in clean(request.instructions).splitlines())


def tried(attempt: Attempt, stand: str) -> Iterator[str]:
    """One attempt and how it stands, in two lines at most."""
    yield f"  attempt {attempt.number:<5}{stand}, {attempt.strategy} on tier {attempt.tier}, {spent(attempt.spent)}"
    more = [f"took {one_line(attempt.way, 300)}"] if attempt.way else []
    more += [one_line(attempt.detail, 300)] if attempt.detail else []
    more += [f"left in {attempt.salvage}"] if attempt.salvage else []
    if more:
        yield " " * _INDENT + "; ".join(more)


def report(check: CheckReport) -> str:
    """The evidence in one line: before, after, and what moved."""
    if check.verdict == "not_run":
        return f"not run: {one_line(check.reason, 200)}" if check.reason else "not run"
    before, after = run(check.base), run(check.proposal)
    moved = [f"{len(check.fixed)} mended"] if check.fixed else []
    moved += [f"{len(check.broken)} broken"] if check.broken else []
    moved += [f"{len(check.weakened)} weakened"] if check.weakened else []
    moved += [f"{len(check.flaky)} flaky"] if check.flaky else []
    return f"{check.verdict}; before {before}, after {after}" + (f" ({', '.join(moved)})" if moved else "")


def run(test: TestRun | None) -> str:
    """One test run in a few words."""
    if test is None:
        return "not run"
    if test.timed_out:
        return "timed out"
    counted = f"{len(test.passed)} passed, {len(test.failed)} failed" if test.passed or test.failed else ""
    return counted or f"exit {test.exit_code}"


def spent(value: Spent) -> str:
    """What was spent, in words."""
    parts = [many(value.steps, "step"), f"{amount(value.tokens)} tokens", seconds(value.wall)]
    parts += [f"{value.gpu_seconds:.1f} GPU-seconds"] if value.gpu_seconds else []
    parts += [f"{value.money:.2f} of money"] if value.money else []
    return ", ".join(parts) + (f", {many(value.attempts, 'attempt')}" if value.attempts else "")


def budget(limits: Budget) -> str:
    """What may be spent, in words."""
    parts = [spent(Spent(steps=limits.steps, tokens=limits.tokens, wall=limits.wall, attempts=limits.attempts))]
    parts += [f"{limits.gpu_seconds:g} GPU-seconds"] if limits.gpu_seconds is not None else []
    parts += [f"{limits.money:g} of money"] if limits.money is not None else []
    parts += [f"idle for {seconds(limits.idle)} at most"] if limits.idle is not None else []
    parts += [many(limits.rounds, "further round")] if limits.rounds is not None else []
    return ", ".join(parts)


def timings(phases: dict[str, float]) -> str:
    """Where the wall clock went."""
    return ", ".join(f"{name} {seconds(value)}" for name, value in phases.items())


def kept(view: TaskView) -> str | None:
    """The ref that holds what the last attempt left."""
    return next((attempt.salvage for attempt in reversed(view.attempts) if attempt.salvage), None)


def daemon(status: DaemonStatus) -> Iterator[str]:
    """The daemon, its queue and what it stands on."""
    health = status.health
    yield (
        f"daemon       version {health.version}, pid {health.pid}, uid {health.uid}, since {moment(health.started)}"
        + (", draining" if health.draining else "")
    )
    counts = ", ".join(f"{count} {state.value}" for state, count in status.counts.items() if count)
    yield f"tasks        {counts or 'none'}; {len(status.running)} of {status.workers} workers busy"
    sandbox = status.sandbox
    proved = (
        "none" if sandbox is None else f"{sandbox.backend} ({sandbox.version}), {len(sandbox.proved)} claims proved"
    )
    yield f"sandbox      {proved}"
    broker = status.broker
    yield f"broker       {'answers' if broker.reachable else 'does not answer'} at {broker.socket}" + (
        f", {one_line(broker.detail)}" if broker.detail else ""
    )
    yield f"repositories {', '.join(status.repositories) or 'none known'}"
    for one in status.hosts:
        yield f"host         {host(one)}"


def host(one: HostView) -> str:
    """A daemon of the same database, in one line."""
    labels = f", {', '.join(one.labels)}" if one.labels else ""
    state = ", gone" if one.gone else ", draining" if one.draining else ""
    return f"{one.name}: {len(one.tasks)} of {one.slots} busy, last heard {seconds(one.silent)} ago{state}{labels}"


def endpoint(one: EndpointView) -> tuple[str, ...]:
    """One row under ENDPOINT_HEADERS."""
    return one.name, one.tier, "up" if one.up else "down", one.model, str(one.in_flight), one_line(one.detail)


def amount(count: int) -> str:
    """A count of tokens, short."""
    return f"{count / 1000:.0f}k" if count >= 10_000 else f"{count / 1000:.1f}k" if count >= 1000 else str(count)


def many(count: int, thing: str) -> str:
    """A count of things, one or several."""
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"


def seconds(value: float) -> str:
    """A span of time, short."""
    return f"{value:.1f} s" if value < 60 else f"{value / 60:.1f} min" if value < 3600 else f"{value / 3600:.1f} h"


def age(value: float) -> str:
    """How long ago, short."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if value >= size:
            return f"{value / size:.0f}{unit}"
    return f"{max(0, value):.0f}s"


def moment(at: float) -> str:
    """A point in time, local."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


def _evidence(check: CheckReport) -> Iterator[str]:
    told = [("mended", check.fixed), ("broken", check.broken), ("flaky", check.flaky)]
    told.append(("weakened", tuple(f"{each.where}: {each.text}" for each in check.weakened)))
    for name, tests in told:
        yield from (f"  {name:<{_INDENT - 2}}{one_line(test, 200)}" for test in tests[:20])
        if len(tests) > 20:
            yield f"  {name:<{_INDENT - 2}}and {len(tests) - 20} more"
    if check.verdict == "failed" and check.proposal and check.proposal.tail:
        yield "  the end of the tests' output"
        yield from (f"    {line}" for line in clean(check.proposal.tail).splitlines()[-20:])
