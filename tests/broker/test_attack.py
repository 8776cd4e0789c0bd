"""A quick part of `make attack` against a real broker process, and that a survivor would be seen."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from attack import ATTACKS, Outcome, carry_out, closing
from attack_rows import Attack, bites
from attack_stage import GOOD, Stage, staged
from broker.judge.crafted import commit, tree

QUICK = (
    "hidden commits, tags and files", "links, submodules, .gitmodules", "workflow file", "secret in code",
    "binary and executable", "widened capability", "expired, revoked, used-up capability", "proposal id used again",
    "swap after approval", "a person's verbs, and a token", "kill switch bypassed", "slow HTTP",
    "malformed and oversized HTTP", "spoofed author and trailers", "credential sent to another host",
)  # fmt: skip


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with staged() as one:
        yield one


@pytest.mark.slow
def test_no_quick_attack_survives_and_a_survivor_would_be_seen(stage):
    """One test for all, since a broker process costs more than the attacks."""
    known = {attack.name: attack for attack in ATTACKS}
    outcomes = [carry_out(known[name], stage) for name in QUICK]
    assert [(outcome.attack.name, outcome.words) for outcome in outcomes if outcome.state != "stopped"] == []

    def gets_through(there: Stage) -> str:
        answer = there.offer(GOOD)
        stray = commit(tree().oid)
        there.give(stray, tree())
        there.git("update-ref", "refs/heads/stray", stray.oid)
        return answer.kind

    seen = carry_out(Attack("a ref from nowhere", "", gets_through), stage)
    assert (seen.state, "refs/heads/stray" in seen.words) == ("survived", True)
    stage.git("update-ref", "-d", "refs/heads/stray")
    toothless = carry_out(Attack("nothing", "", lambda _stage: str(bites(really=False, what="nothing"))), stage)
    assert toothless.state == "toothless"


def test_every_attack_has_a_name_of_its_own_and_a_source():
    assert len({attack.name for attack in ATTACKS}) == len(ATTACKS) > 50
    assert all(attack.source for attack in ATTACKS)


def test_the_last_line_counts():
    rows = [Outcome(ATTACKS[0], state, "", 0.1) for state in ("stopped", "stopped", "survived", "not here")]
    assert closing(rows) == "4 attacks: 2 stopped, 1 survived, 1 need root"
