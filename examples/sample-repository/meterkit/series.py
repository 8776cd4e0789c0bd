"""Smoothing and summing up a series of values."""


def differences(values):
    """What each value adds to the one before it."""
    return [after - before for before, after in zip(values, values[1:])]


def moving_average(values, window):
    """The mean of each run of ``window`` neighbours."""
    if window < 1:
        raise ValueError("a window holds at least one value")
    means = []
    for end in range(window, len(values) + 1):
        means.append(sum(values[end - window : end]) / window)
    return means


def longest_rise(values):
    """How many values the longest unbroken rise spans."""
    best = run = 1 if values else 0
    for before, after in zip(values, values[1:]):
        run = run + 1 if after > before else 1
        best = max(best, run)
    return best


def median(values):
    """The middle value; the mean of the middle two where there are two."""
    if not values:
        raise ValueError("no values")
    ordered = sorted(values)
    middle = len(ordered) // 2
    if len(ordered) % 2:
        return ordered[middle]
    return (ordered[middle - 1] + ordered[middle]) / 2


def outliers(values, tolerance):
    """Values further from the median than ``tolerance``."""
    centre = median(values)
    return [value for value in values if abs(value - centre) > tolerance]
