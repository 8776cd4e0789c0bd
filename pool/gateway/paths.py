"""Paths that nobody answers: what a client may have meant, and what there is; pure."""

from __future__ import annotations

from collections.abc import Mapping

from pool.gateway.replies import Refusal

LONGEST = 200  # characters of a path that are repeated
OTHERS = {  # what OpenAI's and vLLM's servers answer besides, and agents may look for
    "embeddings": "embeddings",
    "audio": "audio",
    "images": "images",
    "videos": "videos",
    "moderations": "moderations",
    "rerank": "reranking",
    "score": "scores",
    "classify": "classification",
    "pooling": "pooling",
    "files": "files",
    "uploads": "files",
    "batches": "batches",
    "fine_tuning": "fine-tuning",
    "assistants": "assistants",
    "threads": "assistants",
    "vector_stores": "vector stores",
    "realtime": "realtime sessions",
}


def trimmed(path: str) -> str:
    """The path without slashes at its end."""
    return path.rstrip("/") or "/"


def unknown(path: str, routes: Mapping[str, str]) -> Refusal:
    """The refusal (404) of a path; ``routes`` are those that there are, with their methods."""
    served = ", ".join(f"{method} {route}" for route, method in routes.items())
    return Refusal(
        404, f"there is no route {path[:LONGEST]}{_hint(path, routes)}; served are: {served}", "no_such_route"
    )


def _hint(path: str, routes: Mapping[str, str]) -> str:
    parts = [part for part in path.split("/") if part]
    names = [part for part in parts if part != "v1"]
    for meant in ("/".join(("", "v1", *names)), "/".join(("", *names))):
        if meant in routes and meant != path:
            return f" (is {meant} meant? a base URL ends in one /v1)"
    if names and names[0] in OTHERS:
        return f": {OTHERS[names[0]]} are not placed by this gateway; ask a server that makes them"
    if names and names[0] == "admin":
        return ": the admin routes are on the gateway's unix socket alone"
    return ""
