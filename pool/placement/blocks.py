"""Turns a prompt into the keys of its blocks, hashing of a session's next turn only what is new. No I/O.

A prompt becomes bytes in one canonical way: model, adapter, cache salt and tools first, as chat templates put them
first, then message by message, so that a longer conversation begins with the bytes of the shorter. Blocks are counted
in bytes, since tokens would cost a call to the server; bytes per token are learnt from the counts that answers tell.
"""

from __future__ import annotations

import json
from array import array
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic_core import PydanticSerializationError
from xxhash import xxh3_64_intdigest

from pool.placement.view import Prompt
from pool.types import ChatRequest, CompletionRequest, Frozen

GRAIN = 128  # bytes of one block: about two of vLLM's default blocks of 16 tokens
BYTES_PER_TOKEN = 4.0  # of English and code with today's vocabularies, until answers tell
LEAST, MOST = 0.5, 16.0  # bounds of what is believed
TELLING = 500  # tokens from which a prompt tells all: of a short one, most bytes are names and braces
MEAN = 0.1
MOST_KEYS = 8_000_000  # 64 MiB of keys, which is 2,500 sessions of 100,000 tokens; others are hashed anew
MOST_SESSIONS = 100_000
MOST_MODELS = 1_000


class _Known:
    """What is kept of a session: the bytes of its whole blocks by length and digest, their keys, and what the server
    counted for how many bytes."""

    __slots__ = ("bytes_told", "chain", "digest", "size", "tokens_told")

    def __init__(self) -> None:
        self.size = 0
        self.digest = xxh3_64_intdigest(b"")
        self.chain: array[int] = array("Q")
        self.tokens_told = 0
        self.bytes_told = 0


