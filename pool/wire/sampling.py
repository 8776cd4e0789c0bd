"""How tokens are to be drawn and how much is to be thought, in each kind of server's words; pure.

None of it changes what an answer has to be, so what a server has no word for is left out instead of refused.
"""

from __future__ import annotations

from typing import Any

from pool.types import ChatRequest, ServerKind

JSON = dict[str, Any]
_EVERYWHERE = frozenset({"top_p", "presence_penalty"})
"""OpenAI's own fields; the others are known to vLLM and to llama.cpp alone."""


def drawn(request: ChatRequest, kind: ServerKind) -> JSON:
    """The fields of a chat's body that say how its tokens are drawn, how its template is switched and how much is
    thought."""
    told = request.sampling.model_dump(exclude_none=True)
    body: JSON = {name: value for name, value in told.items() if kind != "other" or name in _EVERYWHERE}
    template = dict(request.template)
    if request.effort is not None and kind == "llamacpp":
        template.setdefault("reasoning_effort", request.effort)  # its templates read it, the server has no such field
    elif request.effort is not None:
        body["reasoning_effort"] = request.effort
    if template and kind != "other":
        body["chat_template_kwargs"] = template
    return body
