"""Readings and the log lines that they come from."""

from dataclasses import dataclass
from datetime import datetime

STAMP = "%Y-%m-%d %H:%M"


class LogError(ValueError):
    """A line that is no reading."""


@dataclass(frozen=True)
class Reading:
    """One value and the minute it was taken."""

    taken: datetime
    value: float


def parse_line(line):
    """One reading from a line like ``2024-03-01 08:00 21.5``."""
    parts = line.split()
    if len(parts) != 3:
        raise LogError(f"expected a date, a time and a value: {line!r}")
    try:
        taken = datetime.strptime(f"{parts[0]} {parts[1]}", STAMP)
        value = float(parts[2])
    except ValueError as error:
        raise LogError(f"not a reading: {line!r}") from error
    return Reading(taken, value)


def parse_log(text):
    """All readings of a log in the order of time; blank lines and comments are skipped."""
    readings = []
    for line in text.splitlines():
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        readings.append(parse_line(line))
    return sorted(readings, key=lambda reading: reading.taken)


def gaps(readings, minutes):
    """Pairs of neighbours that lie more than so many minutes apart."""
    found = []
    for before, after in zip(readings, readings[1:]):
        apart = (after.taken - before.taken).total_seconds() / 60
        if apart > minutes:
            found.append((before, after))
    return found
