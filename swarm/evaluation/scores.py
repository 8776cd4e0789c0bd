"""What the tries of a run come to, by way: solved, tokens, time, endings; and two ways side by side. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from pydantic import Field

from swarm.evaluation import figures
from swarm.evaluation.figures import Counts, Interval
from swarm.evaluation.plan import Way
from swarm.evaluation.results import Split, Try
from swarm.types import Frozen

_PARTS = tuple(Split.model_fields)


class Score(Frozen):
    """One way over all cases. Intervals are of 95 %. Broken tries are counted here and nowhere else.

    ``tokens_per_solved`` has the tokens of unsolved tries in it. ``delivered`` counts the solved tries whose agent said
    that it was done: the daemon delivers no others. ``cached`` is None where no server told.
    """

    strategy: str
    tier: str
    cases: int
    tries: int
    solved: int
    broken: int
    share: float | None
    interval: Interval
    delivered: int
    pass_at: dict[int, float] = Field(default_factory=dict)
    steps: int = 0
    tokens: int = 0
    prompt: int = 0
    cached: int | None = None
    completion: int = 0
    tokens_per_solved: float | None = None
    tokens_interval: Interval = (None, None)
    gpu_seconds: float = 0.0
    money: float = 0.0
    seconds: Split = Split()
    wall: float = Field(default=0.0, description="seconds of all tries together")
    endings: dict[str, int] = Field(default_factory=dict)
    models: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Of the way."""
        return Way(strategy=self.strategy, tier=self.tier).name


class Comparison(Frozen):
    """Two ways, or the same way in two runs, on the cases that both tried. ``only_*`` count cases where one try each
    was made. ``p`` is McNemar's, None where cases were tried more than once."""

    ours: str
    theirs: str
    cases: int
    left_out: int
    ours_solved: int
    ours_tries: int
    theirs_solved: int
    theirs_tries: int
    difference: float | None
    interval: Interval
    ratio: float | None
    ratio_interval: Interval
    tokens_ratio: float | None = Field(description="tokens of ours over tokens of theirs")
    tokens_ratio_interval: Interval
    only_ours: int = 0
    only_theirs: int = 0
    p: float | None = None
    words: str = ""


def score(way: Way, tries: Sequence[Try], seed: int) -> Score:
    """The score of one way; ``tries`` may be of all ways."""
    own = [row for row in tries if (row.strategy, row.tier) == (way.strategy, way.tier)]
    counted = [row for row in own if row.outcome != "broken"]
    counts = counts_of(counted)
    per_solved, tokens_interval = figures.tokens_per_solved(counts, seed)
    solved = sum(counts.solved)
    cached = [row.cached for row in counted if row.cached is not None]
    most = max(counts.tries, default=0)
    return Score(
        strategy=way.strategy,
        tier=way.tier,
        cases=len(counts.tries),
        tries=len(counted),
        solved=solved,
        broken=len(own) - len(counted),
        share=solved / len(counted) if counted else None,
        interval=figures.share(counts, seed),
        delivered=sum(row.outcome == "solved" and row.ending == "finished" for row in counted),
        pass_at={k: value for k in range(1, most + 1) if (value := figures.pass_at(counts, k)) is not None},
        steps=sum(row.steps for row in counted),
        tokens=sum(row.tokens for row in counted),
        prompt=sum(row.prompt for row in counted),
        cached=sum(cached) if cached else None,
        completion=sum(row.completion for row in counted),
        tokens_per_solved=per_solved,
        tokens_interval=tokens_interval,
        gpu_seconds=sum(row.gpu_seconds for row in counted),
        money=sum(row.money for row in counted),
        seconds=split_sum(row.split for row in counted),
        wall=sum(row.split.total for row in counted),
        endings=dict(sorted(Counter(row.ending for row in own).items())),
        models=tuple(sorted({row.model for row in counted if row.model})),
    )


def counts_of(tries: Iterable[Try]) -> Counts:
    """Tries, solved tries and tokens by case, in the order in which the cases come."""
    found: dict[str, list[int]] = {}
    for row in tries:
        own = found.setdefault(row.case, [0, 0, 0])
        own[0] += 1
        own[1] += row.outcome == "solved"
        own[2] += row.tokens
    columns = [tuple(own[place] for own in found.values()) for place in range(3)]
    return Counts(*columns)


def compared(names: tuple[str, str], ours: Sequence[Try], theirs: Sequence[Try], seed: int) -> Comparison | None:
    """Two sides, paired by case; None where they have no case in common. Broken tries are left out."""
    sides = [[row for row in side if row.outcome != "broken"] for side in (ours, theirs)]
    cases = [{row.case: None for row in side} for side in sides]
    common = [case for case in cases[0] if case in cases[1]]
    if not common:
        return None
    one, other = (_in_order(side, common) for side in sides)
    shares = [[c / n for c, n in zip(side.solved, side.tries, strict=True)] for side in (one, other)]
    gap, interval = figures.difference(shares[0], shares[1], seed)
    ratio, ratio_interval = figures.ratio(shares[0], shares[1], seed)
    tokens, tokens_interval = figures.ratio(_per_try(one), _per_try(other), seed)
    single = max((*one.tries, *other.tries)) == 1
    only = [sum(a > b for a, b in zip(x, y, strict=True)) for x, y in (shares, shares[::-1])]
    told = Comparison(
        ours=names[0],
        theirs=names[1],
        cases=len(common),
        left_out=len(cases[0].keys() ^ cases[1].keys()),
        ours_solved=sum(one.solved),
        ours_tries=sum(one.tries),
        theirs_solved=sum(other.solved),
        theirs_tries=sum(other.tries),
        difference=gap,
        interval=interval,
        ratio=ratio,
        ratio_interval=ratio_interval,
        tokens_ratio=tokens,
        tokens_ratio_interval=tokens_interval if tokens is not None else (None, None),
        only_ours=only[0],
        only_theirs=only[1],
        p=figures.mcnemar(*only) if single else None,
    )
    return told.model_copy(update={"words": words(told)})


def words(told: Comparison) -> str:
    """A comparison in one plain sentence."""
    begin = (
        f"{told.ours}: {told.ours_solved} of {told.ours_tries} against {told.theirs_solved} of {told.theirs_tries} "
        f"of {told.theirs}"
    )
    low, high = told.interval
    if told.difference is None or low is None or high is None:
        why = "of so few cases" if told.cases < 2 else "no two cases differ in it, so"
        return f"{begin}; {why} no interval can be told"
    points = f"{begin}; the difference of {_points(told.difference)} points lies in [{_points(low)}, {_points(high)}]"
    chance = ", which may be chance" if low <= 0 <= high else ""
    test = f" (McNemar p = {told.p:.3g})" if told.p is not None else ""
    return f"{points}{chance}{test}"


def split_sum(splits: Iterable[Split]) -> Split:
    """Where the time of several tries went."""
    sums = dict.fromkeys(_PARTS, 0.0)
    for split in splits:
        for name in _PARTS:
            sums[name] += getattr(split, name)
    return Split.model_validate({name: round(seconds, 4) for name, seconds in sums.items()})


def _in_order(tries: Iterable[Try], cases: Sequence[str]) -> Counts:
    by_case: dict[str, list[Try]] = {case: [] for case in cases}
    for row in tries:
        if row.case in by_case:
            by_case[row.case].append(row)
    return counts_of(row for case in cases for row in by_case[case])


def _per_try(counts: Counts) -> list[float]:
    return [tokens / n for tokens, n in zip(counts.tokens, counts.tries, strict=True)]


def _points(share: float) -> str:
    return f"{100 * share:.1f}".removesuffix(".0")
