"""Readings as plain text for a terminal."""

from meterkit.scale import clamp, fraction


def bar(value, low, high, width=20):
    """A bar as long as the value's share of the scale; what lies beyond fills or empties it."""
    shown = clamp(value, low, high)
    filled = round(fraction(shown, low, high) * width)
    return "#" * filled + "." * (width - filled)


def line(reading, digits=1):
    """One reading as a line of a table."""
    return f"{reading.taken:%d.%m. %H:%M}  {reading.value:>8.{digits}f}"


def table(readings, digits=1):
    """All readings, one to a line."""
    if not readings:
        return "no readings"
    return "\n".join(line(reading, digits) for reading in readings)
