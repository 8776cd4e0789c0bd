"""What decides how long a pretend answer takes and what of its prompt was cached: a script, or an engine."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from itertools import count
from typing import Protocol

from pool.pretend.driver import Driver, Ticket
from pool.pretend.engine import EngineSettings, Sequence
from pool.pretend.kv import KvEvent, chain
from pool.pretend.page import Numbers
from pool.pretend.publisher import KvEvents, Publisher
from pool.pretend.script import BLOCK, JSON, Recorded, common, most_tokens, tokens
from pool.pretend.speech import Spoken
from pool.pretend.tokens import WIDTH, Quads, Tokenizer, Words, encoded_prompt, ids
from pool.types import Choice

FILLER = " tok"  # what an engine says that nobody gave words to: one token of `Quads`
REMEMBERED = 4096  # sequences whose tokens are kept for the KV events
UNTOLD = 16  # output tokens of a request that sets no limit


class Turn(Protocol):
    """One request: how long its prompt is, what was cached, and when its tokens come."""

    recorded: Recorded
    prompt_tokens: int

    @property
    def cached(self) -> int:
        """Prompt tokens that were found in the cache."""
        ...

    def begin(self, samples: list[Spoken]) -> None:
        """Start on it."""
        ...

    async def reach(self, index: int, tokens: int) -> None:
        """Wait until a sample has so many tokens."""
        ...

    def close(self) -> None:
        """It is over, however it ended."""
        ...


class Mind(Protocol):
    """The part of a server that a script or an engine plays."""

    tokenizer: Tokenizer
    events: KvEvents | None

    def turn(self, recorded: Recorded, *, probe: bool) -> Turn:
        """A new request; a probe is one of the pool's canaries."""
        ...

    def takes(self, samples: int) -> bool:
        """Whether so many more samples are admitted."""
        ...

    def small_talk(self, body: JSON) -> str | Choice:
        """What is said when nobody gave words."""
        ...

    def tell(self, numbers: Numbers) -> None:
        """Put what it knows on the metrics page."""
        ...

    def event_sources(self) -> JSON:
        """Where KV events are published, by rank."""
        ...

    def forget(self) -> None:
        """Empty the cache."""
        ...

    def wedge(self) -> None:
        """Stand still."""
        ...

    def unwedge(self) -> None:
        """Move on."""
        ...

    async def start(self) -> None:
        """Begin."""
        ...

    async def stop(self) -> None:
        """End."""
        ...


class ScriptTurn:
    """A request that takes no time. Its cache is the common beginning with one of the last prompts."""

    def __init__(self, recorded: Recorded, seen: deque[list[str]]) -> None:
        self.recorded = recorded
        self.cached = 0
        self._prompt = tokens(recorded.prompt)
        self.prompt_tokens = len(self._prompt)
        self._seen = seen

    def begin(self, samples: list[Spoken]) -> None:  # noqa: ARG002  the protocol names it
        """Look what is known of the prompt, and remember it."""
        self.cached = max((common(self._prompt, seen) for seen in self._seen), default=0) // BLOCK * BLOCK
        self._seen.append(self._prompt)

    async def reach(self, index: int, tokens: int) -> None:
        """At once."""

    def close(self) -> None:
        """Nothing is held."""


class ScriptMind:
    """A server without an engine."""

    tokenizer: Tokenizer = Words()
    events: KvEvents | None = None

    def __init__(self) -> None:
        self._seen: deque[list[str]] = deque(maxlen=64)
        self._probed: deque[list[str]] = deque(maxlen=64)

    def turn(self, recorded: Recorded, *, probe: bool) -> ScriptTurn:
        """A new request. Canaries leave the cache as it was."""
        return ScriptTurn(recorded, self._probed if probe else self._seen)

    def takes(self, samples: int) -> bool:  # noqa: ARG002  the protocol names it
        """Always."""
        return True

    def small_talk(self, body: JSON) -> str:  # noqa: ARG002  the protocol names it
        """A word."""
        return "ok"

    def tell(self, numbers: Numbers) -> None:
        """The server itself counts."""

    def event_sources(self) -> JSON:
        """None."""
        return {}

    def forget(self) -> None:
        """Empty the cache."""
        self._seen.clear()

    def wedge(self) -> None:
        """The server itself holds its tokens back."""

    def unwedge(self) -> None:
        """The same."""

    async def start(self) -> None:
        """Nothing to start."""

    async def stop(self) -> None:
        """Nothing to stop."""


