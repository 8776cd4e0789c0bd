"""Requests that could only fail later are refused at the door, with a mend."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pool.config import EmbeddedConfig, EndpointConfig, PoolConfig, VirtualConfig
from swarm.acceptance import ladder, plan
from swarm.config import BrokerAddress, DaemonConfig, RepositoryConfig, Settings
from swarm.errors import TaskError
from swarm.types import Budget, TaskRequest


def settings(**more: Any) -> Settings:
    values: dict[str, Any] = {
        "daemon": DaemonConfig(state=Path("/s"), socket=Path("/s/d")),
        "broker": BrokerAddress(socket=Path("/b")),
        "pool": PoolConfig(
            endpoints=(
                EndpointConfig(name="a", url="http://a", tier="small"),
                EndpointConfig(name="b", url="http://b", tier="large"),
            )
        ),
        "repositories": {"demo": RepositoryConfig(test_command="make test", strategy="agent", tier="large")},
        "limits": Budget(steps=7),
    }
    return Settings.model_validate(values | more)


def request(**more: Any) -> TaskRequest:
    values = {"repository": "demo", "instructions": "x", "capability": "c"}
    return TaskRequest.model_validate(values | more)


def test_what_the_request_leaves_open_comes_from_the_operator() -> None:
    made = plan(request(), settings(), ())
    assert (made.budget.steps, made.tier, made.strategy) == (7, "large", "agent")


def test_what_the_request_names_wins() -> None:
    made = plan(request(tier="small", strategy="sampled_repair", budget=Budget(steps=3)), settings(), ())
    assert (made.budget.steps, made.tier, made.strategy) == (3, "small", "sampled_repair")


def test_an_agent_is_known_by_its_recipe_or_by_the_settings() -> None:
    mine = settings(agents={"mine": {"command": "true"}})
    assert plan(request(strategy="cli:mini-swe-agent"), settings(), ()).strategy == "cli:mini-swe-agent"
    assert plan(request(strategy="cli:mine"), mine, ()).strategy == "cli:mine"
    with pytest.raises(TaskError, match='no agent "mine"'):
        plan(request(strategy="cli:mine"), settings(), ())


def test_the_first_tier_is_the_default_unless_one_is_configured() -> None:
    bare = {"repositories": {"demo": RepositoryConfig(test_command="t")}}
    assert plan(request(), settings(**bare), ()).tier == "small"
    pool = settings().pool.model_copy(update={"default_tier": "large"})
    assert plan(request(), settings(pool=pool, **bare), ()).tier == "large"


@pytest.mark.parametrize(
    ("wrong", "why", "mend"),
    [
        ({"repository": "dmeo"}, "no repository", 'did you mean "demo"?'),
        ({"repository": "zzzzzz"}, "no repository", "known are: demo, other"),
        ({"capability": ""}, "no capability", "swarm-broker grant"),
        ({"strategy": "agnet"}, "no strategy", "agent"),
        ({"strategy": "guess"}, "no strategy", "cli:aider"),
        ({"strategy": "cli:aidre"}, 'no agent "aidre"', 'did you mean "aider"?'),
        ({"strategy": "cli:zebra"}, 'no agent "zebra"', "known are: mini-swe-agent, aider, codex, "),
        ({"tier": "larg"}, "no endpoint serves", "large"),
        ({"repository": "other"}, "no test command", "--test"),
        ({"paths": ("../etc/passwd",)}, "not inside", "relative"),
        ({"paths": ("/etc/passwd",)}, "not inside", "relative"),
        ({"paths": ("",)}, "not inside", "relative"),
    ],
)
def test_what_could_only_fail_later_is_refused(wrong: dict[str, Any], why: str, mend: str) -> None:
    with pytest.raises(TaskError, match=why) as told:
        plan(request(**wrong), settings(), ("other",))
    assert mend in told.value.mend


def test_a_repository_that_only_the_broker_knows_is_taken_with_a_test_command() -> None:
    assert plan(request(repository="other", test_command="t"), settings(), ("other",)).strategy == "auto"


def test_the_embedded_model_is_the_lowest_rung() -> None:
    pool = settings().pool.model_copy(update={"embedded": EmbeddedConfig(enabled=True)})
    assert ladder(settings(pool=pool)) == ("embedded", "small", "large")
    assert ladder(settings()) == ("small", "large")


def many(**more: Any) -> PoolConfig:
    virtual = {"best": VirtualConfig(kind="vote", tiers=("small",))}
    return settings().pool.model_copy(update={"virtual": virtual, **more})


@pytest.mark.parametrize("name", ["auto", "best"])
def test_a_task_may_ask_for_auto_and_for_a_virtual_model(name: str) -> None:
    assert plan(request(tier=name), settings(pool=many()), ()).tier == name
    assert (
        plan(request(), settings(pool=many(), repositories={"demo": {"test_command": "t", "tier": name}}), ()).tier
        == name
    )


def test_a_virtual_model_that_is_none_is_refused_with_what_comes_near() -> None:
    with pytest.raises(TaskError) as told:
        plan(request(tier="bets"), settings(pool=many()), ())
    assert '"best"' in told.value.mend


def test_attempts_climb_plain_tiers_in_the_order_that_is_set() -> None:
    assert ladder(settings(pool=many())) == ("small", "large")
    assert ladder(settings(pool=many(tier_order=("large", "small")))) == ("large", "small")


def budget_of(said: dict[str, Any], limits: dict[str, Any], **more: Any) -> Budget:
    wanted = TaskRequest.model_validate(request(**more).model_dump(exclude_unset=True) | {"budget": said})
    return plan(wanted, settings(limits=limits), ()).budget


def test_what_a_budget_leaves_open_comes_from_the_operator_field_by_field() -> None:
    made = budget_of({"steps": 3}, {"money": 1.0, "tokens": 1000})
    assert (made.steps, made.tokens, made.money, made.attempts) == (3, 1000, 1.0, Budget().attempts)


@pytest.mark.parametrize("said", [{"tokens": 1001}, {"tokens": 10**12}, {"money": 1.5}, {"money": None}])
def test_no_request_names_more_than_the_operator_allows(said: dict[str, Any]) -> None:
    with pytest.raises(TaskError, match=next(iter(said))) as error:
        budget_of(said, {"money": 1.0, "tokens": 1000})
    assert "limits." in error.value.mend


def test_what_the_operator_never_wrote_bounds_nobody_and_he_may_let_all_name_more() -> None:
    assert budget_of({"tokens": 10**9}, {"money": 1.0}).tokens == 10**9
    wanted = request(budget=Budget(tokens=5000))
    lenient = settings(limits={"tokens": 1000}, scheduling={"beyond_limits": True})
    assert plan(wanted, lenient, ()).budget.tokens == 5000


def test_a_further_task_on_a_pull_request_stays_within_limits_that_were_lowered_since() -> None:
    assert budget_of({"tokens": 5000}, {"tokens": 1000}, follows="first").tokens == 1000
