"""The pretend tokenizers and the chat template: text to pieces, prompts to bytes of four a token; pure."""

from __future__ import annotations

import json
import re
import struct
import zlib
from typing import Any, Protocol

JSON = dict[str, Any]

TOKEN = re.compile(r"\w+|[^\w\s]")
WIDTH = 4  # characters of one token of `Quads`, and bytes of any token as the engine sees it
END = "</m>"
GENERATE = {"role": "assistant"}


class Tokenizer(Protocol):
    """How a server cuts text into tokens."""

    def pieces(self, text: str) -> list[str]:
        """The text in pieces, one for each token; together they are the text."""
        ...

    def encode(self, text: str) -> bytes:
        """Four bytes for each token."""
        ...


class Words:
    """Words and marks: small prompts that a person can count. White space belongs to the token before it."""

    def pieces(self, text: str) -> list[str]:
        """The text in pieces, one for each token."""
        starts = [found.start() for found in TOKEN.finditer(text)]
        if not starts:
            return [text] if text else []
        starts[0] = 0
        return [text[a:b] for a, b in zip(starts, [*starts[1:], len(text)], strict=True)]

    def encode(self, text: str) -> bytes:
        """Four bytes for each token."""
        return b"".join(zlib.crc32(found.encode()).to_bytes(WIDTH, "big") for found in TOKEN.findall(text))


class Quads:
    """Four characters are a token: cheap enough for prompts of a hundred thousand tokens."""

    def pieces(self, text: str) -> list[str]:
        """The text in pieces, one for each token."""
        return [text[at : at + WIDTH] for at in range(0, len(text), WIDTH)]

    def encode(self, text: str) -> bytes:
        """Four bytes for each token; one byte for each character."""
        data = text.encode("ascii") if text.isascii() else bytes(ord(letter) * 31 & 0xFF for letter in text)
        return data + b"\0" * (-len(data) % WIDTH)


def ids(data: bytes) -> list[int]:
    """Token ids of encoded text."""
    return [number & 0x7FFFFFFF for number in struct.unpack(f">{len(data) // WIDTH}I", data)]


def encoded_prompt(body: JSON, tokenizer: Tokenizer) -> bytes:
    """The prompt that a request means, four bytes a token: what the output will be appended to."""
    if "prompt" in body:
        return _plain(body["prompt"], tokenizer)
    parts = []
    if body.get("tools"):
        parts += [tokenizer.encode("<tools>"), tokenizer.encode(json.dumps(body["tools"]))]
    for message in body.get("messages", ()):
        parts.append(_message(message, tokenizer))
    parts.append(_head(GENERATE, tokenizer))
    return b"".join(parts)


def text_of(content: Any) -> str:
    """A message's text, whether told as a string or in parts."""
    if isinstance(content, list):
        return "".join(str(part.get("text") or "") for part in content if isinstance(part, dict))
    return "" if content is None else str(content)


def _plain(prompt: Any, tokenizer: Tokenizer) -> bytes:
    if isinstance(prompt, list) and prompt and all(isinstance(token, int) for token in prompt):
        return struct.pack(f">{len(prompt)}I", *(token & 0xFFFFFFFF for token in prompt))
    return tokenizer.encode("".join(map(str, prompt)) if isinstance(prompt, list) else str(prompt))


def _message(message: JSON, tokenizer: Tokenizer) -> bytes:
    said = tokenizer.encode(text_of(message.get("content")))
    for call in message.get("tool_calls") or ():
        function = call.get("function") or {}
        said += tokenizer.encode(f"{function.get('name', '')}") + tokenizer.encode(str(function.get("arguments", "")))
    return _head(message, tokenizer) + said + tokenizer.encode(END)


def _head(message: JSON, tokenizer: Tokenizer) -> bytes:
    return tokenizer.encode(f"<{message.get('role', 'user')}>")
