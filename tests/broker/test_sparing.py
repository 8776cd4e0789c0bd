"""A flood of errors is a few lines, and the next minute has its own."""

from __future__ import annotations

import logging

from broker.sparing import PER_MINUTE, Sparing


def record(name):
    return logging.LogRecord(name, logging.ERROR, "", 1, "accept failed", (), None)


def test_each_logger_has_so_many_records_in_a_minute():
    now = [0.0]
    sparing = Sparing(lambda: now[0])
    assert sum(sparing.filter(record("asyncio")) for _ in range(1000)) == PER_MINUTE
    assert sparing.filter(record("uvicorn.error"))
    now[0] = 60.0
    assert sparing.filter(record("asyncio"))
