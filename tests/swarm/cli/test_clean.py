"""Foreign text cannot steer the terminal that it is printed on."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarm.cli.clean import clean, one_line


@pytest.mark.parametrize(
    ("hostile", "plain"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b[2J\x1b[1;1Hhome", "home"),
        ("\x1b]0;title\x07text", "text"),
        ("\x1b]8;;http://evil\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1b]52;c;ZXZpbA==\x07", ""),
        ("\x9b31mred", "red"),
        ("\x1bPq#0\x1b\\after", "after"),
        ("\x1bcreset", "reset"),
        ("a\rb\x08c\x00d\x07", "abcd"),
        ("\u202egnp.exe", "gnp.exe"),
        ("pass\u200bword\ufeff", "password"),
        ("tag\U000e0041\U000e0042", "tag"),
        ("line\r\nnext\ttab", "line\nnext\ttab"),
        ("\ud800", "\ufffd"),
        ("ünï → 漢字 🙂", "ünï → 漢字 🙂"),
    ],
)
def test_what_steers_goes_and_what_reads_stays(hostile: str, plain: str) -> None:
    assert clean(hostile) == plain


@settings(deadline=None)
@given(st.text(alphabet=st.characters(codec=None)))
def test_no_text_leaves_a_control_character(text: str) -> None:
    cleaned = clean(text)
    assert not [c for c in cleaned if (ord(c) < 32 and c not in "\n\t") or 127 <= ord(c) < 160]
    assert clean(cleaned) == cleaned
    cleaned.encode("utf-8")


@settings(deadline=None)
@given(st.text(), st.integers(min_value=1, max_value=50))
def test_one_line_is_one_line(text: str, width: int) -> None:
    line = one_line(text, width)
    assert "\n" not in line
    assert len(line) <= width
