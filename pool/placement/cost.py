"""What a prefill and a decode step cost on one endpoint, in seconds, fitted to what was seen there. No I/O.

Seconds of a first token are ``base + token * new + pair * new * (before + new / 2)``, the last being attention, which
every new token pays to all before it (the form of vllm-project/router's SMetric). Seconds of a decode step are
``step + seat * batch``. Both are least squares with a prior, old observations fading, outliers given less weight.
"""

from __future__ import annotations

PAIRS = 1e-5  # scale of the attention term, so that all terms are of one size


class Fit:
    """Recursive least squares of a few coefficients, none negative. ``prior`` is worth ``trust`` observations."""

    __slots__ = ("_moment", "_normal", "coefficients", "prior", "seen", "spread")

    def __init__(self, prior: tuple[float, ...], scale: tuple[float, ...], trust: float = 1.0) -> None:
        size = len(prior)
        self.prior = prior
        self.coefficients = prior
        self.seen = 0
        self.spread = 0.0
        self._normal = [[trust * scale[i] ** 2 if i == j else 0.0 for j in range(size)] for i in range(size)]
        self._moment = [self._normal[i][i] * prior[i] for i in range(size)]

    def value(self, terms: tuple[float, ...]) -> float:
        """What the fit foresees."""
        return sum(a * b for a, b in zip(self.coefficients, terms, strict=True))

    def add(self, terms: tuple[float, ...], seen: float, fade: float = 0.98) -> None:
        """Take one observation."""
        off = abs(seen - self.value(terms))
        weight = 1.0 if self.seen < 8 or off <= 3 * self.spread else 3 * self.spread / off
        self.spread = off if not self.seen else self.spread + 0.1 * (min(off, 5 * self.spread + 1e-3) - self.spread)
        self.seen += 1
        weight /= max(seen, 1e-3)  # relative errors count: a long prefill must not drown the short ones
        for i, left in enumerate(terms):
            row = self._normal[i]
            for j, right in enumerate(terms):
                row[j] = row[j] * fade + weight * left * right
            self._moment[i] = self._moment[i] * fade + weight * left * seen
        self.coefficients = _solve(self._normal, self._moment, self.coefficients)


def _solve(normal: list[list[float]], moment: list[float], start: tuple[float, ...]) -> tuple[float, ...]:
    """Least squares without negative coefficients, by a few rounds of coordinate descent from the last solution."""
    found = list(start)
    for _ in range(24):
        for i, row in enumerate(normal):
            if row[i] > 0:
                rest = sum(row[j] * found[j] for j in range(len(found)) if j != i)
                found[i] = max(0.0, (moment[i] - rest) / row[i])
    return tuple(found)


class Cost:
    """The cost model of one endpoint. Defaults are those of a small GPU server; they fade as it is used."""

    __slots__ = ("_decode", "_prefill")

    def __init__(self) -> None:
        self._prefill = Fit((0.03, 1.25e-4, 1e-4), (1.0, 1000.0, 1000.0), 0.05)
        self._decode = Fit((0.02, 3.5e-4), (1.0, 8.0), 0.05)

    @property
    def seen(self) -> int:
        """First tokens that it was fitted to."""
        return self._prefill.seen

    @property
    def prefill_terms(self) -> tuple[float, float, float]:
        """Base, seconds a new token, and seconds a pair of a new token and one before it."""
        base, token, pair = self._prefill.coefficients
        return base, token, pair * PAIRS

    @property
    def step_terms(self) -> tuple[float, float]:
        """Seconds of a decode step, and what each request in the batch adds."""
        step, seat = self._decode.coefficients
        return step, seat

    def prefill(self, new: float, before: float = 0.0) -> float:
        """Seconds until the first token of ``new`` tokens after ``before`` cached ones, alone in the endpoint."""
        base, token, pair = self.prefill_terms
        return base + token * new + pair * new * (before + new / 2)

    def decode(self, tokens: float, batch: float) -> float:
        """Seconds to generate tokens among ``batch`` requests."""
        step, seat = self.step_terms
        return tokens * (step + seat * batch)

    def saw_first(self, new: float, before: float, ahead: float, seconds: float) -> None:
        """A first token came after so many seconds, behind ``ahead`` tokens of other prefills."""
        if seconds > 0:
            attended = new * (before + new / 2) * PAIRS
            self._prefill.add((1.0, new + ahead, attended), seconds)

    def saw_steps(self, tokens: int, batch: float, seconds: float) -> None:
        """So many tokens were generated in so many seconds."""
        if tokens > 0 and seconds > 0:
            self._decode.add((1.0, batch), seconds / tokens)
