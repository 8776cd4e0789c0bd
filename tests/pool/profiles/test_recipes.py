"""Recipes: every flag is one that the release knows, or it is left out, unconfirmed or refused; nothing is invented."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from pool.errors import PoolConfigError
from pool.profiles.catalogue import find
from pool.profiles.gpus import gpu
from pool.profiles.pieces import Wish
from pool.profiles.recipes import Recipe, recipe
from pool.profiles.shapes import PROFILES
from pool.profiles.versions import Release, order, releases, since, table

GOES = {"hisparse": "deepseek-v3.2", "afd": "deepseek-v3-0324"}  # profiles that not every model goes with


def wished(profile: str, **more: Any) -> Wish:
    model = find(GOES.get(profile, "qwen3-coder-30b-a3b-instruct"))
    told = {"gpu": gpu("cpu" if profile == "cpu" else "h100"), "tensor_parallel": 2, "window": 65536, "sessions": 6}
    return Wish.model_validate(
        {"profile": profile, "model": model, "path": model.name, "name": model.name, "run": Path("/run/x")}
        | told
        | more
    )


def made(profile: str, version: str, **more: Any) -> Recipe:
    return recipe(wished(profile, **more), Release(version))


def flags(built: Recipe) -> set[str]:
    return {word for server in built.servers for word in server.words if word.startswith("--")}


@pytest.mark.parametrize("version", releases())
@pytest.mark.parametrize("profile", sorted(PROFILES))
def test_a_command_has_no_flag_that_its_release_lacks(profile: str, version: str) -> None:
    try:
        built = made(profile, version)
    except PoolConfigError as error:
        assert profile in str(error)  # noqa: PT017  a refusal is an answer, as long as it says of what
        return
    known = table()["flag"]
    assert all(version in known[name] for name in flags(built))
    assert not built.unconfirmed
    for doubt in built.dropped:
        assert version not in known.get(doubt.words[0], ())


def test_the_newest_release_serves_every_profile_but_the_pinned_one() -> None:
    for name in set(PROFILES) - {"afd"}:
        assert made(name, releases()[-1]).servers


def test_the_attention_plugin_is_refused_on_every_release_but_its_own() -> None:
    assert len(made("afd", "0.30.0").servers) == 2
    with pytest.raises(PoolConfigError, match=r"0\.30\.0 alone"):
        made("afd", "0.33.0")


def test_only_the_attention_server_of_the_pair_is_joined() -> None:
    attention, experts = made("afd", "0.30.0").servers
    assert attention.endpoint is not None
    assert experts.endpoint is None


def test_a_flag_between_two_releases_that_disagree_is_unconfirmed_not_invented() -> None:
    built = made("agents", "0.28.0")  # the queue's bound came after 0.27.1 and by 0.30.0
    assert "--max-num-queued-reqs" in {doubt.words[0] for doubt in built.unconfirmed}
    assert since("flag", "--max-num-queued-reqs") == "0.30.0"


def test_a_release_past_the_table_confirms_nothing() -> None:
    built = made("agents", "9.0.0")
    assert flags(built) == {doubt.words[0] for doubt in built.unconfirmed}


def test_an_installed_vllm_is_believed_over_the_table() -> None:
    told = {kind: frozenset(names) for kind, names in table().items()}
    built = recipe(wished("agents"), Release("9.0.0", told))
    assert not built.unconfirmed
    bare = recipe(wished("agents"), Release("0.33.0", told | {"flag": told["flag"] - {"--kv-cache-metrics"}}))
    assert "--kv-cache-metrics" not in flags(bare)


def test_what_makes_a_profile_is_never_left_out() -> None:
    with pytest.raises(PoolConfigError, match=r"HiSparseConnector.*0\.30\.0 is the first"):
        made("hisparse", "0.27.1")


def test_an_unknown_parser_takes_the_automatic_choice_with_it() -> None:
    """vLLM does not start with --enable-auto-tool-choice alone."""
    built = made("agents", "0.33.0", tool_parser="nosuch")
    assert not {"--tool-call-parser", "--enable-auto-tool-choice"} & flags(built)
    assert any("nosuch" in doubt.why for doubt in built.dropped)


@pytest.mark.parametrize(
    ("profile", "more", "told"),
    [
        ("hisparse", {"model": find("qwen3-8b")}, "sparse attention"),
        ("hisparse", {"gpu": gpu("mi300x")}, "NVIDIA"),
        ("afd", {"model": find("qwen3-8b")}, "Qwen3ForCausalLM"),
        ("offload", {"gpu": gpu("cpu")}, "needs a GPU"),
        ("cpu", {"host_memory": 0.5}, "whole GiB"),  # vLLM 0.32 reads the variable with int() and dies
        ("offload", {"connector": "nixl"}, "native and lmcache"),
        ("shared-cache", {"connector": "nosuch"}, "mooncake"),
        ("prefill-decode", {"connector": "lmcache"}, "nixl"),
        ("layerwise", {"connector": "lmcache", "model": find("deepseek-v3.2")}, "MLA"),
        ("nosuch", {}, "no such profile"),
        ("agents", {"connector": "lmcache"}, "agents has no use for --connector; it is for offload and"),
        ("offload", {"draft": "head"}, "no use for --draft-model; it is for speculative"),
    ],
)
def test_what_does_not_go_together_is_refused_with_the_reason(profile: str, more: dict[str, Any], told: str) -> None:
    with pytest.raises(PoolConfigError, match=told):
        made(profile, "0.30.0", **more)


def test_a_pair_has_two_ports_two_roles_and_two_places_to_shake_hands() -> None:
    prefill, decode = made("prefill-decode", "0.33.0").servers
    assert (prefill.endpoint.role, decode.endpoint.role) == ("prefill", "decode")  # type: ignore[union-attr]
    assert prefill.endpoint.url != decode.endpoint.url  # type: ignore[union-attr]
    ports = [variable.value for server in (prefill, decode) for variable in server.env if "PORT" in variable.name]
    assert len(set(ports)) == 2


def test_context_parallel_follows_vllms_own_rule() -> None:
    def width(model: str, parallel: int) -> str | None:
        words = made("long-context", "0.33.0", model=find(model), tensor_parallel=parallel).servers[0].words
        name = "--decode-context-parallel-size"
        return words[words.index(name) + 1] if name in words else None

    assert width("deepseek-v3.2", 8) == "8"  # MLA: all of them hold the same
    assert width("qwen3-coder-30b-a3b-instruct", 8) == "2"  # four KV heads on eight GPUs
    assert width("qwen3-coder-30b-a3b-instruct", 4) is None


def test_every_flag_and_variable_has_a_reason_and_the_command_survives_a_shell() -> None:
    for name in set(PROFILES) - {"afd"}:
        for server in made(name, "0.33.0", path="/models/with a space").servers:
            assert all(piece.why for piece in server.pieces)
            assert all(variable.why for variable in server.env)
            words = shlex.split(server.shell().replace("\\\n", " "))
            assert tuple(words[words.index("serve") + 1 :]) == server.words


def test_an_endpoint_says_of_its_server_what_the_flags_make_true() -> None:
    endpoint = made("agents", "0.33.0", port=8123).servers[0].endpoint
    assert endpoint is not None
    assert (endpoint.url, endpoint.scheduling) == ("http://127.0.0.1:8123", "priority")
    assert endpoint.kv_events == "ipc:///run/x/8123-events.sock"


def test_versions_are_compared_by_their_numbers() -> None:
    assert order("0.9.2") < order("0.30.0") == order("v0.30.0+cpu") == order("0.30.0.post1")
    with pytest.raises(PoolConfigError, match="no vLLM version"):
        order("latest")
