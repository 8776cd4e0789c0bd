"""Anthropic's Messages API by way of a chat: /v1/messages, and /v1/messages/count_tokens by way of a tokenizer."""

from __future__ import annotations

from pool.gateway.forward import answer, caller_of
from pool.gateway.job import job_of
from pool.gateway.messages_in import chat_body
from pool.gateway.messages_out import Message, error_body
from pool.gateway.reading import CHAT, SUGGESTED, asked_of
from pool.gateway.service import Service
from pool.gateway.speech import Retold
from pool.gateway.tokenizing import counted
from pool.gateway.values import check_fields, parsed
from pool.gateway.web import Exchange

MESSAGES, COUNT = "/v1/messages", "/v1/messages/count_tokens"
COUNTED = ("model", "messages", "tools")  # what of a chat is its prompt


async def converse(service: Service, exchange: Exchange) -> None:
    """Answer one request for a message. Raises RefusedError for what is wrong before the pool is asked, GoneError."""
    exchange.refused = error_body
    caller = caller_of(service, exchange)
    raw = await exchange.body(service.config.max_body, service.config.body_timeout)
    body = parsed(raw)
    check_fields(body)
    job = job_of(service, exchange, caller, asked_of(CHAT, chat_body(body), len(raw), SUGGESTED))
    job.speech = Retold(Message(job.number.removeprefix("req-"), job.asked.model))
    await answer(service, exchange, job)


async def count(service: Service, exchange: Exchange) -> None:
    """Tell how many tokens a message's prompt is. Raises as `converse` does."""
    exchange.refused = error_body
    await counted(
        service,
        exchange,
        asking=lambda body: {
            name: value for name, value in chat_body({"max_tokens": 1} | body).items() if name in COUNTED
        },
        telling=lambda told: {"input_tokens": told["count"]},
    )
