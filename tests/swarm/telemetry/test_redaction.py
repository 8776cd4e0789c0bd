"""Secrets in every dress that a log, a trace or an export has met, and innocent text that must stay as it is."""

from __future__ import annotations

import base64
import json
import time
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarm import tokens
from swarm.telemetry.redaction import LONGEST, STRUCK, Redactor, encoded

KNOWN = "correct horse/battery+staple="
TOKEN = "ghp_" + "a1B2" * 9


@pytest.mark.parametrize("form", sorted(encoded(KNOWN)))
def test_a_known_secret_is_struck_in_every_encoding(form: str) -> None:
    assert Redactor([KNOWN]).text(f"before {form} after") in {
        f"before {STRUCK} after",
        f"before {form[:0]}{STRUCK} after",
    }


@pytest.mark.parametrize("before", ["", "a", "ab", "user:"])
def test_a_known_secret_inside_a_base64_text_is_struck_wherever_it_begins(before: str) -> None:
    written = base64.b64encode(f"{before}{KNOWN}{before}".encode()).decode()
    told = Redactor([KNOWN]).text(f"Basic {written}")
    assert STRUCK in told
    assert len(told) < len(f"Basic {written}")
    assert written not in told


@pytest.mark.parametrize(
    "text",
    [
        TOKEN,
        f"remote: {TOKEN}, says git",
        base64.b64encode(f"x-access-token:{TOKEN}".encode()).decode(),
        base64.urlsafe_b64encode(TOKEN.encode()).decode().rstrip("="),
        TOKEN.encode().hex(),
        quote(f"token {TOKEN}/", safe=""),
        "github_pat_" + "Z" * 40,
        "glpat-" + "x" * 20,
        "sk-" + "q" * 48,
        "AKIA" + "A" * 16,
        pytest.param(tokens.made("ci", "operator", 10)[0], id="a token of our own"),
        "npm_" + "a1B2" * 9,
        f"MY_{TOKEN}",
        "swc2." + "k" * 64,
        "-----BEGIN RSA PRIVATE KEY-----\nMIIE" + "A" * 60 + "\n-----END RSA PRIVATE KEY-----",
        "-----BEGIN PRIVATE KEY-----\nMIIE" + "A" * 60,  # cut off in the middle
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJlLXNpZ25hdHVyZQ",
    ],
)
def test_what_looks_like_a_token_is_struck_though_nobody_named_it(text: str) -> None:
    told = Redactor().text(f"log: {text} end")
    assert STRUCK in told
    assert TOKEN not in told
    assert "MIIE" not in told
    assert text not in told


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("https://me:hunter22@forge.example/o/r.git", f"https://{STRUCK}@forge.example/o/r.git"),
        ("postgresql://swarm:pass@db:5432/swarm", f"postgresql://{STRUCK}@db:5432/swarm"),
        ("Authorization: Bearer abcdef0123456789", f"Authorization: Bearer {STRUCK}"),
        ('{"authorization": "token abcdef0123"}', f'{{"authorization": "token {STRUCK}"}}'),
        ("DB_PASSWORD=hunter2hunter2 next", f"DB_PASSWORD={STRUCK} next"),
        ('api_key = "abcdefgh"', f'api_key = "{STRUCK}"'),
        ("password = 'two words here' next", f"password = '{STRUCK}' next"),
        (r"{\"password\": \"hunter2\"}", rf"{{\"password\": \"{STRUCK}\"}}"),
        (r"{\\\"password\\\": \\\"hunter2 2\\\"}", rf"{{\\\"password\\\": \\\"{STRUCK}\\\"}}"),
        (r"{\"authorization\": \"token abcdef0123\"}", rf"{{\"authorization\": \"token {STRUCK}\"}}"),
        ("aws_secret_access_key = wJalrXUtnFEMI/K7", f"aws_secret_access_key = {STRUCK}"),
        ("PGPASSWORD=hunter22", f"PGPASSWORD={STRUCK}"),
        ("postgresql://swarm:pa@ss@db:5432/swarm", f"postgresql://{STRUCK}@db:5432/swarm"),
        ("export GITHUB_TOKEN=abc123def456", f"export GITHUB_TOKEN={STRUCK}"),
        ("NPM_TOKEN=abcdefgh; next", f"NPM_TOKEN={STRUCK}; next"),
        ("GITHUB_TOKEN: 'abc123def456'", f"GITHUB_TOKEN: '{STRUCK}'"),
        ("  token: deadbeefcafe1234.", f"  token: {STRUCK}."),
        (r"{\"token\": \"abc123def456\"}", rf"{{\"token\": \"{STRUCK}\"}}"),
        ('githubToken = "a1b2c3d4e5"', f'githubToken = "{STRUCK}"'),
        ("x-csrf-token: abc123def456==", f"x-csrf-token: {STRUCK}"),
        ("token=MTk4NjIy.Cl2FMQ.ZnCjm1XVW7vRze4b7Cq", f"token={STRUCK}"),
        ("DB_PASS=hunter", f"DB_PASS={STRUCK}"),
        ("STRIPE_KEY=rk12345678", f"STRIPE_KEY={STRUCK}"),
        ("AccountName=a;AccountKey=abCd1234efgh==;", f"AccountName=a;AccountKey={STRUCK};"),
        ("tool --token abc123def456 --fast", f"tool --token {STRUCK} --fast"),
    ],
)
def test_a_name_makes_what_follows_a_secret(text: str, told: str) -> None:
    assert Redactor().text(text) == told


