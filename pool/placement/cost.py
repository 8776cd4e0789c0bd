"""What a prefill and a decode step cost on one endpoint, in seconds, fitted to what was seen there. No I/O.

Seconds of a first token are ``base + token * new + pair * new * (before + new / 2)``, the last being attention, which
every new token pays to all before it (the form of vllm-project/router's SMetric). Seconds of a decode step are
``step + seat * batch``. An answer that comes whole tells only the sum of both, which says less: it counts until a first
token was seen.
"""

from __future__ import annotations

from math import exp, log, log2

PAIRS = 1e-5  # scale of the attention term, so that all terms are of one size
BINS = 20
ENOUGH = 16.0  # observations of one size that count; from there on an older one fades with each new
ODD = 3.0  # observations as far from the mean as this many usual distances count as if they were nearer
ROUNDS = 30
EACH, RARELY = 32, 8  # so many observations are each solved for; from there on every eighth, since one moves little
FEW_STEPS = 16  # fewer steps than these may all have shared their time with one prefill
NOISE = 0.1  # share of what was seen by which one observation is usually off
DOUBT = 2.0  # how many times its own size a coefficient of the prior may be off
KINDS = 6  # lengths of whole answers that are told apart, each four times the one before
PREFILL = (0.03, 1.25e-4, 1e-4)
DECODE = (0.02, 3.5e-4)


class _Bin:
    """Observations of about one size: their mean terms, their mean, the usual distance from it, and how many."""

    __slots__ = ("count", "seen", "spread", "terms")

    def __init__(self, terms: tuple[float, ...], seen: float) -> None:
        self.terms = terms
        self.seen = seen
        self.spread = seen
        self.count = 1.0

    def add(self, terms: tuple[float, ...], seen: float) -> None:
        most = ODD * self.spread
        kept = min(self.seen + most, max(self.seen - most, seen))
        self.count = min(ENOUGH, self.count + 1)
        share = 1 / self.count
        self.spread += share * (min(abs(seen - self.seen), 2 * most) - self.spread) + 1e-6
        self.terms = tuple(old + share * (new - old) for old, new in zip(self.terms, terms, strict=True))
        self.seen += share * (kept - self.seen)


class Fit:
    """Least squares of a few coefficients, none negative, over one mean for each size of what was seen.

    A size is remembered until others of that size replace it: an endpoint that saw nothing but short prefills for an
    hour still knows what a long one costs. Where nothing was seen the ``prior`` holds, as much slower or faster as what
    was seen is.
    """

    __slots__ = ("_bins", "_prior", "coefficients", "seen")

    def __init__(self, prior: tuple[float, ...]) -> None:
        self.coefficients = prior
        self.seen = 0
        self._prior = prior
        self._bins: dict[int, _Bin] = {}

    def add(self, size: float, terms: tuple[float, ...], seen: float, kind: int = 0) -> None:
        """Take one observation of so many seconds. Those of different kinds share no mean."""
        self.seen += 1
        key = kind * (BINS + 1) + min(BINS, int(log2(max(1.0, size))))
        if known := self._bins.get(key):
            known.add(terms, seen)
        else:
            self._bins[key] = _Bin(terms, seen)
        if self.seen <= EACH or self.seen % RARELY == 0:
            self._solve()

    def _solve(self) -> None:
        """Coordinate descent from the last solution; errors count by their share of what was seen."""
        found, many = list(self.coefficients), range(len(self._prior))
        weights = [(b.terms, b.seen, b.count / (NOISE * max(b.seen, 1e-4)) ** 2) for b in self._bins.values()]
        normal = [[0.0] * len(many) for _ in many]
        for i in many:
            for j in range(i + 1):
                normal[i][j] = normal[j][i] = sum(w * t[i] * t[j] for t, _, w in weights)
        moment = [sum(w * t[i] * seen for t, seen, w in weights) for i in many]
        pace = self._pace()
        for i, value in enumerate(self._prior):
            sure = 1 / (DOUBT * pace * value) ** 2
            normal[i][i] += sure
            moment[i] += sure * pace * value
        for _ in range(ROUNDS):
            before = tuple(found)
            for i in many:
                row = normal[i]
                rest = sum(row[j] * found[j] for j in many) - row[i] * found[i]
                found[i] = max(0.0, (moment[i] - rest) / row[i])
            if all(abs(new - old) <= 1e-4 * new for new, old in zip(found, before, strict=True)):
                break
        self.coefficients = tuple(found)

    def _pace(self) -> float:
        """How many times slower than the prior this endpoint is, over all sizes alike."""
        foreseen = [sum(a * b for a, b in zip(self._prior, b.terms, strict=True)) for b in self._bins.values()]
        logs = [log(max(1e-3, b.seen / value)) for b, value in zip(self._bins.values(), foreseen, strict=True)]
        return exp(sum(logs) / len(logs))


class Cost:
    """The cost model of one endpoint. It begins with what a small GPU server needs."""

    __slots__ = ("_decode", "_prefill", "_whole")

    def __init__(self) -> None:
        self._prefill = Fit(PREFILL)
        self._decode = Fit(DECODE)
        self._whole = Fit(PREFILL + DECODE)

    @property
    def seen(self) -> int:
        """First tokens that it was fitted to."""
        return self._prefill.seen

    @property
    def known(self) -> bool:
        """Whether any answer told something of it, if only by its whole length."""
        return self.seen > 0 or self._whole.seen > 0

    @property
    def prefill_terms(self) -> tuple[float, float, float]:
        """Base, seconds a new token, and seconds a pair of a new token and one before it."""
        base, token, pair = self._prefill.coefficients if self.seen else self._whole.coefficients[:3]
        return base, token, pair * PAIRS

    @property
    def step_terms(self) -> tuple[float, float]:
        """Seconds of a decode step, and what each request in the batch adds."""
        step, seat = self._decode.coefficients if self._decode.seen else self._whole.coefficients[3:]
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
            size = new + ahead
            self._prefill.add(size, (1.0, size, new * (before + new / 2) * PAIRS), seconds)

    def saw_steps(self, tokens: int, batch: float, seconds: float) -> None:
        """So many tokens were generated in so many seconds, among ``batch`` requests; a few tell nothing."""
        if tokens >= FEW_STEPS and seconds > 0:
            self._decode.add(batch, (1.0, batch), seconds / tokens)

    def saw_whole(self, new: float, before: float, ahead: float, tokens: int, batch: float, seconds: float) -> None:
        """An answer came whole: prefill as in `saw_first`, and so many tokens among ``batch`` requests.

        Which part of it was which shows as answers of other lengths come; until then the usual parts hold. It is no
        news where first tokens were seen.
        """
        if seconds > 0 and not self.seen:
            size, kind = new + ahead, min(KINDS - 1, int(log2(max(1, tokens))) // 2)
            pairs = new * (before + new / 2) * PAIRS
            self._whole.add(size, (1.0, size, pairs, tokens, tokens * batch), seconds, kind)
