"""A setting that has no effect is told, and one that cannot hold is refused, before anything relies on it."""

from __future__ import annotations

from pathlib import Path

import pytest

from swarm.cli.advice import cautions
from swarm.config_file import load
from swarm.errors import ConfigError

BASE = """
[[pool.endpoints]]
name = "e"
url = "http://127.0.0.1:1"
tier = "small"
model = "m"
[repositories.demo]
test_command = "true"
"""


def _odd(tmp_path: Path, more: str) -> dict[str, tuple[str, str]]:
    path = tmp_path / "swarm.toml"
    path.write_text(BASE + more)
    return {odd.key: (odd.text, odd.mend) for odd in cautions(load(path, {}))}


@pytest.mark.parametrize(
    ("more", "key", "mend"),
    [
        ("[prices.tiers.smal]\nprompt = 1", "prices.tiers.smal", "small"),
        ("[prices.endpoints.f]\nprompt = 1", "prices.endpoints.f", "e"),
        ("[prices.models.n]\nprompt = 1", "prices.models.n", "m"),
        ("[scheduling.tiers]\nnosuch = 1", "scheduling.tiers.nosuch", "small"),
        ("[scheduling.repositories]\ndemoo = 1", "scheduling.repositories.demoo", "demo"),
        ("[budgets.repositories.nosuch]\ntokens = 1", "budgets.repositories.nosuch", "demo"),
    ],
)
def test_a_name_that_nothing_has_is_told_with_those_that_there_are(
    tmp_path: Path, more: str, key: str, mend: str
) -> None:
    text, said = _odd(tmp_path, more)[key]
    assert "no effect" in text
    assert mend in said


@pytest.mark.parametrize(
    ("more", "key"),
    [
        ("[limits]\nmoney = 1.0", "limits.money"),
        ("[budgets.fleet]\nmoney = 1.0", "budgets.fleet.money"),
        ("[budgets.users.ann]\nmoney = 1.0\n[prices.tiers.small]\nprompt = 0", "budgets.users.ann.money"),
    ],
)
def test_a_limit_of_money_without_any_price_is_told(tmp_path: Path, more: str, key: str) -> None:
    assert "price" in _odd(tmp_path, more)[key][1]


def test_a_file_for_a_daemon_without_any_repositorys_tests_is_told(tmp_path: Path) -> None:
    path = tmp_path / "swarm.toml"
    path.write_text(BASE.partition("[repositories")[0] + "[daemon]\nworkers = 1")
    found = {odd.key: odd for odd in cautions(load(path, {}))}
    assert "no task is accepted" in found["repositories"].text
    assert "test_command" in found["repositories"].mend


def test_a_group_that_is_not_there_is_told(tmp_path: Path) -> None:
    text, mend = _odd(tmp_path, "[daemon]\nsocket_group = 'no-such-group'")["daemon.socket_group"]
    assert "no-such-group" in text
    assert "groupadd" in mend
    assert "daemon.socket_group" not in _odd(tmp_path, "[daemon]\nsocket_group = 'root'")


def test_what_has_an_effect_is_not_told(tmp_path: Path) -> None:
    good = """
[limits]
money = 1.0
[prices.tiers.small]
gpu_second = 0.1
[prices.models.m]
prompt = 1
[scheduling.tiers]
auto = 1
[budgets.repositories.demo]
money = 2
"""
    keys = {key.partition(".")[0] for key in _odd(tmp_path, good)}
    assert not keys & {"limits", "prices", "scheduling", "budgets"}


@pytest.mark.parametrize(
    "more",
    [
        "[daemon]\nheartbeat = 60\nlease = 1",
        "[daemon]\nheartbeat = 5\nlease = 5",
        "[daemon]\nstall = inf",
        "[daemon]\ndrain_timeout = nan",
        "[broker]\npatience = inf",
        "[salvage]\nkeep_days = inf",
        "[limits]\nwall = inf",
        "[budgets.fleet]\nmoney = nan",
        "[prices.tiers.small]\nprompt = inf",
        "[scheduling]\nexpires = inf",
    ],
)
def test_what_can_never_hold_is_refused_by_its_name(tmp_path: Path, more: str) -> None:
    path = tmp_path / "swarm.toml"
    path.write_text(BASE + more)
    with pytest.raises(ConfigError, match=more.splitlines()[1].partition(" ")[0]):
        load(path, {})
