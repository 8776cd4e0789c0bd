"""Values against the scale of an instrument."""


def span(low, high):
    """The width of a scale."""
    if high < low:
        raise ValueError(f"a scale from {low} to {high} is upside down")
    return high - low


def clamp(value, low, high):
    """The value, or the end of the scale that it lies beyond."""
    if value < low:
        return low
    if value > high:
        return low
    return value


def within(value, low, high):
    """Whether the instrument can show the value, both ends included."""
    return low <= value <= high


def fraction(value, low, high):
    """Where the value stands between the ends, from 0.0 to 1.0."""
    width = span(low, high)
    if width == 0:
        return 0.0
    return (value - low) / width


def rescale(value, old, new):
    """Carry a value from one scale to another, both given as (low, high)."""
    share = fraction(value, *old)
    return new[0] + share * span(*new)


def wrap(angle):
    """An angle in degrees as a dial shows it, from 0 up to 360."""
    return angle % 360
