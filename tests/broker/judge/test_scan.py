"""What is found in added lines, what is not, and that no line makes the scan slow."""

from __future__ import annotations

import time

import pytest

from broker.config.policy import Policy
from broker.judge.scan.content import Content, added_lines, is_binary
from broker.judge.scan.scanner import MAX_PER_FILE, Scanner
from broker.judge.scan.secrets import SIGNS, detectors


@pytest.fixture(scope="module")
def scanner():
    return Scanner()


def found(scanner, new, old=b"", policy=None):
    return scanner.begin(policy or Policy()).look(Content("a.py", old, new))


def rules(scanner, new, old=b"", policy=None):
    return {finding.rule for finding in found(scanner, new, old, policy)}


# Put together here, so that no scanner takes this file for a leak.
SECRETS = [
    b"AKIA" + b"IOSFODNN7EXAMPLA",
    b"ghp_" + b"a1B2c3D4e5" * 3 + b"a1B2c3",
    b"glpat-" + b"x1y2z3w4v5u6t7s8r9q0",
    b"-----BEGIN RSA " + b"PRIVATE KEY-----",
    b"https://user:" + b"hunter2secret@example.org/x.git",
    b"xoxb-" + b"123456789012-123456789012-abcdefABCDEF0123456789ab",
    b"sk_live_" + b"4eC39HqLyjWDarjtT1zdp7dc",
    b'password = "' + b'correct-horse-42-battery"',
    b'api_key = "' + b'Zq83kLmX02pWv7Ty"',
    b"SECRET_TOKEN: " + b"'9aK2mZx81QpLr4Vt'",
    b"sk-" + b"a1B2c3D4e5F6g7H8i9J0" + b"T3Blbk" + b"FJ" + b"a1B2c3D4e5F6g7H8i9J0",
    b"//registry.npmjs.org/:_auth" + b"Token=" + b"npm_a1B2c3D4e5F6g7H8i9J0",
]


@pytest.mark.parametrize("secret", SECRETS)
def test_a_secret_in_an_added_line_is_found(scanner, secret):
    assert rules(scanner, b"x = 1\n" + secret + b"\n") == {"secret"}


@pytest.mark.parametrize("secret", SECRETS)
def test_an_allowlist_pragma_does_not_hide_a_secret(scanner, secret):
    assert "secret" in rules(scanner, secret + b"  # pragma: allowlist secret\n")


def test_a_finding_never_holds_the_secret(scanner):
    for secret in SECRETS:
        said = " ".join(finding.model_dump_json() for finding in found(scanner, secret))
        assert secret.decode()[8:] not in said


def test_a_secret_that_the_base_holds_is_not_held_against_the_proposal(scanner):
    old = SECRETS[0] + b"\nx = 1\n"
    assert rules(scanner, b"y = 2\n" + old, old) == set()


def test_a_second_copy_of_a_line_is_an_added_line(scanner):
    line = SECRETS[0] + b"\n"
    assert rules(scanner, line * 2, line) == {"secret"}


@pytest.mark.parametrize(
    "line",
    [
        b"password = get_password()",
        b'password = os.environ["PASSWORD"]',
        b'token = "${TOKEN}"',
        b'token: "{{ vault.token }}"',
        b"def check_secret(secret: str) -> bool:",
        b'digest = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"',
        b'id = "123e4567-e89b-12d3-a456-426614174000"',
        b"assert clamp(9, 0, 5) == 5",
        b"from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence",
        b"url = 'https://example.org/path'",
    ],
)
def test_ordinary_code_is_no_secret(scanner, line):
    assert rules(scanner, line + b"\n") == set()


@pytest.mark.parametrize(
    "text",
    ["a\u202eb", "a\u2066b", "\u200bx", "x\u2060y", "pay\u200cpal", "a\u00adb", "\U000e0041",
     "\u3164 = 1", "x\ufeff", "\x1b[31m", "a\x08b", "\x7f", "\u2028"],
)  # fmt: skip
def test_text_that_a_reader_cannot_see_is_found(scanner, text):
    assert rules(scanner, text.encode()) == {"hidden-text"}


@pytest.mark.parametrize("text", ["naïve café", "日本語", "می‌خواهم", "👩‍💻 ok", "\tindented\r", "form\x0cfeed", "→ ∀x"])
def test_text_of_the_world_is_not_hidden(scanner, text):
    assert rules(scanner, text.encode()) == set()


def test_scans_can_be_turned_off_by_the_operator(scanner):
    policy = Policy(secrets="allow", hidden_text="allow")
    assert rules(scanner, SECRETS[0] + b"\n\xe2\x80\xae", policy=policy) == set()


def test_findings_of_one_file_are_bounded(scanner):
    assert len(found(scanner, (SECRETS[0] + b"\n") * 500)) == MAX_PER_FILE


def test_a_secret_far_into_a_long_line_is_found(scanner):
    assert rules(scanner, b"x" * 5990 + b" " + SECRETS[0] + b" " + b"y" * 5000) == {"secret"}


@pytest.mark.parametrize(
    "part",
    [
        b"sk-",
        b"://",
        b"//",
        b"eyJ",
        b"://a:",
        b"secret=",
        b'"',
        b"a",
        b"password = '",
        b"secret\n",
        b"aws'",
        b"//T3BlbkFJ:_authToken= ",
    ],
)
def test_no_content_makes_the_scan_slow(scanner, part):
    began = time.process_time()
    found(scanner, (part * 140_000)[: 256 * 1024])
    assert time.process_time() - began < 4


def test_a_detector_is_only_left_out_where_it_could_find_nothing():
    for detector, needs in detectors():
        assert not needs or all(needs in pattern.pattern for pattern in detector.denylist)
    assert {type(detector).__name__ for detector, needs in detectors() if needs} == set(SIGNS)


@pytest.mark.slow
def test_what_is_not_looked_at_is_told(scanner):
    """The keyword detector alone takes half a second for 2,300 characters of `api_key`."""
    scan = scanner.begin(Policy())
    began = time.process_time()
    assert scan.look(Content("a.py", b"", (b"api_key" * 140_000)[: 256 * 1024])) == ()
    assert time.process_time() - began < 4
    assert [finding.rule for finding in scan.close()] == ["not-scanned"]
    scan = scanner.begin(Policy(max_total_bytes=1000))
    scan.look(Content("a.py", b"", b"x = 1\n" * 1000))
    assert [(finding.rule, finding.severity) for finding in scan.close()] == [("not-scanned", "block")]
    scan = scanner.begin(Policy())
    scan.look(Content("a.py", b"", b"password = get()\n" * 200))
    assert scan.close() == ()


@pytest.mark.parametrize("secret", SECRETS)
def test_a_secret_is_found_among_many_lines_and_among_many_keywords(scanner, secret):
    padding = b"value = compute(other)\n" * 300
    (one,) = found(scanner, padding + secret + b"\n" + padding)
    assert (one.rule, "line 301 " in one.message) == ("secret", True)
    assert "secret" in rules(scanner, b"password " * 60 + secret + b" password" * 60)


def test_moved_lines_are_not_added():
    assert list(added_lines(b"a\nb\n", b"b\na\n")) == []


def test_added_lines_carry_their_numbers():
    assert list(added_lines(b"a\nc\n", b"a\nb\nc\n")) == [(2, "b")]


def test_a_nul_byte_makes_a_binary():
    assert is_binary(b"a\0b")
    assert not is_binary(b"plain\n")
