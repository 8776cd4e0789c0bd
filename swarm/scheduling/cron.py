"""When a schedule runs next, and which of the runs whose time has passed are made up for. Pure.

Expressions are cron's five fields, as cronsim reads them, and behave at changes of the clock like Debian's cron: what
falls into the hour that is left out runs once after it, what falls into the hour that comes twice runs once.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

from swarm.errors import TaskError

Missed = Literal["once", "skip"]
GRACE = 300.0  # seconds after its time in which a run is merely late, not missed


def upcoming(cron: str, timezone: str, after: float) -> float | None:
    """The first time after ``after``, in seconds since 1970; None where no further one comes.

    Raises TaskError for an expression or a timezone that cannot be read.
    """
    moment = datetime.fromtimestamp(after, UTC).astimezone(_zone(timezone))
    if len(cron.split()) != 5:
        raise TaskError(f'"{cron}" is no cron expression: it has not five fields', _FIELDS)
    try:
        found = next(CronSim(cron, moment), None)
    except CronSimError as error:
        raise TaskError(f'"{cron}" is no cron expression: {error}', _FIELDS) from None
    return None if found is None else found.timestamp()


def due(planned: float, now: float, missed: Missed) -> bool:
    """Whether a run whose time has come is made: at its time always, long after it only where that is wanted."""
    return missed == "once" or now - planned <= GRACE


_FIELDS = 'minute, hour, day of month, month, day of week, as in "30 6 * * 1-5"'


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise TaskError(f'there is no timezone "{name}"', "name one as Europe/Berlin or UTC") from None
