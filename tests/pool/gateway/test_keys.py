"""Who may call and how much."""

from __future__ import annotations

import pytest

from pool.config import KeyConfig
from pool.errors import PoolConfigError
from pool.gateway.keys import Budget, Keys, check_bind, hashed
from pool.gateway.replies import RefusedError


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def keys(clock: Clock | None = None, **limits: object) -> Keys:
    config = KeyConfig.model_validate({"name": "anna", "sha256": hashed("sk-anna")} | limits)
    return Keys((config,), {}, clock or Clock())


def test_a_key_is_known_by_its_hash_alone() -> None:
    assert keys().caller("Bearer sk-anna").name == "anna"
    assert keys().caller("bearer  sk-anna ").name == "anna"
    assert keys().caller(None, "sk-anna").name == "anna"


@pytest.mark.parametrize("given", [None, "", "Bearer", "Bearer ", "Basic sk-anna", "Bearer sk-ann", "sk-anna"])
def test_whoever_has_no_key_gets_401(given: str | None) -> None:
    with pytest.raises(RefusedError) as caught:
        keys().caller(given)
    assert caught.value.refusal.status == 401
    assert "sk-ann" not in caught.value.refusal.message


def test_a_key_may_come_from_the_environment() -> None:
    config = KeyConfig(name="ben", env="BEN_KEY")
    assert Keys((config,), {"BEN_KEY": "sk-ben"}, Clock()).caller("Bearer sk-ben").name == "ben"
    with pytest.raises(PoolConfigError, match="BEN_KEY is not set"):
        Keys((config,), {}, Clock())


def test_two_callers_cannot_share_one_key() -> None:
    twice = tuple(KeyConfig(name=name, sha256=hashed("same")) for name in ("a", "b"))
    with pytest.raises(PoolConfigError, match="the same"):
        Keys(twice, {}, Clock())


@pytest.mark.parametrize("told", [{}, {"sha256": "0" * 64, "env": "X"}, {"sha256": "sk-clear"}])
def test_settings_take_a_hash_or_a_name_and_no_clear_key(told: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"exactly one|pattern"):
        KeyConfig.model_validate({"name": "a"} | told)


def test_requests_at_a_time_are_bounded_and_counted_back() -> None:
    caller = keys(concurrent=1).caller("Bearer sk-anna")
    with caller.request(1):
        with pytest.raises(RefusedError) as caught, caller.request(1):
            pass
        assert caught.value.refusal.status == 429
        assert caught.value.refusal.retry_after
    with pytest.raises(ZeroDivisionError), caller.request(1):
        raise ZeroDivisionError
    with caller.request(1):
        assert caller.running == 1


def test_tokens_a_minute_come_back_when_it_says() -> None:
    clock = Clock()
    caller = keys(clock, tokens_per_minute=600).caller("Bearer sk-anna")
    with caller.request(600) as settle:
        settle(600)
    with pytest.raises(RefusedError) as caught, caller.request(100):
        pass
    refusal = caught.value.refusal
    assert (refusal.status, refusal.code) == (429, "tokens_per_minute")
    assert refusal.retry_after == pytest.approx(10.0)
    clock.now += 10.0
    with caller.request(100):
        pass


def test_a_reservation_becomes_what_was_really_used() -> None:
    caller = keys(tokens_per_minute=1000).caller("Bearer sk-anna")
    with caller.request(1000) as settle:
        settle(0)
    with caller.request(1000) as settle:
        settle(300)
    with caller.request(700):
        pass


def test_a_request_beyond_the_whole_budget_waits_for_a_full_one_and_is_not_refused_for_ever() -> None:
    clock = Clock()
    caller = keys(clock, tokens_per_minute=100).caller("Bearer sk-anna")
    with caller.request(5000):
        pass
    with pytest.raises(RefusedError), caller.request(5000):
        pass
    clock.now += 50 * 60.0
    with caller.request(5000):
        pass


def test_the_budget_of_a_day_is_kept_too() -> None:
    clock = Clock()
    caller = keys(clock, tokens_per_minute=1000, tokens_per_day=1500).caller("Bearer sk-anna")
    for _ in range(3):
        with caller.request(500):
            pass
        clock.now += 60.0
    with pytest.raises(RefusedError) as caught, caller.request(500):
        pass
    assert caught.value.refusal.code == "tokens_per_day"


def test_a_clock_that_stands_still_gives_nothing_back() -> None:
    budget = Budget(10, 60.0, Clock())
    budget.reserve(10)
    assert budget.wait(1) == budget.wait(1) == pytest.approx(6.0)


@pytest.mark.parametrize(
    ("best", "asked", "given"),
    [
        ("default", "interactive", "default"),
        ("default", "bulk", "bulk"),
        ("default", None, "default"),
        ("bulk", None, "bulk"),
        ("bulk", "interactive", "bulk"),
        ("interactive", "interactive", "interactive"),
        ("interactive", None, "default"),
        ("interactive", "nonsense", "default"),
    ],
)
def test_a_class_may_be_lowered_and_never_raised(best: str, asked: str | None, given: str) -> None:
    assert keys(request_class=best).caller("Bearer sk-anna").lowered(asked) == given


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost"])
def test_loopback_needs_no_keys(host: str) -> None:
    check_bind(host, ())


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.5", "example.org", ""])  # noqa: S104  refused
def test_other_addresses_are_refused_without_keys_and_told_the_mend(host: str) -> None:
    with pytest.raises(PoolConfigError, match=r"pool\.gateway\.keys"):
        check_bind(host, ())
    check_bind(host, (KeyConfig(name="a", env="A"),))


def test_a_guess_beyond_the_bucket_locks_nobody_out_for_longer_than_it_takes_to_fill() -> None:
    clock = Clock()
    caller = keys(clock, tokens_per_minute=100).caller("Bearer sk-anna")
    with caller.request(10**12):
        with pytest.raises(RefusedError) as caught, caller.request(1):
            pass
        assert (caught.value.refusal.retry_after or 0) <= 60
    clock.now = 60.0
    with caller.request(100) as settle:
        settle(0)
