"""Asks one endpoint the canaries, each once, one at a time, and gives way to real traffic."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from pool.config import EndpointConfig
from pool.endpoint import Endpoint
from pool.errors import MisconfiguredError, ModelMissingError, PermanentError, PoolError, TransientError
from pool.types import CALLS, CANARY_TOOL, Capability, Trait
from pool.wire.canary import CHAT, Heard, judge, questions
from pool.wire.capability import Record, trait
from pool.wire.faults import classify

PATIENCE = 120.0  # seconds for one question
ORDER: tuple[Capability, ...] = (  # what requests wait for first, then the quick ones
    "tools", "forced_tools", "stream_usage", "cached_tokens", "logprobs", "json_schema", "reasoning", "priority",
)  # fmt: skip
TRIES = 3  # of a question that brought no answer; after that the capability stays unknown


class Canaries:
    """What one endpoint was seen to do. ``crowd`` bounds how many endpoints are asked at the same time."""

    def __init__(self, endpoint: Endpoint, config: EndpointConfig, crowd: asyncio.Semaphore) -> None:
        self._endpoint = endpoint
        self._config = config
        self._crowd = crowd
        self._one = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._failed: dict[Capability, int] = {}
        self._asked_of: tuple[str, str | None] | None = None
        self.traits: dict[Capability, Trait] = {}

    def about(self, record: Record) -> None:
        """Say whom the answers are about: those of another model or version are forgotten."""
        if self._asked_of != (record.model, record.version):
            self.forget()
            self._asked_of = (record.model, record.version)
            self.traits = vouched(record, self._config)

    def forget(self) -> None:
        """Forget everything: the server may have been started anew with other flags."""
        self.give_way()
        self._asked_of = None
        self._failed.clear()
        self.traits = {}

    @property
    def asking(self) -> bool:
        """Whether the background asks something now."""
        return self._task is not None and not self._task.done()

    def missing(self) -> list[Capability]:
        """What is still worth asking."""
        return [name for name in ORDER if name not in self.traits and self._failed.get(name, 0) < TRIES]

    def begin(self, record: Record, learnt: Callable[[], None]) -> None:
        """Ask what is missing, in the background; ``learnt`` is called after each answer."""
        if not self.asking and self.missing():
            self._task = asyncio.create_task(self._all(record, learnt), name=f"canaries {self._endpoint.name}")

    def give_way(self) -> None:
        """Stop asking in the background; what was not answered is asked again later."""
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def close(self) -> None:
        """Stop asking, and wait until that is so."""
        task = self._task
        self.give_way()
        if task is not None:
            await asyncio.gather(task, return_exceptions=True)

    async def know(self, record: Record, capability: Capability) -> Trait:
        """What is known of one capability, asked now where it is not known yet.

        Raises PoolError where nothing was learnt.
        """
        self.about(record)
        if capability not in self.traits:
            self.give_way()  # somebody waits for this one
            async with self._one:
                if capability not in self.traits:
                    await self._ask(record, capability)
        return self.traits.get(capability, Trait())

    async def _all(self, record: Record, learnt: Callable[[], None]) -> None:
        for capability in self.missing():
            async with self._crowd, self._one:
                if capability in self.traits:
                    continue
                with contextlib.suppress(PoolError):
                    await self._ask(record, capability)
            learnt()

    async def _ask(self, record: Record, capability: Capability) -> None:
        try:
            found = await self._try_out(record, capability)
        except PoolError:
            self._failed[capability] = self._failed.get(capability, 0) + 1
            raise
        if self._asked_of == (record.model, record.version):  # else it was restarted in the meantime
            self.traits[capability] = found

    async def _try_out(self, record: Record, capability: Capability) -> Trait:
        heard = []
        for body in questions(capability, record):
            try:
                async with asyncio.timeout(PATIENCE):
                    raw = await self._endpoint.post(CHAT, body, session=CANARY_TOOL)
            except TimeoutError as error:
                told = f"no answer within {PATIENCE:g} s to the question for {capability}"
                raise TransientError(f"endpoint {self._endpoint.name}: {told}") from error
            heard.append(Heard(raw.status, raw.body.decode("utf-8", "replace")))
            if raw.status != 200:
                refused = classify(self._endpoint.name, raw.status, heard[-1].text, raw.headers)
                if not isinstance(refused, PermanentError) or isinstance(
                    refused, ModelMissingError | MisconfiguredError
                ):
                    raise refused
        return judge(capability, record.kind, heard)


def vouched(record: Record, config: EndpointConfig) -> dict[Capability, Trait]:
    """What needs no question: the operator's own word, and what no request could show."""
    kind, found = record.kind, dict[Capability, Trait]()
    if config.tools == "native":
        found |= {name: trait(kind, name, "yes", "the configuration says so") for name in CALLS}
    elif config.tools == "text":
        told = "the configuration says to speak them as text"
        found |= {name: trait(kind, name, "no", told) for name in CALLS}
    if kind != "vllm":
        found["priority"] = trait(kind, "priority", "no", "this kind of server knows no priorities")
    elif config.scheduling == "priority":
        found["priority"] = trait(kind, "priority", "yes", "the configuration says so")
    elif config.scheduling == "fcfs":
        found["priority"] = trait(kind, "priority", "no", "the configuration says first come, first served")
    else:
        told = "cannot be seen: under fcfs vLLM takes the field and ignores it; say scheduling of this endpoint"
        found["priority"] = trait(kind, "priority", "unknown", told)
    return found
