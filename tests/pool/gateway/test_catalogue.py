"""What may be asked for by name."""

from __future__ import annotations

import pytest

from pool.gateway.catalogue import cards, target
from pool.types import Card, EndpointStatus


def endpoint(name: str, **fields: object) -> EndpointStatus:
    told = {"name": name, "tier": "small", "url": "http://x", "state": "up", "model": "m-1", "window": 4096}
    return EndpointStatus.model_validate(told | fields)


def names(*endpoints: EndpointStatus, virtual: tuple[str, ...] = ()) -> dict[str, object]:
    return {card["id"]: card["max_model_len"] for card in cards(virtual, endpoints)}


def test_one_endpoint_that_is_down_takes_only_its_own_names_away() -> None:
    """vllm-project/router#135: the list of models failed when one worker was down."""
    up, down = endpoint("a"), endpoint("b", tier="large", model="m-2", state="down")
    assert names(up, down) == {"small": 4096, "m-1": 4096}
    assert names(down) == {}


def test_a_suspect_is_listed_and_a_leaving_one_is_not() -> None:
    assert "m-1" in names(endpoint("a", state="suspect"))
    assert names(endpoint("a", draining=True)) == {}


def test_a_tier_has_the_widest_window_of_its_endpoints() -> None:
    assert names(endpoint("a"), endpoint("b", window=32_768), endpoint("c", window=None))["small"] == 32_768
    assert names(endpoint("a", window=None))["small"] is None


def test_adapters_and_virtual_models_are_listed_once() -> None:
    adapted = endpoint("a", models=(Card(id="m-1"), Card(id="lora-1", parent="m-1")))
    assert list(names(adapted, endpoint("b"), virtual=("auto", "voters"))) == [
        "small",
        "m-1",
        "lora-1",
        "auto",
        "voters",
    ]


@pytest.mark.parametrize(
    ("name", "kind"), [("small", "tier"), ("auto", "virtual"), ("m-1", "model"), ("nobody", "tier")]
)
def test_a_name_means_a_tier_first_then_a_virtual_model_then_a_real_one(name: str, kind: str) -> None:
    assert target(name, ("small",), ("auto", "small"), (endpoint("a"),)).kind == kind