def _dump(data: bytes) -> str:
    """As xxd writes it."""
    rows = [data[at : at + 16] for at in range(0, len(data), 16)]
    return "\n".join(f"{at * 16:08x}: {row.hex(' ', 2):<39}  {''.join(map(chr, row))}" for at, row in enumerate(rows))


DRESSES = {
    "wrapped Base64": lambda data: base64.encodebytes(b"FIRST=a line that is not\nNEXT=" + data + b"\n" * 60).decode(),
    "wrapped Base64 in JSON": lambda data: json.dumps(base64.encodebytes(b"FIRST=a line of it, NEXT=" + data).decode()),
    "Base64 behind a path": lambda data: "data/" + base64.b64encode(data).decode(),
    "Base64 behind a longer path": lambda data: "/tmp/x/" + base64.b64encode(b"user:" + data).decode(),
    "a long Base64": lambda data: base64.b64encode(bytes(12_278) + data + bytes(4000)).decode(),
    "Base64 of UTF-16": lambda data: base64.b64encode(data.decode().encode("utf-16-le")).decode(),
    "spaced hex": lambda data: data.hex(" "),
    "hex with colons": lambda data: data.hex(":"),
    "hex of an array": lambda data: ", ".join(f"0x{byte:02x}" for byte in data),
    "hex behind a digit": lambda data: "a" + data.hex(),
    "xxd": _dump,
    "hexdump": lambda data: "\n".join(
        f"{at:08x}  {data[at : at + 16].hex(' ')}  |x|" for at in range(0, len(data), 16)
    ),
    "escaped bytes": lambda data: "".join(f"\\x{byte:02x}" for byte in data),
    "escaped letters": lambda data: "".join(f"\\u{byte:04x}" for byte in data),
    "some escaped letters": lambda data: data.decode().replace(" ", "\\u0020").replace("o", "\\\\u006f"),
    "entities": lambda data: "".join(f"&#{byte};" for byte in data),
    "all of it quoted": lambda data: "".join(f"%{byte:02X}" for byte in data),
}


@pytest.mark.parametrize("dress", DRESSES)
@pytest.mark.parametrize(("secret", "known"), [(KNOWN, [KNOWN]), (TOKEN, [])], ids=["known", "shape"])
def test_a_secret_is_struck_in_every_dress_that_tools_give_it(dress: str, secret: str, known: list[str]) -> None:
    written = DRESSES[dress](secret.encode())
    told = Redactor(known).text(f"it says\n{written}\nand ends")
    assert STRUCK in told
    assert told.startswith("it says\n")
    assert told.endswith("and ends")
    assert len(told) < len(written)
    assert not any(line in told for line in written.splitlines() if len(line) > 24 and set(line) != {"A"})


