"""The language of the line, for both of its ends: frames, kinds, caps, and the refusals' words.

A frame is its kind (1 byte), channel (4), length (4) and payload. Requests are marshalled tuples, which only the host
makes. What goes back is bytes and fixed structures, since the host trusts nothing from inside. Bytes flow by credit in
both directions, so that neither side ever waits for the other with both pipes full.
"""

from __future__ import annotations

import struct

FRAME = 64 * 1024
WINDOW = 256 * 1024
STATE = 64 * 1024
LAST = 64 * FRAME  # bytes that a pipe may hold when its command has ended
CONNECTIONS = 64
SIGN = 1.0  # seconds from one word that a command goes on printing to the next
LONG = 60.0  # seconds that a running export may hold back the end of a command
HEAD = struct.Struct(">BII")
DONE_FIELDS = struct.Struct(">BBIQ")  # exit code, flags, kills for want of memory, bytes cut
COUNT = struct.Struct(">I")
TUNNEL = 1 << 31  # channels from here on are connections that were made inside

PART, ASK, DATA, END, CREDIT, CLOSE, FREE = 1, 2, 3, 4, 5, 6, 7
HELLO, HEAD_OUTPUT, TAIL_OUTPUT, STATE_BYTES, DONE, REFUSED, OPEN, ALIVE = 32, 33, 34, 35, 36, 37, 38, 39
TIMED_OUT, UNCLEAN = 1, 2
MISSING, OUTSIDE, NOT_A_FILE = "does not exist", "lies outside the workspace", "is not a file"


class RefusedError(Exception):
    """A request that cannot be done; its words are for the agent."""


class HostGoneError(Exception):
    """Nobody is at the other end any more."""
