"""The step model, fitted to a real vLLM, says beforehand how long that server takes to the first token."""

from __future__ import annotations

import asyncio
import json
import statistics
import time
import uuid
from itertools import pairwise

import httpx
import pytest

from pool.pretend.engine import EngineSettings
from pool.pretend.fit import Arrival, Decode, Prefill, fitted, predicted

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(1800)]

TOLERANCE = 0.35  # of the measured seconds; the median error over prompts that were not fitted
SIZE = EngineSettings(block_size=128, num_gpu_blocks=182, max_num_seqs=8, max_num_batched_tokens=2048)
SENTENCE = "The quick brown fox jumps over the lazy dog. "
ROUNDS = 2


class Measured:
    """Streams from the server, timed."""

    def __init__(self, client: httpx.AsyncClient, model: str) -> None:
        self._client = client
        self._model = model

    async def ask(self, sentences: int, output: int) -> tuple[int, list[float]]:
        """Prompt tokens, and the seconds at which each event came. Nothing of the prompt is cached."""
        prompt = f"{uuid.uuid4()} {SENTENCE * sentences}"
        body = {"model": self._model, "prompt": prompt, "max_tokens": output, "stream": True, "ignore_eos": True}
        body |= {"stream_options": {"include_usage": True}, "temperature": 0}
        started, at, tokens = time.monotonic(), [], 0
        async with self._client.stream("POST", "/v1/completions", json=body) as answer:
            async for line in answer.aiter_lines():
                if line.startswith("data: {"):
                    event = json.loads(line[6:])
                    if event["choices"]:
                        at.append(time.monotonic() - started)
                    tokens = (event.get("usage") or {}).get("prompt_tokens", tokens)
        return tokens, at

    async def prefill(self, sentences: int) -> Prefill:
        """A prompt that is alone in the server."""
        tokens, at = await self.ask(sentences, 1)
        return Prefill(tokens, at[0])

    async def decode(self, sequences: int) -> Decode:
        """The median gap while so many decode."""
        found = await asyncio.gather(*(self.ask(1, 14) for _ in range(sequences)))
        gaps = [b - a for _, at in found for a, b in pairwise(at[4:])]
        return Decode(sequences, statistics.median(gaps))

    async def pair(self, sentences: int) -> list[tuple[int, float]]:
        """Two prompts at once: tokens and seconds of each, the quicker first."""
        found = await asyncio.gather(self.ask(sentences, 1), self.ask(sentences, 1))
        return sorted(((tokens, at[0]) for tokens, at in found), key=lambda one: one[1])


async def test_fitted_model_predicts_the_time_to_the_first_token(vllm_url: str) -> None:
    """Each is the best of some rounds: whatever else the machine does only adds."""
    async with httpx.AsyncClient(base_url=vllm_url, timeout=600) as client:
        model = (await client.get("/v1/models")).json()["data"][0]["id"]
        server = Measured(client, model)
        await server.ask(5, 4)
        rounds = [
            (
                [await server.prefill(sentences) for sentences in (8, 30, 70)],
                [await server.decode(sequences) for sequences in (1, 5)],
                [await server.prefill(sentences) for sentences in (20, 50)],
                await server.pair(25),
            )
            for _ in range(ROUNDS)
        ]
    prefills, decodes, others, pairs = (list(zip(*kind, strict=True)) for kind in zip(*rounds, strict=True))
    fit = [Prefill(same[0].tokens, min(one.seconds for one in same)) for same in prefills]
    settings = fitted(SIZE, fit, [Decode(same[0].sequences, min(one.seconds for one in same)) for same in decodes])
    wanted = [
        (min(one.seconds for one in same), predicted(settings, [Arrival(0, same[0].tokens)])[0]) for same in others
    ]
    both = predicted(settings, [Arrival(0, same[0][0]) for same in pairs])
    wanted += [(min(s for _, s in same), told) for same, told in zip(pairs, sorted(both), strict=True)]
    errors = [abs(told - seen) / seen for seen, told in wanted]
    print(settings, [(round(seen, 2), round(told, 2)) for seen, told in wanted])  # noqa: T201  wanted with -s
    assert statistics.median(errors) < TOLERANCE, (settings, wanted)
