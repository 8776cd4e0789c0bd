"""Sums for a ledger."""


def total(entries):
    """The sum of all entries."""
    result = 0
    for entry in entries:
        result = result + entry
    return result