@pytest.mark.parametrize(
    "text",
    [
        "attempt t1-2-ab12 finished: the tests pass and 3 of them failed before",
        "tree 4b825dc642cb6eb9a060e54bf8d69288fbee4904 on base 9fceb02d0ae598e95dc970b74767f19372d61af8",
        "def secret_of(name): return name",
        "GET /v1/tasks?state=queued&limit=50 at https://forge.example/o/r/pull/3",
        "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        "a%20b and 100% of it",
        "00000000: 6865 6c6c 6f20 776f 726c 640a            hello world.",
        base64.encodebytes(b"nothing to be seen in here, " * 6).decode(),
        "swarm_queue_wait_seconds_and_some_more_words_of_it",
        "task-with-a-name-that-is-long-enough",
        "tokens: 12345678, max_tokens=4096, cached_tokens=123456",
        "def peek(self, token: str, next_token: Optional[Token] = None) -> bool:",
        "token = self.tokens12345[0]; token = lexer1.next_token(); token = tok12345.value",
        "EOS_TOKEN = '<|endoftext|>' and PRIMARY_KEY=true, sort_key: by_name12",
        "GITHUB_TOKEN=$GITHUB_TOKEN or GITHUB_TOKEN: ${{ secrets.GITHUB_TOKEN1 }}",
        "token: 1234567890 of --tokens 1234abcd",
    ],
)
def test_innocent_text_stays_as_it_is(text: str) -> None:
    assert Redactor([KNOWN]).text(text) == text


def test_data_is_struck_at_every_depth_and_under_telling_keys() -> None:
    told = Redactor([KNOWN]).data({"a": [{"capability": "short", "text": f"x {KNOWN}"}], "tokens": 3, KNOWN: 1})
    assert told == {"a": [{"capability": STRUCK, "text": f"x {STRUCK}"}], "tokens": 3, STRUCK: 1}


@pytest.mark.parametrize(
    "key",
    [
        "PGPASSWORD",
        "Token",
        "githubToken",
        "DB_PASS",
        "signing_key",
        "credentials",
        "private_key",
        "aws_secret_access_key",
        "api-key",
        "DB_PASSWORD",
    ],
)
def test_a_key_that_names_a_secret_hides_its_text_and_its_list(key: str) -> None:
    told = Redactor().data({key: "x", "env": {key: ["kkkk", "l"]}, f"{key}_file": "/etc/x"})
    assert told == {key: STRUCK, "env": {key: [STRUCK, STRUCK]}, f"{key}_file": "/etc/x"}


@pytest.mark.slow
def test_what_holds_further_values_under_such_a_key_is_struck_whole() -> None:
    told = Redactor().data(
        {"api_key": {"value": "plain"}, "token": [["x"], {"a": 1}, 3, "s"], "secret": {}, "n": {"a": 1}}
    )
    assert told == {"api_key": STRUCK, "token": [STRUCK, STRUCK, 3, STRUCK], "secret": {}, "n": {"a": 1}}


def test_a_deep_or_endless_text_ends_in_time() -> None:
    deep: object = KNOWN
    for _ in range(100):
        deep = [deep]
    assert KNOWN not in json.dumps(Redactor([KNOWN]).data(deep))
    began = time.process_time()
    for text in (
        "a" * LONGEST,
        "%41" * 200_000,
        "authorization " * 50_000,
        "://" * 200_000,
        "-----BEGIN PRIVATE KEY-----" * 20_000,
        "ab " * 60_000,
        "QUFB\n" * 40_000,
        "QUFB" * 8 + "\nQUFB" * 40_000,
        "00000000: 6865 6c6c 6f20 776f\n" * 6_000,
        "00000000: " + "6865 " * 30_000,
        "\\" * 200_000,
        "\\x41" * 40_000,
        "password=" * 20_000,
        "password='" + "\\" * 200_000,
        "password:'" * 20_000,
    ):
        Redactor([KNOWN]).text(text + KNOWN)
    assert (
        time.process_time() - began < 30
    )  # seconds of processor: a text that is looked at again and again takes hours


@settings(max_examples=60, deadline=None)
@given(
    st.text(min_size=8, max_size=40).filter(lambda text: text.strip() == text),
    st.text(max_size=20),
    st.text(max_size=20),
)
def test_no_known_secret_survives_plain_or_encoded(secret: str, before: str, after: str) -> None:
    redactor = Redactor([secret])
    for form in (secret, secret.encode("utf-8", "replace").hex(), quote(secret, safe="")):
        told = redactor.text(f"{before} {form} {after}")
        assert form not in told or form in before or form in after or form in STRUCK
