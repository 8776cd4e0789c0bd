"""Versions compared, and what enables a missing capability."""

from __future__ import annotations

import pytest

from pool.types import Served
from pool.wire.capability import CAPABILITIES, MENDS, Record, mend, numbers, trait


@pytest.mark.parametrize(
    ("told", "read"),
    [("0.32.0", (0, 32, 0)), ("v0.9", (0, 9)), ("0.30.1rc2.dev3+cpu", (0, 30, 1)), ("dev", ()), ("", ()), (None, ())],
)
def test_version_is_its_leading_numbers(told: str | None, read: tuple[int, ...]) -> None:
    assert numbers(told) == read


def test_ten_is_newer_than_nine_and_a_hidden_version_counts_as_new() -> None:
    assert Record(kind="vllm", model="m", version="0.9.2").older_than(0, 10)
    assert not Record(kind="vllm", model="m", version="0.10.0").older_than(0, 10)
    assert not Record(kind="vllm", model="m", version="main").older_than(0, 10)
    assert not Record(kind="other", model="m", version="0.1").older_than(0, 10)


def test_every_capability_has_a_mend_for_every_kind_and_none_where_it_works() -> None:
    for kind, mends in MENDS.items():
        assert set(mends) == set(CAPABILITIES)
        for name in CAPABILITIES:
            assert trait(kind, name, "no", "seen").mend == mend(kind, name) != ""
            assert trait(kind, name, "yes", "seen").mend == ""


def test_record_of_a_list_of_models_claims_nothing() -> None:
    record = Record.of(Served(kind="vllm", model="m", window=10))
    assert record.able == frozenset()
    assert {record.verdict(name) for name in CAPABILITIES} == {"unknown"}
