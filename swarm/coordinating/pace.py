"""How often a host says that it lives, and how long it is believed. Pure data."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Pace:
    """All in seconds.

    ``beat`` lies between two heartbeats; a ``lease`` lasts that long after one, and its host stops by itself when none
    came through in that time. ``grace`` later another host takes over. ``sweep`` lies between two looks at what no
    event told of, ``cancel`` is how long a caller waits to see an attempt tidy up.
    """

    beat: float = 5.0
    lease: float = 30.0
    grace: float = 30.0
    sweep: float = 10.0
    cancel: float = 20.0
