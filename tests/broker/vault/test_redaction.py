"""No form in which a secret shows up passes."""

from __future__ import annotations

import base64
import json
import logging
from urllib.parse import quote

import pytest
from pydantic import SecretStr

from broker.vault.redaction import RedactingFormatter, Redactor

SECRET = "ghp_Zq3+x/Y=' \"9canary7Lm"


@pytest.fixture
def redactor():
    made = Redactor()
    made.learn(SecretStr(SECRET))
    return made


@pytest.mark.parametrize(
    "shown",
    [
        SECRET,
        quote(SECRET),
        quote(SECRET, safe=""),
        json.dumps({"token": SECRET}),
        repr(SECRET),
        SECRET.encode().hex(),
        SECRET.encode().hex().upper(),
        SECRET[::-1],
        base64.b32encode(SECRET.encode()).decode(),
        *(
            base64.b64encode(f"{user}:{SECRET}".encode()).decode()
            for user in ("", "x", "xy", "x-access-token", "oauth2")
        ),
        base64.urlsafe_b64encode(SECRET.encode()).decode(),
        f"https://x-access-token:{quote(SECRET, safe='')}@github.com/a/b.git",
    ],
)
def test_a_secret_is_struck_in_every_form(redactor, shown):
    said = redactor(f"fatal: {shown} was not taken; try again")
    assert "[secret]" in said
    assert said.startswith("fatal: ")
    assert said.endswith("was not taken; try again")
    core = shown[len(shown) // 3 : len(shown) // 3 + 10]
    assert core not in said


def test_other_words_stay_as_they_are(redactor):
    text = "remote: GH013: Repository rule violations found for refs/heads/swarm/t1"
    assert redactor(text) == text


def test_the_newest_are_known_and_the_number_of_them_is_bounded():
    redactor = Redactor()
    for number in range(300):
        redactor.learn(SecretStr(f"token-{number:06}-x"))
    assert redactor("token-000299-x token-000200-x") == "[secret] [secret]"
    assert redactor("token-000000-x") == "token-000000-x"


def test_what_is_shorter_than_a_password_strikes_nothing():
    redactor = Redactor()
    redactor.learn(SecretStr("a"))
    assert redactor("a cat sat") == "a cat sat"


def test_a_traceback_in_a_log_is_struck_as_a_whole(redactor):
    error = RuntimeError(f"header was Bearer {SECRET}")
    record = logging.LogRecord("x", logging.ERROR, "f", 1, "call with %s", (SECRET,), (type(error), error, None))
    said = RedactingFormatter(redactor).format(record)
    assert "RuntimeError" in said
    assert SECRET not in said


@pytest.mark.parametrize("kept", [10, len(SECRET) - 1])
def test_the_beginning_of_a_secret_at_the_end_is_struck_since_somebody_cut_it(redactor, kept):
    for shown in (SECRET, SECRET.encode().hex(), base64.b64encode(SECRET.encode()).decode()):
        assert redactor(f"fatal: {shown[:kept]}").removesuffix("[secret]") == "fatal: "


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_no_message_writes_a_line_that_looks_like_one_of_the_logs_own(redactor, end):
    record = logging.LogRecord("broker.x", logging.WARNING, "f", 1, "said: %s", (f"x{end}ERROR: broker: shut",), None)
    first, *more = RedactingFormatter(redactor).format(record).splitlines()
    assert first == "WARNING: broker.x: said: x"
    assert [line.strip() for line in more if line.strip()] == ["ERROR: broker: shut"]
    assert not [line for line in more if line.startswith("ERROR")]
