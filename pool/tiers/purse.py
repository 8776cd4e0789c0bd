"""A virtual model's budget of tokens: what is held for parts under way, what is left, what a part may still write."""

from __future__ import annotations

from dataclasses import dataclass

from pool.tiers import size
from pool.tiers.beneath import Request
from pool.types import Usage

LEAST = 16  # tokens; a part that could write less is not begun
SAFETY = 1.1  # on what was learnt of characters and tokens


@dataclass(frozen=True, slots=True)
class Hold:
    """Tokens kept for one part: ``samples`` of at most ``most`` tokens each over a prompt of about ``prompt``."""

    prompt: int
    samples: int
    most: int

    @property
    def tokens(self) -> int:
        """All that the part may cost. Servers that know no samples read the prompt for each."""
        return self.samples * (self.prompt + self.most)


class Purse:
    """Counts one answer's tokens. What a part may cost is held before it begins, so parts at one time share it too.

    A prompt's tokens are estimated from its characters until the first reply has told; only an estimate that was too
    low can carry the sum past the budget, and by no more than that.
    """

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.spent = 0
        self._held = 0
        self._per_token: float | None = None

    @property
    def left(self) -> int:
        """Tokens neither spent nor held."""
        return max(0, self.budget - self.spent - self._held)

    def prompt(self, characters: int) -> int:
        """Tokens that so many characters are, rather too many than too few."""
        per_token = size.CHARS_PER_TOKEN if self._per_token is None else self._per_token / SAFETY
        return size.tokens(characters, min(per_token, size.CHARS_PER_TOKEN * 1.5))

    def hold(self, request: Request, samples: int = 1, keep: int = 0) -> Hold | None:
        """Hold what a part may cost and leave ``keep`` untouched: fewer samples, then shorter answers, where not all
        can be paid. None where not even the shortest can."""
        prompt = self.prompt(size.chars(request))
        free = self.left - keep
        affordable = min(samples, free // (prompt + min(request.max_tokens, LEAST)))
        if affordable < 1:
            return None
        while affordable > 1 and free // affordable - prompt < request.max_tokens:
            affordable -= 1
        held = Hold(prompt, affordable, min(request.max_tokens, free // affordable - prompt))
        self._held += held.tokens
        return held

    def settle(self, held: Hold, request: Request, usage: Usage | None) -> None:
        """A part is over; ``usage`` is None where it failed and nobody told what it cost."""
        self._held -= held.tokens
        if usage is None:
            return
        self.spent += usage.prompt_tokens + usage.completion_tokens
        if usage.prompt_tokens and held.samples == 1:
            self._per_token = max(1.0, size.chars(request) / usage.prompt_tokens)
