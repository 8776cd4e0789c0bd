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
ROUNDS = 3


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
        """The best of some rounds: whatever else the machine does only adds."""
        found = [await self.ask(sentences, 1) for _ in range(ROUNDS)]
        return Prefill(found[0][0], min(at[0] for _, at in found))

    async def decode(self, sequences: int) -> Decode:
        """The median gap while so many decode."""
        found = await asyncio.gather(*(self.ask(1, 24) for _ in range(sequences)))
        gaps = [b - a for _, at in found for a, b in pairwise(at[4:])]
        return Decode(sequences, statistics.median(gaps))


async def test_fitted_model_predicts_the_time_to_the_first_token(vllm_url: str) -> None:
    async with httpx.AsyncClient(base_url=vllm_url, timeout=600) as client:
        model = (await client.get("/v1/models")).json()["data"][0]["id"]
        server = Measured(client, model)
        await server.ask(5, 4)
        prefills = [await server.prefill(sentences) for sentences in (10, 40, 110)]
        decodes = [await server.decode(sequences) for sequences in (1, 3, 6)]
        settings = fitted(SIZE, prefills, decodes)
        others = [await server.prefill(sentences) for sentences in (25, 75)]
        pair = await asyncio.gather(server.ask(30, 1), server.ask(30, 1))
    wanted = [(one.seconds, predicted(settings, [Arrival(0, one.tokens)])[0]) for one in others]
    both = predicted(settings, [Arrival(0, tokens) for tokens, _ in pair])
    wanted += list(zip(sorted(at[0] for _, at in pair), sorted(both), strict=True))
    errors = [abs(told - seen) / seen for seen, told in wanted]
    print(settings, [(round(seen, 2), round(told, 2)) for seen, told in wanted])  # noqa: T201  wanted with -s
    assert statistics.median(errors) < TOLERANCE, (settings, wanted)