class Keys:
    """Makes prompts. One for all sessions; bounded, the longest unused session is hashed anew when it comes back."""

    def __init__(self, grain: int = GRAIN, most_keys: int = MOST_KEYS, most_sessions: int = MOST_SESSIONS) -> None:
        self._grain = grain
        self._most_keys = most_keys
        self._most_sessions = most_sessions
        self._sessions: OrderedDict[tuple[str, str], _Known] = OrderedDict()
        self._keys = 0
        self._bytes_per_token: OrderedDict[str, float] = OrderedDict()

    def chat(self, model: str, request: ChatRequest, adapter: str = "") -> Prompt:
        """The prompt of a chat turn for a model."""
        tools = "".join(_text(tool) for tool in request.tools)
        parts = [_head(model, adapter, request.cache_salt, tools)]
        parts.extend(_text(message) for message in request.messages)
        return self._prompt(model, request.session, "".join(parts))

    def text(self, model: str, request: CompletionRequest, adapter: str = "") -> Prompt:
        """The prompt of a raw completion for a model."""
        return self._prompt(model, request.session, _head(model, adapter, request.cache_salt, "") + request.prompt)

    def body(self, model: str, session: str, body: Mapping[str, Any], adapter: str = "") -> Prompt:
        """The prompt in the JSON body of a chat or a completion, as a client sent it; whatever it holds.

        Nothing is checked here: of what no server would take, too, something is made that a session is found by.
        """
        head = _head(model, adapter, body.get("cache_salt"), body.get("tools") or "")
        messages = body.get("messages")
        if isinstance(messages, list):
            return self._prompt(model, session, head + "".join(_json(message) for message in messages))
        prompt = body.get("prompt", body.get("input", ""))
        return self._prompt(model, session, head + (prompt if isinstance(prompt, str) else _json(prompt)[:-1]))

    def learn(self, model: str, session: str, prompt: Prompt, prompt_tokens: int) -> None:
        """An answer told how many tokens a prompt made here really has. Nothing is learnt of no tokens."""
        size = prompt.tokens * self._grain / prompt.block_tokens
        if prompt_tokens <= 0 or size < 1:
            return
        seen = min(MOST, max(LEAST, size / prompt_tokens))
        before = self._bytes_per_token.pop(model, None)
        trust = min(1.0, prompt_tokens / TELLING) * (1.0 if before is None else MEAN)
        before = BYTES_PER_TOKEN if before is None else before
        self._bytes_per_token[model] = before + trust * (seen - before)
        while len(self._bytes_per_token) > MOST_MODELS:
            self._bytes_per_token.popitem(last=False)
        if known := self._sessions.get((model, session)):
            known.tokens_told, known.bytes_told = prompt_tokens, round(size)

    def bytes_per_token(self, model: str) -> float:
        """Bytes of a token of this model, as far as is known."""
        return self._bytes_per_token.get(model, BYTES_PER_TOKEN)

    def forget_session(self, model: str, session: str) -> None:
        """The session ended."""
        if known := self._sessions.pop((model, session), None):
            self._keys -= len(known.chain)

    @property
    def kept(self) -> int:
        """Keys kept for sessions to come back."""
        return self._keys

    def _prompt(self, model: str, session: str, text: str) -> Prompt:
        data = text.encode("utf-8", "surrogatepass")
        known = self._sessions.pop((model, session), None) or _Known()
        self._sessions[model, session] = known
        self._keys -= len(known.chain)
        self._extend(known, memoryview(data))
        self._keys += len(known.chain)
        while len(self._sessions) > 1 and (self._keys > self._most_keys or len(self._sessions) > self._most_sessions):
            self._keys -= len(self._sessions.popitem(last=False)[1].chain)
        tokens = self._tokens(model, known, len(data))
        return Prompt(tokens=tokens, chain=known.chain, block_tokens=tokens * self._grain / len(data))

    def _extend(self, known: _Known, data: memoryview) -> None:
        """Bring a session's keys up to date. The old ones are kept where the prompt begins with the old bytes.

        A new array each time: prompts made before hold on to theirs.
        """
        grain, size = self._grain, len(data) // self._grain * self._grain
        if known.size <= size and xxh3_64_intdigest(data[: known.size]) == known.digest:
            if known.size == size:
                return
            chain, at = known.chain[:], known.size
        else:
            chain, at = array("Q"), 0
            known.tokens_told = 0
        key = chain[-1] if chain else 0
        for start in range(at, size, grain):
            key = xxh3_64_intdigest(data[start : start + grain], key)
            chain.append(key)
        known.chain, known.size, known.digest = chain, size, xxh3_64_intdigest(data[:size])

    def _tokens(self, model: str, known: _Known, size: int) -> int:
        """What was counted for this session's last prompt, and an estimate for what is new."""
        per_token = self.bytes_per_token(model)
        if known.tokens_told and size >= known.bytes_told:
            return max(1, round(known.tokens_told + (size - known.bytes_told) / per_token))
        return max(1, round(size / per_token))


def token_chain(tokens: Sequence[int], block_tokens: int, root: int = 0) -> array[int]:
    """Keys of the whole blocks of token ids, as `Keys` makes them of bytes. ``root`` parts what may not be shared."""
    chain: array[int] = array("Q")
    ids = array("Q", tokens)
    key = root
    for start in range(0, len(ids) - block_tokens + 1, block_tokens):
        key = xxh3_64_intdigest(ids[start : start + block_tokens].tobytes(), key)
        chain.append(key)
    return chain


def token_root(adapter: str | None, salt: str | None) -> int:
    """The root of token chains that one adapter and one cache salt share; 0 where there is neither."""
    return xxh3_64_intdigest(_json([adapter or "", salt or ""]).encode()) if adapter or salt else 0


def _head(model: str, adapter: str, salt: object, tools: object) -> str:
    """What a server keys its cache by besides the text; as JSON, so that no text can pass for it."""
    return _json([model, adapter, salt or "", tools])


_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode  # dumps makes one each time


def _text(value: Frozen) -> str:
    try:
        return value.model_dump_json(exclude_defaults=True)
    except PydanticSerializationError:  # half a surrogate pair, which JSON in UTF-8 cannot hold
        return _json(value.model_dump(exclude_defaults=True))
