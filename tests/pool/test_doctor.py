"""Misconfigurations are named, with why they matter and a mend, and a healthy server is left in peace."""

from __future__ import annotations

import math
from typing import Any

import pytest

from pool.config import EndpointConfig
from pool.doctor import Finding, Patient, diagnose, failed
from pool.types import Card, EndpointStatus, Phase
from pool.wire.capability import CAPABILITIES, Record, trait
from pool.wire.metrics import Snapshot

GOOD = {name: trait("vllm", name, "yes", "seen") for name in CAPABILITIES}


def patient(
    name: str = "a", *, phase: Phase = "idle", idle: float | None = 5.0, config: Any = None, **record: Any
) -> Patient:
    settings = {"name": name, "url": f"http://127.0.0.1/{name}", "scheduling": "priority", **(config or {})}
    seen = {
        "kind": "vllm", "model": "m", "version": "0.32.0", "window": 32768, "kv_tokens": 400_000,
        "families": frozenset({"vllm:x"}), "routes": frozenset({"kv_event_sources"}), "traits": GOOD,
    }  # fmt: skip
    state = {"dead": "down", "unready": "down", "wedged": "suspect", "silent": "suspect"}.get(phase, "up")
    status = EndpointStatus.model_validate(
        {"name": name, "tier": "t", "url": "u", "state": state, "phase": phase, "last_error": "it hangs up"}
    )
    return Patient(EndpointConfig.model_validate(settings), status, Record.model_validate(seen | record), idle=idle)


def only(found: tuple[Finding, ...], words: str) -> Finding:
    (one,) = [finding for finding in found if words in finding.what]
    assert one.why
    assert one.mend
    return one


def test_healthy_server_has_one_line_that_says_so() -> None:
    (found,) = diagnose([patient()])
    assert found.level == "ok"
    assert not failed([found])


@pytest.mark.parametrize(
    ("phase", "words", "level"),
    [
        ("dead", "it hangs up", "fail"),
        ("unready", "it hangs up", "fail"),
        ("wedged", "stands still", "fail"),
        ("asleep", "sleeps", "fail"),
        ("silent", "it hangs up", "warn"),
    ],
)
def test_dead_wedged_and_asleep_are_told_apart(phase: Phase, words: str, level: str) -> None:
    found = only(diagnose([patient(phase=phase)]), words)
    assert found.level == level


def test_keep_alive_shorter_than_ours_is_a_fault_and_a_longer_or_unmeasured_one_is_none() -> None:
    """llm-d/llm-d#1564: the server closes while the client sends: RST and 502."""
    found = only(diagnose([patient(idle=2.0)]), "closes an idle connection after 2.0 s")
    assert found.level == "fail"
    assert "VLLM_HTTP_TIMEOUT_KEEP_ALIVE" in found.mend
    for idle in (5.0, math.inf, None):
        assert [one.level for one in diagnose([patient(idle=idle)])] == ["ok"]


@pytest.mark.parametrize(("window", "level"), [(1024, "fail"), (4096, "warn"), (None, "warn"), (8192, None)])
def test_window_that_is_tiny_or_untold_is_named(window: int | None, level: str | None) -> None:
    found = [one for one in diagnose([patient(window=window)]) if "window" in one.what and one.level != "ok"]
    assert [one.level for one in found] == ([level] if level else [])


def test_wrong_parser_is_a_fault_and_a_missing_one_a_warning() -> None:
    leaks = GOOD | {"tools": trait("vllm", "tools", "no", "the call came as text, so its parser is missing")}
    assert only(diagnose([patient(traits=leaks)]), "came as text").level == "fail"
    lacks = GOOD | {"tools": trait("vllm", "tools", "no", "it refuses: 400")}
    found = only(diagnose([patient(traits=lacks)]), "it refuses")
    assert found.level == "warn"
    assert "--tool-call-parser" in found.mend
    assert diagnose([patient(traits=lacks, config={"tools": "text"})])[0].level == "ok"


@pytest.mark.parametrize("name", [name for name in CAPABILITIES if name != "priority"])
def test_each_missing_ability_names_the_flag(name: Any) -> None:
    traits = GOOD | {name: trait("vllm", name, "no", "not seen")}
    assert only(diagnose([patient(traits=traits)]), f"{name}: not seen").mend == traits[name].mend


def test_white_space_that_a_schema_allows_is_named() -> None:
    traits = GOOD | {"json_schema": trait("vllm", "json_schema", "yes", "constrained, but white space filled it")}
    assert "disable_any_whitespace" in only(diagnose([patient(traits=traits)]), "white space").mend


def test_cache_that_is_off_too_small_or_thrashes_is_named() -> None:
    """PrimeIntellect-ai/prime-rl#3255: hit rate 98 -> 5 %."""
    assert only(diagnose([patient(prefix_caching=False)]), "prefix caching is off")
    assert only(diagnose([patient(kv_tokens=40_000)]), "1.2 whole windows")
    seen = patient()
    low = Patient(seen.config, seen.status, seen.record, Snapshot(prefix_queries=200_000, prefix_hits=10_000), 5.0)
    assert only(diagnose([low]), "only 5% of its prompt tokens")
    few = Patient(seen.config, seen.status, seen.record, Snapshot(prefix_queries=200, prefix_hits=1), 5.0)
    assert diagnose([few])[0].level == "ok"


def test_word_of_the_operator_is_held_against_what_is_seen() -> None:
    assert only(diagnose([patient(config={"scheduling": None})]), "cannot be seen").level == "warn"
    odd = diagnose([patient(kind="llamacpp", version=None, config={"scheduling": "priority"})])
    assert only(odd, "no vLLM").level == "fail"
    deaf = diagnose([patient(events=False, config={"kv_events": "tcp://127.0.0.1:5557"})])
    assert only(deaf, "publishes none").level == "fail"
    assert only(diagnose([patient(kind="llamacpp", slots=8, config={"scheduling": None})]), "decodes 8 at a time")


def test_old_server_no_metrics_and_many_models_are_named() -> None:
    assert only(diagnose([patient(version="0.11.2")]), "is old").level == "fail"
    assert only(diagnose([patient(version="0.24.0")]), "is old").level == "warn"
    assert only(diagnose([patient(families=frozenset())]), "no metrics")
    cards = (Card(id="m"), Card(id="n"), Card(id="lora", parent="m"))
    assert only(diagnose([patient(cards=cards)]), "several models; m is asked for")
    assert diagnose([patient(cards=cards[::2])])[0].level == "ok"


def test_key_over_plain_http_is_named_and_never_shown() -> None:
    config = {"url": "http://10.0.0.9:8000", "api_key": "s3cret"}
    found = diagnose([patient(config=config)])
    assert only(found, "travels unencrypted")
    assert "s3cret" not in str(found)
    assert diagnose([patient(config=config | {"url": "https://10.0.0.9"})])[0].level == "ok"


def test_endpoints_are_held_against_one_another() -> None:
    twice = diagnose([patient("a", config={"url": "http://h:1"}), patient("b", config={"url": "http://h:1"})])
    assert only(twice, "2 endpoints name it")
    mixed = diagnose([patient("a"), patient("b", model="other")])
    assert only(mixed, "serve m, other")
    assert only(diagnose([patient(config={"share_group": "g"})]), "alone")