class EngineTurn:
    """A request inside an engine, one sequence for each sample."""

    def __init__(self, recorded: Recorded, driver: Driver, names: Callable[[bytes], str]) -> None:
        self.recorded = recorded
        self._prompt = encoded_prompt(recorded.body, EngineMind.tokenizer)
        self.prompt_tokens = len(self._prompt) // WIDTH
        self._driver = driver
        self._names = names
        self._tickets: list[Ticket] = []

    @property
    def cached(self) -> int:
        """Prompt tokens that the first sample found in the cache."""
        return (self._tickets[0].sequence.cached or 0) if self._tickets else 0

    def begin(self, samples: list[Spoken]) -> None:
        """Queue it."""
        self._tickets = self._driver.submit([self._sequence(sample) for sample in samples])

    def _sequence(self, sample: Spoken) -> Sequence:
        body = self.recorded.body
        data = self._prompt + EngineMind.tokenizer.encode("".join(token.text for token in sample.tokens))
        return Sequence(
            id=self._names(data),
            prompt=self.prompt_tokens,
            target=max(1, len(sample.tokens)),
            keys=tuple(
                chain(data, self._driver.engine.settings.block_size * WIDTH, salt=str(body.get("cache_salt") or ""))
            ),
            priority=int(self.recorded.headers.get("x-vllm-priority") or body.get("priority") or 0),
        )

    async def reach(self, index: int, tokens: int) -> None:
        """Wait for the engine."""
        await self._tickets[index].reach(tokens)

    def close(self) -> None:
        """Abort what is still inside."""
        self._driver.abort(self._tickets)


class EngineMind:
    """A server with a pretend engine."""

    tokenizer: Tokenizer = Quads()

    def __init__(self, settings: EngineSettings, events: KvEvents | None = None) -> None:
        self.driver = Driver(settings, told=self._publish)
        self.publisher: Publisher | None = None
        self._settings = settings
        self.events = events
        self._count = count()
        self._data: OrderedDict[str, bytes] = OrderedDict()

    def turn(self, recorded: Recorded, *, probe: bool) -> EngineTurn:  # noqa: ARG002  the protocol names it
        """A new request; to an engine they are all alike."""
        return EngineTurn(recorded, self.driver, self._name)

    def takes(self, samples: int) -> bool:
        """Whether the limit of requests inside leaves room."""
        return self.driver.engine.takes(samples)

    def small_talk(self, body: JSON) -> Choice:
        """As many tokens as the request says: outright, or with its limit."""
        most = most_tokens(body)
        told = (body.get("vllm_xargs") or {}).get("output_tokens")
        length = int(told or most or UNTOLD)
        return Choice(content=FILLER * length, finish_reason="stop" if told else "length")

    def tell(self, numbers: Numbers) -> None:
        """The engine's own counts, in place of the server's."""
        engine, counters = self.driver.engine, self.driver.engine.counters
        numbers.running, numbers.waiting, numbers.kv_usage = len(engine.running), engine.waiting, engine.cache.usage
        numbers.prompt_tokens, numbers.cached_tokens = counters.prompt_tokens, counters.cached_tokens
        numbers.generated, numbers.steps = counters.generated, counters.steps
        numbers.preemptions, numbers.queries, numbers.hits = counters.preemptions, counters.queries, counters.hits
        numbers.blocks, numbers.block_size = self._settings.num_gpu_blocks, self._settings.block_size
        numbers.caching, numbers.lost = self._settings.enable_prefix_caching, self.driver.lost

    def event_sources(self) -> JSON:
        """The publisher's addresses, for the one rank there is."""
        if self.publisher is None:
            return {}
        told = {"enable_kv_cache_events": True, "publisher": "zmq", "endpoint": self.publisher.address}
        more = {"replay_endpoint": self.publisher.replay_address, "topic": self.publisher.settings.topic}
        return {"0": {**told, **more, "buffer_steps": self.publisher.settings.buffer_steps}}

    def forget(self) -> None:
        """Empty the cache; what runs keeps its blocks."""
        self.driver.engine.cache.clear()

    def wedge(self) -> None:
        """No further step."""
        self.driver.moving.clear()

    def unwedge(self) -> None:
        """Step again."""
        self.driver.moving.set()

    async def start(self) -> None:
        """Begin to step and to publish."""
        if self.events is not None:
            self.publisher = Publisher(self.events, self._settings.block_size, self._token_ids)
            # the same addresses after a restart, as a server's configuration has it
            self.events = self.publisher.fixed
        self.driver.start()

    async def stop(self) -> None:
        """End both; who was inside stays unanswered and is forgotten."""
        await self.driver.stop()
        if self.publisher is not None:
            await self.publisher.close()
            self.publisher = None

    def _name(self, data: bytes) -> str:
        name = f"sequence-{next(self._count)}"
        if self.events is not None:
            self._data[name] = data
            if len(self._data) > REMEMBERED:
                self._data.popitem(last=False)
        return name

    def _publish(self, events: tuple[KvEvent, ...]) -> None:
        if self.publisher is not None:
            self.publisher.publish(events)

    def _token_ids(self, owner: str, first: int, blocks: int) -> list[int]:
        size = self._settings.block_size * WIDTH
        return ids(self._data.get(owner, b"")[first * size : (first + blocks) * size])
