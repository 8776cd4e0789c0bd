"""Strategies that are put together in swarm.toml: what they make, and what is told of those that cannot be."""

from __future__ import annotations

from pathlib import Path

import pytest

from swarm.agent import Agent
from swarm.config_file import load
from swarm.config_strategies import DEEPEST, StrategyConfig, is_known, names, ready_made
from swarm.errors import ConfigError
from swarm.strategies.best_of import BestOf
from swarm.strategies.cascade import Cascade
from swarm.strategies.choice import InTurn, strategy_named
from swarm.strategies.plan import PlanThenAct
from swarm.strategies.repair import SampledRepair
from swarm.strategies.review import ReviewAndFix
from swarm.strategies.verify import DraftVerify

BEGIN = """[daemon]
state = "state"
socket = "d.sock"
[broker]
socket = "b.sock"
[[pool.endpoints]]
name = "a"
url = "http://127.0.0.1:8000"
tier = "small"
[[pool.endpoints]]
name = "b"
url = "http://127.0.0.1:8001"
tier = "large"
"""


def loaded(folder: Path, text: str):
    (folder / "swarm.toml").write_text(BEGIN + text)
    return load(folder / "swarm.toml", {}).settings


@pytest.mark.parametrize(
    ("name", "made"),
    [
        ("single", Agent),
        ("best-of-5", BestOf),
        ("plan", PlanThenAct),
        ("review", ReviewAndFix),
        ("draft-verify", DraftVerify),
        ("cascade", Cascade),
        ("mutation_repair", SampledRepair),
    ],
)
def test_our_own_have_their_names(name: str, made: type) -> None:
    assert isinstance(strategy_named(name), made)
    assert is_known(name, {}, ())


@pytest.mark.parametrize("name", ["best-of-0", "best-of-17", "best-of-", "best-of-3x", "Best-of-3", "best of 3"])
def test_other_names_are_none(name: str) -> None:
    assert not is_known(name, {}, ())
    with pytest.raises(ConfigError, match="there is no strategy"):
        strategy_named(name)


def test_strategies_are_put_together_of_others(tmp_path: Path) -> None:
    text = """
[strategies.careful]
kind = "best-of"
n = 4
agree = 3
at_once = 2
of = "checked"
[strategies.checked]
kind = "review"
rounds = 1
tier = "large"
[strategies.thrifty]
kind = "cascade"
opener = "mutation_repair"
tiers = ["small", "large"]
[strategies.first-cheap]
kind = "in-turn"
ways = ["mutation_repair", "careful"]
"""
    made = loaded(tmp_path, text).strategies
    careful = strategy_named("careful", made=made)
    assert isinstance(careful, BestOf)
    assert (careful._n, careful._agree, careful._at_once) == (4, 3, 2)
    assert isinstance(careful._inner, ReviewAndFix)
    assert (careful._inner._rounds, careful._inner._tier) == (1, "large")
    thrifty = strategy_named("thrifty", made=made)
    assert isinstance(thrifty, Cascade)
    assert isinstance(thrifty._opener, SampledRepair)
    assert thrifty._tiers == ("small", "large")
    turns = strategy_named("first-cheap", made=made)
    assert isinstance(turns, InTurn)
    assert [type(way) for way in turns._ways.values()] == [SampledRepair, BestOf]


def test_a_repository_may_name_one(tmp_path: Path) -> None:
    made = loaded(tmp_path, '[strategies.mine]\nkind = "plan"\n[repositories.web]\nstrategy = "mine"\n')
    assert made.repositories["web"].strategy == "mine"
    assert made.knows("mine")
    assert made.knows("best-of-7")
    assert "mine" in made.strategy_names


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[strategies.x]\nkind = "best"\n', "must be one of"),
        ("[strategies.x]\nn = 3\n", "strategies.x.kind: is missing"),
        ('[strategies.x]\nkind = "best-of"\nn = 0\n', "must be at least 1"),
        (
            '[strategies.x]\nkind = "review"\nn = 3\n',
            'strategies.x.n: means nothing to kind = "review", which takes of',
        ),
        (
            '[strategies.x]\nkind = "review"\nof = "agnet"\n',
            'is made of "agnet", which is no strategy; did you mean "agent"?',
        ),
        ('[strategies.x]\nkind = "review"\nof = "auto"\n', 'cannot be made of "auto", which chooses by itself'),
        ('[strategies.x]\nkind = "best-of"\nof = "cli:aider"\n', "needs a sandbox of its own kind"),
        (
            '[strategies.x]\nkind = "review"\ntier = "huge"\n',
            'no endpoint serves its tier "huge"; served are: small, large',
        ),
        ('[strategies.x]\nkind = "cascade"\ntiers = ["small", "b"]\n', 'no endpoint serves its tier "b"'),
        ('[strategies.x]\nkind = "in-turn"\n', "needs at least one strategy in ways"),
        ('[strategies.review]\nkind = "plan"\n', '"review" is a strategy already; take another name'),
        ('[strategies.best-of-9]\nkind = "plan"\n', "is a strategy already"),
        ('[strategies.x]\nkind = "review"\nof = "x"\n', "is made of itself: x is made of x"),
        (
            '[strategies.x]\nkind = "review"\nof = "y"\n[strategies.y]\nkind = "plan"\nplanner = "x"\n',
            "is made of itself: x is made of y is made of x",
        ),
        ('[repositories.web]\nstrategy = "reviw"\n', 'there is no strategy "reviw"; did you mean "review"?'),
    ],
)
def test_what_cannot_be_is_told(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, text)
    assert words in str(caught.value)


def test_strategies_do_not_lie_too_deep(tmp_path: Path) -> None:
    deep = "".join(f'[strategies.s{n}]\nkind = "review"\nof = "s{n + 1}"\n' for n in range(DEEPEST))
    deep += f'[strategies.s{DEEPEST}]\nkind = "plan"\n'
    with pytest.raises(ConfigError, match=f"deep, more than {DEEPEST}"):
        loaded(tmp_path, deep)
    made = {f"s{n}": StrategyConfig(kind="review", of=f"s{n + 1}") for n in range(60)}
    with pytest.raises(ConfigError, match="more than"):
        strategy_named("s0", made=made)


def test_every_name_of_ours_is_one_that_can_be_built() -> None:
    for name in names({}, ()):
        strategy_named(name)
    assert ready_made("agent") is None
