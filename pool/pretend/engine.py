"""The pretend engine: a step model of vLLM's scheduler (v1). Pure: time comes in, durations go out, nothing sleeps.

Continuous batching, chunked prefill, paged KV with prefix reuse, preemption by recomputing, priorities. Defaults of the
speeds are those of SMG's mock worker (llm-d/SMG): 8,000 prompt tokens a second, 6 ms a step, 0.35 ms a sequence.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Literal

from pool.pretend.kv import BlockCache, KvEvent, Table

Policy = Literal["fcfs", "priority"]


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """An engine's size and speed. Seconds and tokens; ``max_num_queued_reqs`` counts requests inside, as vLLM does.

    ``prefill_quadratic`` is what one prompt token costs more for each token before it (attention), in seconds.
    """

    block_size: int = 16
    num_gpu_blocks: int = 8192
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 2048
    scheduling_policy: Policy = "fcfs"
    enable_prefix_caching: bool = True
    max_num_queued_reqs: int | None = None
    step_base: float = 0.006
    step_per_sequence: float = 0.00035
    prefill_per_token: float = 1 / 8000
    prefill_quadratic: float = 0.0

    @property
    def kv_tokens(self) -> int:
        """Tokens that fit the KV cache."""
        return self.num_gpu_blocks * self.block_size

    def slower(self, factor: float) -> EngineSettings:
        """The same engine, every duration ``factor`` times as long."""
        fields = {name: getattr(self, name) for name in self.__slots__}
        for name in ("step_base", "step_per_sequence", "prefill_per_token", "prefill_quadratic"):
            fields[name] *= factor
        return EngineSettings(**fields)


@dataclass(slots=True, eq=False)
class Sequence:
    """One sample inside the engine. ``keys`` are those of the whole blocks of prompt and output together.

    It ends after ``target`` output tokens. ``cached`` is the part of the prompt that was found when it first ran.
    """

    id: str
    prompt: int
    target: int
    keys: tuple[int, ...] = ()
    priority: int = 0
    arrival: float = 0.0
    order: int = 0
    computed: int = 0
    generated: int = 0
    preemptions: int = 0
    cached: int | None = None
    first_token: float | None = None
    table: Table = field(default_factory=lambda: Table(""))

    @property
    def length(self) -> int:
        """Tokens so far."""
        return self.prompt + self.generated

    @property
    def rank(self) -> tuple[int, float, int]:
        """Who is first under priorities: the least; who is preempted first: the greatest."""
        return (self.priority, self.arrival, self.order)

    def __lt__(self, other: Sequence) -> bool:
        return self.rank < other.rank


@dataclass(frozen=True, slots=True)
class StepResult:
    """What one step did: output tokens of each sequence that got one, who ended, and who lost its blocks."""

    duration: float
    emitted: dict[str, int] = field(default_factory=dict)
    finished: tuple[Sequence, ...] = ()
    preempted: tuple[str, ...] = ()
    prefilled: int = 0
    events: tuple[KvEvent, ...] = ()

    @property
    def idle(self) -> bool:
        """Whether there was nothing to do, or nothing that could be done."""
        return self.duration == 0.0


@dataclass(slots=True)
class Counters:
    """What only grows while an engine lives."""

    steps: int = 0
    preemptions: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    generated: int = 0
    queries: int = 0
    hits: int = 0
    stepped_tokens: int = 0


class Engine:
    """One engine. Give it sequences with `add`, then call `step` again and again, each call at the end of the last."""

    def __init__(self, settings: EngineSettings | None = None) -> None:
        self.settings = settings or EngineSettings()
        self.cache = BlockCache(self.settings.num_gpu_blocks, caching=self.settings.enable_prefix_caching)
        self.counters = Counters()
        self.running: list[Sequence] = []
        self._waiting: deque[Sequence] | list[Sequence] = [] if self._by_priority else deque()
        self._added = 0

    @property
    def _by_priority(self) -> bool:
        return self.settings.scheduling_policy == "priority"

    @property
    def waiting(self) -> int:
        """Sequences that wait for their first step, or for their next one after a preemption."""
        return len(self._waiting)

    @property
    def inside(self) -> int:
        """All sequences."""
        return len(self.running) + len(self._waiting)

    def takes(self, count: int) -> bool:
        """Whether ``count`` more sequences keep to the limit of those inside; a server refuses them else."""
        most = self.settings.max_num_queued_reqs
        return most is None or self.inside + count <= most

    def add(self, sequence: Sequence) -> None:
        """Queue a sequence. Its priority counts under the policy "priority" alone, and is ignored without a word else.

        Raises ValueError for one that could never fit the KV cache.
        """
        if sequence.prompt + sequence.target > self.settings.kv_tokens:
            raise ValueError(f"{sequence.id}: {sequence.prompt} + {sequence.target} tokens never fit the KV cache")
        self._added += 1
        sequence.order = self._added
        sequence.table = Table(sequence.id)
        self._enqueue(sequence)

    def abort(self, ids: Iterable[str]) -> None:
        """Drop sequences, running or waiting; their blocks are free at once."""
        gone = set(ids)
        for sequence in self.running:
            if sequence.id in gone:
                self.cache.release(sequence.table)
        self.running = [sequence for sequence in self.running if sequence.id not in gone]
        kept = [sequence for sequence in self._waiting if sequence.id not in gone]
        self._waiting = kept if self._by_priority else deque(kept)
        if self._by_priority:
            heapify(kept)

    def step(self, now: float) -> StepResult:
        """Schedule and compute one step that begins at ``now`` (seconds). Its tokens come out at its end."""
        scheduled: dict[Sequence, int] = {}
        budget = self.settings.max_num_batched_tokens
        budget, preempted = self._schedule_running(scheduled, budget)
        if not preempted:
            self._schedule_waiting(scheduled, budget)
        if not scheduled:
            return StepResult(0.0, preempted=tuple(preempted), events=self._events())
        duration, prefilled = self._cost(scheduled)
        emitted, finished = self._advance(scheduled, now + duration)
        self._count(scheduled, emitted)
        return StepResult(duration, emitted, finished, tuple(preempted), prefilled, self._events())

    def _enqueue(self, sequence: Sequence) -> None:
        if isinstance(self._waiting, list):
            heappush(self._waiting, sequence)
        else:
            self._waiting.append(sequence)

    def _schedule_running(self, scheduled: dict[Sequence, int], budget: int) -> tuple[int, list[str]]:
        """Give each running sequence its tokens, preempting others where blocks run out."""
        preempted: list[str] = []
        for sequence in tuple(self.running):
            if budget <= 0:
                break
            if sequence.id in preempted:
                continue
            count = min(sequence.length - sequence.computed, budget)
            while not self._allocate(sequence, count):
                victim = max(self.running) if self._by_priority else self.running[-1]
                budget += scheduled.pop(victim, 0)
                self._preempt(victim)
                preempted.append(victim.id)
                if victim is sequence:
                    break
            else:
                scheduled[sequence] = count
                budget -= count
        return budget, preempted

    def _schedule_waiting(self, scheduled: dict[Sequence, int], budget: int) -> None:
        while self._waiting and budget > 0 and len(self.running) < self.settings.max_num_seqs:
            sequence = self._waiting[0]
            found = sequence.keys[: self.cache.hits(sequence.keys[: (sequence.length - 1) // self.settings.block_size])]
            if self.cache.wanted(found, self._blocks(sequence.length)) > self.cache.free:
                return  # the whole prompt must fit, as vLLM's scheduler_reserve_full_isl has it; nobody overtakes
            self._dequeue()
            self.cache.reuse(sequence.table, found)
            sequence.computed = len(found) * self.settings.block_size
            if sequence.cached is None:
                sequence.cached = min(sequence.computed, sequence.prompt)
                self.counters.queries += sequence.prompt
                self.counters.hits += sequence.cached
            count = min(sequence.length - sequence.computed, budget)
            self._allocate(sequence, count)
            self.running.append(sequence)
            scheduled[sequence] = count
            budget -= count

    def _dequeue(self) -> None:
        if isinstance(self._waiting, list):
            heappop(self._waiting)
        else:
            self._waiting.popleft()

    def _allocate(self, sequence: Sequence, count: int) -> bool:
        """Blocks for the tokens of one step; those that it makes whole can be found from now on."""
        end = sequence.computed + count
        if not self.cache.grow(sequence.table, self._blocks(end)):
            return False
        self.cache.name(sequence.table, sequence.keys[: end // self.settings.block_size])
        return True

    def _blocks(self, tokens: int) -> int:
        return -(-tokens // self.settings.block_size)

    def _preempt(self, victim: Sequence) -> None:
        self.running.remove(victim)
        self.cache.release(victim.table)
        victim.computed = 0
        victim.preemptions += 1
        self.counters.preemptions += 1
        if isinstance(self._waiting, list):
            heappush(self._waiting, victim)
        else:
            self._waiting.appendleft(victim)

    def _cost(self, scheduled: dict[Sequence, int]) -> tuple[float, int]:
        """Seconds of a step, and the prompt tokens in it."""
        speed = self.settings
        prefilled, attended = 0, 0.0
        for sequence, count in scheduled.items():
            if sequence.computed < sequence.prompt or count > 1:
                prefilled += count
                attended += count * (sequence.computed + count / 2)
        seconds = speed.step_base + speed.step_per_sequence * len(scheduled) + speed.prefill_per_token * prefilled
        return seconds + speed.prefill_quadratic * attended, prefilled

    def _advance(self, scheduled: dict[Sequence, int], at: float) -> tuple[dict[str, int], tuple[Sequence, ...]]:
        emitted: dict[str, int] = {}
        finished = []
        for sequence, count in scheduled.items():
            sequence.computed += count
            if sequence.computed < sequence.length:
                continue
            sequence.generated += 1
            emitted[sequence.id] = 1
            if sequence.first_token is None:
                sequence.first_token = at
                self.counters.prompt_tokens += sequence.prompt
                self.counters.cached_tokens += sequence.cached or 0
            if sequence.generated >= sequence.target:
                finished.append(sequence)
                self.cache.release(sequence.table)
        if finished:
            self.running = [sequence for sequence in self.running if sequence not in finished]
        return emitted, tuple(finished)

    def _count(self, scheduled: dict[Sequence, int], emitted: dict[str, int]) -> None:
        self.counters.steps += 1
        self.counters.generated += len(emitted)
        self.counters.stepped_tokens += sum(scheduled.values())

    def _events(self) -> tuple[KvEvent, ...]:
        events, self.cache.events = tuple(self.cache.events), []
        return events
