"""Addresses of servers: what may be written, and that every refusal says how to write it."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pool.address import base_address, event_address


@pytest.mark.parametrize(
    ("text", "base"),
    [
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000"),
        ("http://127.0.0.1:8000/v1", "http://127.0.0.1:8000"),
        (" http://h:1/v1/ ", "http://h:1"),
        ("http://[::1]:80/v1", "http://[::1]:80"),
        ("https://h/openai/v1", "https://h/openai"),
        ("HTTP://H:1", "http://H:1"),
    ],
)
def test_base_addresses_come_with_or_without_their_version(text: str, base: str) -> None:
    assert base_address(text) == base
    assert base_address(base) == base


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "is empty"),
        ("localhost:8000", r"did you mean http://localhost:8000\?"),
        ("//localhost:8000", r"did you mean http://localhost:8000\?"),
        ("ftp://x", "is no http:// or https:// address"),
        ("http://", "names no host"),
        ("http:///v1", "names no host"),
        ("http://h:port", "no port that could be one"),
        ("http://h:99999", "no port that could be one"),
        ("http://[::1", "no port that could be one"),
        ("http://h:0", "port 0"),
        ("http://h/v1?key=1", "query, which would not be sent; write http://h/v1$"),
        ("http://h/#top", "query"),
        ("http://ho st:1", "a space"),
        ("http://h\n:1", "a control character"),
        ("http://h:1/v1/chat/completions", "the address before it: http://h:1/v1$"),
        ("http://h:1/metrics/", "the address before it: http://h:1$"),
    ],
)
def test_what_is_no_base_address_is_told_with_the_mend(text: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        base_address(text)


@pytest.mark.parametrize("text", ["http://me:s3cret@h", "me:s3cret@h:1", "http://s3cret@h/v1"])
def test_a_password_is_refused_and_never_repeated(text: str) -> None:
    with pytest.raises(ValueError, match="api_key_env") as caught:
        base_address(text)
    assert "s3cret" not in str(caught.value)


@given(st.text(max_size=40) | st.from_regex(r"https?://[a-z\[\]:@/?#0-9]{0,30}", fullmatch=True))
def test_any_text_is_an_address_or_a_refusal_and_a_base_stays_one(text: str) -> None:
    base = None
    with contextlib.suppress(ValueError):  # nothing else may be raised
        base = base_address(text)
    assert base is None or base_address(base) == base


@pytest.mark.parametrize("text", ["tcp://127.0.0.1:5557", "tcp://[::1]:5557", "ipc:///run/a.sock"])
def test_addresses_of_events_are_those_of_zmq(text: str) -> None:
    assert event_address(text) == text


@pytest.mark.parametrize("text", ["", "127.0.0.1:5557", "tcp://h", "tcp://:1", "tcp://h:0", "http://h:1", "ipc://"])
def test_other_addresses_of_events_are_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="write tcp://127"):
        event_address(text)


def test_a_socket_that_no_kernel_binds_is_refused() -> None:
    with pytest.raises(ValueError, match="112 bytes, the kernel takes 107"):
        event_address("ipc:///run/" + "x" * 107)
