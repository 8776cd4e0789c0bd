"""Who a request belongs to: its session (one growing context) and its program (the task tree), as clients say; pure.

Order, first found: a header that names a session, a field of the body that does, then the conversation's own beginning
(system messages and the first user message), so that agents that say nothing stay sticky as well. A per-request id is
never taken for a session: it would scatter it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import xxhash

SESSION_HEADERS = (
    "x-session-id",  # vLLM, vllm-router, llm-d, semantic-router
    "x-claude-code-agent-id",  # Claude Code: one context of the tree that x-claude-code-session-id names
    "x-claude-code-session-id",
    "thread-id",  # Codex: one thread of the session
    "session-id",  # Codex, OpenCode
    "session_id",
    "x-session-affinity",  # OpenCode
    "x-smg-routing-key",  # SMG
    "x-dynamo-session-id",  # Dynamo
    "x-litellm-session-id",  # LiteLLM
    "x-model-affinity",  # Plano
    "x-conversation-id",  # semantic-router
    "x-session-token",  # llm-d: opaque, but the same for one session
)
PROGRAM_HEADERS = ("x-program-id", "x-claude-code-session-id", "session-id", "session_id", "x-correlation-id")
PARENT_HEADERS = ("x-claude-code-parent-agent-id", "x-parent-session-id")
CALLER_HEADERS = ("x-user-id", "x-tenant-id", "x-smg-tenant-id")  # many sessions each: they only tell callers apart
NAMING = tuple(dict.fromkeys((*SESSION_HEADERS, *PROGRAM_HEADERS, *PARENT_HEADERS, *CALLER_HEADERS)))
BODY_FIELDS = ("session_id", "prompt_cache_key")
OPENING = 4096  # characters of a raw prompt that stand for its beginning
LONGEST = 128  # characters of a name that is passed on as it is


@dataclass(frozen=True, slots=True)
class Identity:
    """Names of a request. ``parent`` is the session that started this one; ``source`` tells what named the session."""

    session: str
    program: str
    source: str
    parent: str = ""


def identify(headers: Mapping[str, str], body: Mapping[str, Any], key: str = "") -> Identity:
    """The identity of one request. ``headers`` have small letters; ``key`` keeps callers with own keys apart."""
    context = _context(body)
    session, source = _session(headers, body, context)
    caller = "/".join(filter(None, (key, *(headers.get(name, "") for name in CALLER_HEADERS), _text(body.get("user")))))
    program = _first(headers, PROGRAM_HEADERS) or _text(context.get("root_program")) or _text(context.get("program"))
    parent = _first(headers, PARENT_HEADERS) or _text(context.get("parent_program"))
    return Identity(
        session=_scoped(caller, session),
        program=_scoped(caller, program) if program else "",
        source=source,
        parent=_scoped(caller, parent) if parent else "",
    )


class Trees:
    """Finds the program of a session whose parent is known. Bounded: the tree longest not seen is forgotten first."""

    def __init__(self, most: int = 20_000) -> None:
        self._most = most
        self._roots: dict[str, str] = {}

    def root(self, identity: Identity) -> str:
        """The task tree of a request: as it says, else its parent's, else the session is a tree of its own."""
        session = identity.session
        root = (
            identity.program or self._roots.get(identity.parent, identity.parent) or self._roots.get(session, session)
        )
        if root != session:
            self._roots.pop(session, None)
            self._roots[session] = root
            if len(self._roots) > self._most:
                del self._roots[next(iter(self._roots))]
        return root


def _session(headers: Mapping[str, str], body: Mapping[str, Any], context: Mapping[str, Any]) -> tuple[str, str]:
    for name in SESSION_HEADERS:
        if value := headers.get(name):
            return value, name
    for field in BODY_FIELDS:
        if value := _text(body.get(field)):
            return value, field
    if value := _text(_mapping(body.get("vllm_xargs")).get("session_id")) or _text(context.get("session")):
        return value, "vllm_xargs"
    return beginning(body), "beginning"


def _context(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """What vllm-router's agents say of themselves."""
    return _mapping(_mapping(body.get("vllm_xargs")).get("agentic_context"))


def beginning(body: Mapping[str, Any]) -> str:
    """A key of the conversation's beginning: its model, all before the first user message, and that message."""
    digest = xxhash.xxh3_128(_text(body.get("model")).encode("utf-8", "surrogatepass"))
    messages = body.get("messages")
    if not isinstance(messages, list):
        digest.update(str(body.get("prompt", ""))[:OPENING].encode("utf-8", "surrogatepass"))
        return digest.hexdigest()
    for message in messages:
        role, content = (message.get("role"), message.get("content")) if isinstance(message, dict) else ("", message)
        plain = content if isinstance(content, str) else json.dumps(content)
        digest.update(f"\0{role}\0{plain}".encode("utf-8", "surrogatepass"))
        if role == "user":
            break
    return digest.hexdigest()


def _first(headers: Mapping[str, str], names: tuple[str, ...]) -> str:
    return next((headers[name] for name in names if headers.get(name)), "")


def _scoped(caller: str, name: str) -> str:
    """A name of bounded length that another caller's cannot equal, fit for a header."""
    whole = f"{caller}:{name}" if caller else name
    if len(whole) <= LONGEST and whole.isascii() and whole.isprintable():
        return whole
    return xxhash.xxh3_128(whole.encode("utf-8", "surrogatepass")).hexdigest()


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
