"""What a running command prints, as the journal gets it: whole lines, cleaned, bounded in rate and in sum. Pure."""

from __future__ import annotations

import codecs

from swarm.history import clean

LINE = 400  # characters of one line
BATCH = 40  # lines of one entry of the journal; of more, the last ones
TOTAL = 200_000  # characters that the journal takes of one command
PENDING = 65_536  # characters of a line that does not end


class Printed:
    """Takes bytes as they come and gives lines. What a carriage return wrote over is left out, as on a terminal."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._open = ""
        self._lines: list[str] = []
        self._skipped = 0
        self._told = 0
        self._full = False

    def feed(self, data: bytes) -> None:
        """More of it."""
        *lines, self._open = (self._open + self._decoder.decode(data)).split("\n")
        self._open = self._open[-PENDING:]
        self._add(lines)

    def end(self) -> None:
        """Nothing follows: what stands in the last line is a line."""
        last, self._open = self._open + self._decoder.decode(b"", final=True), ""
        self._add([last])

    def taken(self) -> str:
        """The lines since this was asked last, empty where there is none or the journal has had enough."""
        lines, skipped = self._lines, self._skipped
        self._lines, self._skipped = [], 0
        if not lines or self._full:
            return ""
        text = "\n".join([f"[{skipped} lines]", *lines] if skipped else lines)
        self._told += len(text)
        self._full = self._told > TOTAL
        return text + "\n[its further output is not kept here]" if self._full else text

    def _add(self, lines: list[str]) -> None:
        for line in lines:
            shown = clean(line.rstrip("\r").rpartition("\r")[2]).strip("\n").rstrip()
            if shown:
                self._lines.append(shown if len(shown) <= LINE else shown[: LINE - 1] + "…")
        if (more := len(self._lines) - BATCH) > 0:
            del self._lines[:more]
            self._skipped += more


def ending(text: str, lines: int = 30, most: int = 3000) -> str:
    """The last lines of an output, cleaned, as a person would want to read them in a pull request."""
    kept = [line.rstrip() for line in clean(text).splitlines()]
    while kept and not kept[-1]:
        kept.pop()
    kept = [line for line, before in zip(kept, ["", *kept], strict=False) if line or before]
    tail = "\n".join(line if len(line) <= LINE else line[: LINE - 1] + "…" for line in kept[-lines:])
    return tail[-most:].strip("\n")
