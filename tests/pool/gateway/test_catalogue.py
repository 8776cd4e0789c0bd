"""What may be asked for by name."""

from __future__ import annotations

from typing import Any

import pytest

from pool.config import EndpointConfig, PoolConfig
from pool.gateway.catalogue import LISTED, cards, target
from pool.gateway.replies import RefusedError
from pool.types import Card, EndpointStatus, Trait


def endpoint(name: str, **fields: object) -> EndpointStatus:
    told = {"name": name, "tier": "small", "url": "http://x", "state": "up", "model": "m-1", "window": 4096}
    return EndpointStatus.model_validate(told | fields)


def able(**verdicts: str) -> dict[str, Trait]:
    return {name: Trait.model_validate({"verdict": verdict}) for name, verdict in verdicts.items()}


def listed(*endpoints: EndpointStatus, **settings: Any) -> dict[str, dict[str, Any]]:
    """The cards by name, of a pool with the tiers small and large that has no tier auto unless told."""
    both = tuple(EndpointConfig(name=name, url="http://x", tier=name) for name in ("small", "large"))
    found = cards(PoolConfig.model_validate({"endpoints": both, **settings}), endpoints)
    assert len({card["id"] for card in found}) == len(found)
    return {card["id"]: card for card in found}


def names(*endpoints: EndpointStatus) -> dict[str, object]:
    return {name: card["max_model_len"] for name, card in listed(*endpoints).items() if name != "auto"}


def test_one_endpoint_that_is_down_takes_only_its_own_names_away() -> None:
    """vllm-project/router#135: the list of models failed when one worker was down."""
    up, down = endpoint("a"), endpoint("b", tier="large", model="m-2", state="down")
    assert names(up, down) == {"small": 4096, "m-1": 4096}
    assert listed(down) == {}


def test_a_suspect_is_listed_and_a_leaving_one_is_not() -> None:
    assert "m-1" in names(endpoint("a", state="suspect"))
    assert names(endpoint("a", draining=True)) == {}


def test_a_tier_has_the_widest_window_of_its_endpoints() -> None:
    assert names(endpoint("a"), endpoint("b", window=32_768), endpoint("c", window=None))["small"] == 32_768
    assert names(endpoint("a", window=None))["small"] is None


def test_adapters_have_their_own_window_their_parent_and_their_tiers() -> None:
    adapted = endpoint("a", models=(Card(id="m-1"), Card(id="lora-1", parent="m-1", window=1024)))
    found = listed(adapted, endpoint("b", tier="large"))
    assert list(found) == ["small", "large", "m-1", "lora-1", "auto"]
    assert (found["lora-1"]["max_model_len"], found["lora-1"]["parent"]) == (1024, "m-1")
    assert (found["m-1"]["max_model_len"], found["m-1"]["tiers"]) == (4096, ["large", "small"])


def test_what_was_seen_to_work_is_told_and_what_was_not_is_not() -> None:
    one = endpoint("a", traits=able(tools="yes", reasoning="no", logprobs="unknown"))
    two = endpoint("b", traits=able(json_schema="yes"))
    found = listed(one, two)
    assert found["small"]["capabilities"] == ["json_schema", "tools"]


def test_a_virtual_model_can_do_what_every_tier_behind_it_can_and_reads_what_its_budget_pays() -> None:
    small = endpoint("a", traits=able(tools="yes", json_schema="yes"))
    large = endpoint("b", tier="large", window=32_768, traits=able(json_schema="yes"))
    virtual = {"v": {"kind": "fuse", "tiers": ["small", "large"], "budget": 10_000}}
    found = listed(small, large, virtual=virtual)
    assert (found["v"]["max_model_len"], found["v"]["capabilities"]) == (10_000, ["json_schema"])
    assert (found["v"]["tiers"], found["v"]["does"], found["v"]["kind"]) == (["small", "large"], "fuse", "virtual")
    assert found["auto"]["max_model_len"] == 32_768
    assert listed(endpoint("a"), virtual=virtual)["v"]["max_model_len"] == 4096


def test_a_virtual_model_without_any_living_tier_is_not_listed() -> None:
    virtual = {"v": {"kind": "vote", "tiers": ["large"]}}
    assert list(listed(endpoint("a"), virtual=virtual)) == ["small", "m-1", "auto"]


@pytest.mark.parametrize(("name", "kind"), [("small", "tier"), ("auto", "virtual"), ("m-1", "model")])
def test_a_name_means_a_tier_first_then_a_virtual_model_then_a_real_one(name: str, kind: str) -> None:
    assert target(name, ("small",), ("auto", "small"), (endpoint("a"),)).kind == kind


def test_a_name_that_is_none_is_refused_with_those_that_there_are_and_not_all_of_many() -> None:
    many = tuple(endpoint(f"e{number}", model=f"m-{number}") for number in range(50))
    with pytest.raises(RefusedError) as error:
        target("x" * 5000, ("small",), ("auto",), many)
    refusal = error.value.refusal
    assert (refusal.status, refusal.code) == (404, "model_not_found")
    assert "small, auto, m-0, m-1" in refusal.message
    assert f"and {52 - LISTED} more" in refusal.message
    assert len(refusal.message) < 600


def test_a_name_may_be_known_in_a_moment_while_an_endpoint_was_not_looked_at_yet() -> None:
    with pytest.raises(RefusedError) as error:
        target("m-9", ("small",), (), (endpoint("a"), endpoint("b", state="unknown", model=None)))
    assert (error.value.refusal.status, error.value.refusal.retry_after) == (503, 1.0)
