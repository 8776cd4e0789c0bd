"""What an operator may write as the address of a model server or of its KV events, and what is wrong with others; pure.

The words of each refusal take the address for their subject and end with the mend.
"""

from __future__ import annotations

import os
from urllib.parse import SplitResult, urlsplit

SOCKET_LIMIT = 107  # bytes of a unix socket's path that Linux takes (sun_path, unix(7))
ROUTES = ("/chat/completions", "/completions", "/responses", "/models", "/embeddings", "/health", "/metrics")
HIGHEST = 65535
KEY_IN_IT = "holds a name or password, and addresses are shown; give the key as api_key or api_key_env"


def base_address(text: str) -> str:
    """The address of a model server without /v1. Raises ValueError for what cannot be one, and for one with a key."""
    told = text.strip()
    if not told:
        raise ValueError("is empty; write it like http://127.0.0.1:8000")
    if not told.isprintable() or " " in told:
        raise ValueError("holds a space or a control character; take it out")
    parts = _split(told)
    if parts.query or parts.fragment or told.endswith(("?", "#")):
        raise ValueError(f"ends with a query, which would not be sent; write {_without(parts)}")
    path = parts.path.rstrip("/")
    if route := next((one for one in ROUTES if path.endswith(one)), None):
        base = f"{parts.scheme}://{parts.netloc}{path.removesuffix(route)}"
        raise ValueError(f"names one route; write the address before it: {base}")
    return f"{parts.scheme}://{parts.netloc}{path}".removesuffix("/v1").rstrip("/")


def event_address(text: str) -> str:
    """The address of KV events, as ZMQ takes it. Raises ValueError for any other."""
    scheme, _, rest = text.strip().partition("://")
    if scheme == "ipc" and rest:
        if (length := len(os.fsencode(rest))) > SOCKET_LIMIT:
            raise ValueError(
                f"has a socket path of {length} bytes, the kernel takes {SOCKET_LIMIT}; take a shorter one"
            )
        return text.strip()
    host, _, port = rest.rpartition(":")
    if scheme != "tcp" or not host or not port.isdecimal() or not 0 < int(port) <= HIGHEST:
        raise ValueError("is no address of KV events; write tcp://127.0.0.1:5557, or ipc:///run/vllm/events.sock")
    return text.strip()


def _split(told: str) -> SplitResult:
    scheme = told.partition("://")[0].lower() if "://" in told else ""
    if not scheme and "@" in told:
        raise ValueError(KEY_IN_IT)
    if not scheme:
        raise ValueError(f"has no http:// or https:// before it; did you mean http://{told.lstrip('/')}?")
    if scheme not in {"http", "https"}:
        raise ValueError("is no http:// or https:// address")
    try:
        parts = urlsplit(told)
        port = parts.port
    except ValueError:
        raise ValueError("has no port that could be one; write it like http://127.0.0.1:8000") from None
    if parts.username is not None or parts.password is not None:
        raise ValueError(KEY_IN_IT)
    if not parts.hostname:
        raise ValueError("names no host; write it like http://127.0.0.1:8000")
    if port == 0:
        raise ValueError("has port 0, where nobody listens; write the server's own")
    return parts


def _without(parts: SplitResult) -> str:
    return f"{parts.scheme}://{parts.netloc}{parts.path}"
