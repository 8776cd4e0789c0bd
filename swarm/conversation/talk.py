"""The running conversation of one attempt: journal first, then memory, so that a restart goes on where it stood."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from pool.errors import ContextOverflowError
from pool.types import Message, ToolSpec, Traits
from swarm import history, prompts, recording
from swarm.budgets.notices import told_before
from swarm.conversation import lessons, progress, room
from swarm.conversation.events import Event
from swarm.conversation.lessons import Trail
from swarm.conversation.progress import EVENT, Progress
from swarm.conversation.scene import Scene, scene
from swarm.sizes import is_small
from swarm.speech.form import Form, choose
from swarm.speech.told import protocol
from swarm.tools.kit import Toolkit
from swarm.tools.specs import Size, specs
from swarm.work import Work

SMALL_WINDOW = 16_384  # tokens
_KNOWN = 0.15  # share of the window that what is known of a repository may take


@dataclass
class Talk:
    """``messages`` only grow at their end, but for the breaks that `history.BREAKS` names, each a line of the journal,
    so that an endpoint's cached prefix stays of use.

    ``opening`` is what it began with, ``notes`` what stands for a part that was condensed. ``tier`` is asked now, of
    which ``traits`` are known, others of ``ladder`` may be; ``count`` is what a server counted last. ``tested`` holds
    while the tests passed after the last change, ``told`` counts the marks of the budget told of, ``turn`` the answers.
    ``failing`` holds where tests failed before any change, ``minded`` are tests that it was asked about before it
    changed them. ``progress`` and ``trail`` are what was done. ``heard`` is the number of the last message from a
    person that was told, ``said`` are all of them, ``refused`` how often the server refused what it is asked now.
    ``past`` is what the journal held of it where it goes on.
    """

    work: Work
    messages: tuple[Message, ...]
    form: Form
    tools: tuple[ToolSpec, ...]
    traits: Traits
    tier: str
    opening: tuple[Message, ...] = ()
    ladder: tuple[str, ...] = ()
    notes: str = ""
    turn: int = 0
    told: int = 0
    changed: bool = False
    tested: bool = True
    warned: bool = False
    model: str = ""
    count: room.Count = field(default_factory=room.Count)
    progress: Progress = field(default_factory=Progress)
    trail: Trail = field(default_factory=Trail)
    heard: int = 0
    said: tuple[str, ...] = ()
    context: int = 0
    failing: bool = False
    minded: set[str] = field(default_factory=set)
    looked: set[str] = field(default_factory=set)
    condensed: int = -1
    fruitless: int = 0
    refused: int = 0
    past: history.Past | None = None

    @property
    def native(self) -> bool:
        """Whether tools are offered in requests; else their calls are spoken as text."""
        return self.form.native

    @property
    def weight(self) -> int:
        """Bytes of the next request as it stands."""
        return room.weight(self.messages, self.tools if self.native else ())

    @property
    def tokens(self) -> int:
        """Tokens of the next request, as far as they can be told before it is sent."""
        return self.tokens_of(self.messages)

    def tokens_of(self, messages: Sequence[Message]) -> int:
        """Tokens of the next request, if these were its messages."""
        return room.estimate(self.count, room.weight(messages, self.tools if self.native else ()))

    def first(self, *, bare: bool = False) -> tuple[Message, ...]:
        """The opening as it is for the tier that is asked now; ``bare`` of what is known of the repository."""
        return opening_of(self.work, self.traits, protocol(self.form, self.tools), bare=bare)

    async def append(self, kind: str, message: Message, data: dict[str, Any], event: Event | None = None) -> None:
        """Add a message; what the next request says is on disk before it is sent."""
        seen = {EVENT: event.model_dump(exclude_defaults=True)} if event else {}
        line = {**data, "message": dump(message), **seen}
        await self.work.record(kind, line)
        self.messages = (*self.messages, message)
        self.trail = self.trail.after(kind, line)
        if event is not None:
            self.progress = self.progress.after(event)

    async def listen(self) -> bool:
        """Tell what people have said to the task since; whether that was anything."""
        said = await self.work.inbox(self.heard)
        for one in said:
            data = {"author": one.author, "text": one.text, "seq": one.seq, "of": one.task}
            message = Message(role="user", content=prompts.said(one.author, one.text))
            await self.append("message", message, data)
            self.said = (*self.said, message.content)
            self.heard = one.seq
        return bool(said)

    async def answer(self, kind: str, id_: str, text: str, data: dict[str, Any], event: Event | None = None) -> None:
        """Add what a call gave, in the form that its protocol wants."""
        as_tool = self.native and id_ != "text"
        message = (
            Message(role="tool", content=text, tool_call_id=id_) if as_tool else Message(role="user", content=text)
        )
        await self.append(kind, message, data, event)

    async def overflown(self, asked: str, error: ContextOverflowError) -> None:
        """Write down that a request was too long, and learn from the words of the server what it takes."""
        told: dict[str, Any] = {"about": recording.OVERFLOW, "request": asked}
        told |= {"window": error.window, "prompt": error.prompt, "weight": self.weight}
        await self.work.record("note", {"text": f"{recording.TOO_LONG}{error}", **told})
        self.traits = history.narrowed(self.traits, error.window)
        if error.prompt:
            self.count = room.Count(error.prompt, self.weight)

    def counted(self, data: Mapping[str, Any]) -> None:
        """Keep what a server counted for the request of this line."""
        counted = history.counted_in(data)
        self.count = room.Count(*counted) if counted else self.count
        self.context = int(data["prompt_tokens"]) + int(data["completion_tokens"])

    async def move(self, tier: str, traits: Traits, text: str) -> None:
        """Ask another tier from now on, in the same form."""
        form = reformed(self.form, traits, self.work)
        await self.work.record("note", {"text": text, "about": history.LONGER, **_told(tier, traits, form)})
        self.tier, self.traits, self.form, self.count = tier, traits, form, room.Count()

    async def loosen(self, text: str) -> None:
        """Hold the model to no schema any more: the server does not keep to it."""
        self.form = self.form.loosened()
        told = {"about": history.FORM, "form": self.form.model_dump(mode="json")}
        await self.work.record("note", {"text": text, **told})

    async def rewrite(self, new: tuple[Message, ...], text: str, **facts: Any) -> None:
        """Put other messages in place of all. ``facts`` tell `history.rebuild` how they are made of the ones before."""
        await self.work.record("note", {"text": text, **facts})
        self.messages = new

    @asynccontextmanager
    async def noticing(self, *, due: bool = True) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        """What is newly to be told of the budget, mostly nothing, and what the line that tells it must hold.

        Told within the block: that line and the count in it are one, so nobody is told twice after a crash.
        """
        notice = self.work.ledger.notice(self.told) if due else None
        if notice is None:
            yield "", {}
            return
        yield notice.text, {"noticed": notice.passed}
        self.told = notice.passed
        await self.work.record("budget", notice.facts())


async def begin(work: Work, kit: Toolkit | None = None) -> Talk:
    """A new conversation, or the one in the journal as it stood, whose last answer `resuming` sees to. A new one begins
    with what the ``kit`` shows of the work. Raises PoolError and SandboxError."""
    past = history.rebuild(work.past)
    return await _new(work, kit) if past is None else await _resumed(work, past)


async def _new(work: Work, kit: Toolkit | None) -> Talk:
    traits = await work.pool.traits(work.tier)
    form = choose(traits, work.manners)
    tools = specs(testable=bool(work.test_command), size=size_of(traits))
    seen = await scene(work, kit, traits) if kit is not None else Scene()
    messages = opening_of(work, traits, protocol(form, tools), scene=seen.text)
    told = {
        "native": form.native,
        **_told(work.tier, traits, form),
        "tools": size_of(traits),
        "ladder": list(work.ladder),
        "manners": {name: own.model_dump(mode="json", exclude_defaults=True) for name, own in work.manners.items()},
        "test_command": work.test_command,
        "shown": list(seen.shown),
        "failing": seen.failing,
        "messages": [dump(message) for message in messages],
    }
    await work.record("note", {"text": "the conversation begins", "about": history.OPENING, **told})
    talk = Talk(work, messages, form, tools, traits, work.tier, opening=messages, ladder=work.ladder)
    talk.failing, talk.tested = seen.failing, not seen.failing
    return talk


def _told(tier: str, traits: Traits, form: Form) -> dict[str, Any]:
    return {"tier": tier, "traits": traits.model_dump(mode="json"), "form": form.model_dump(mode="json")}


def reformed(form: Form, traits: Traits, work: Work) -> Form:
    """The form for another model in a conversation that has begun: it goes on being written as it was, and is sampled
    as that model wants."""
    return choose(traits, work.manners).model_copy(update={"way": form.way, "shape": form.shape})


def opening_of(
    work: Work, traits: Traits, protocol: str, *, scene: str = "", bare: bool = False
) -> tuple[Message, ...]:
    """The first messages, what is known of the repository cut to a part of the window; ``bare`` of it."""
    most = 0 if bare else int(traits.window * _KNOWN * room.BYTES) if traits.window else None
    told = prompts.Told(work.test_command, work.known, most, scene)
    return prompts.opening(work.task.request, told, protocol=protocol, small=size_of(traits) == "small")


async def _resumed(work: Work, past: history.Past) -> Talk:
    moved = past.began_on != work.tier or past.traits is None
    traits = await work.pool.traits(work.tier) if moved or past.traits is None else past.traits
    form = Form.model_validate(past.form) if past.form else Form(way="native" if past.native else "text")
    if moved:  # the journal is of another tier's attempt, or of an older version
        form = reformed(form, traits, work)
        told = {"about": history.MOVED, **_told(work.tier, traits, form)}
        await work.record("note", {"text": f"the conversation goes on with tier {work.tier}", **told})
    tier = work.tier if moved else past.tier
    tools = specs(testable=bool(work.test_command), size="small" if past.tools == "small" else "full")
    talk = Talk(work, past.messages, form, tools, traits, tier, opening=past.opening)
    talk.past, talk.notes = past, past.notes
    talk.ladder = work.ladder if moved else past.ladder
    talk.failing, talk.changed = past.failing, past.changed
    talk.tested = not (past.changed or past.failing)
    talk.heard = last_heard(work)
    talk.said = tuple(str(step.data["message"]["content"]) for step in work.past if step.kind == "message")
    talk.told = told_before(work.past, work.attempt)
    if past.answer:
        talk.model = str(past.answer.get("model", ""))
        talk.context = int(past.answer.get("prompt_tokens", 0)) + int(past.answer.get("completion_tokens", 0))
    talk.count = room.Count() if moved else room.Count(*past.counted)
    own = [step for step in work.past if step.attempt == work.attempt]  # circles of one that ended are forgiven
    talk.progress, talk.trail = progress.of(own), lessons.trail_of(work.past)
    talk.turn = max(past.answers, *(event.turn for event in talk.progress.events), 0)  # ids of calls come but once
    return talk


def size_of(traits: Traits) -> Size:
    """Which tools are offered, and in how many words the work is explained: less to small models, and where it would
    take much of the window."""
    narrow = traits.window is not None and traits.window <= SMALL_WINDOW
    return "small" if narrow or is_small(traits.model) else "full"


def last_heard(work: Work) -> int:
    """The number of the last message that this conversation was told; a fork's other task numbers its own."""
    told = (step.data for step in work.past if step.kind == "message")
    return max((int(data["seq"]) for data in told if data.get("of") == work.task.id), default=0)


def dump(message: Message) -> dict[str, Any]:
    """A message as the journal keeps it."""
    return message.model_dump(mode="json", exclude_defaults=True)
