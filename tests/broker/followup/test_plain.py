"""Foreign words: nothing hidden survives, and what is seen stays."""

from __future__ import annotations

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from broker.followup.plain import line, plain


def test_what_turns_hides_or_moves_is_gone() -> None:
    """Trojan Source, CVE-2021-42574; terminal escapes; tag characters as in CamoLeak."""
    assert plain("a\u202eb\u2066c\u200bd\x1b[2Je\x00f\U000e0041g\ufe0fh\u2028i\ue000j", 100) == "abcd[2Jefghij"


def test_words_in_any_script_and_their_lines_stay() -> None:
    assert plain("Größe\r\n\tΔ 漢字 👍\rend", 100) == "Größe\n\tΔ 漢字 👍\nend"


def test_a_cut_is_told() -> None:
    assert plain("x" * 50, 30).endswith("[cut here]")
    assert len(plain("x" * 50, 30)) == 30
    assert plain("\u200b" * 1000 + "hidden", 30).endswith("[cut here]")


def test_a_line_is_one_line() -> None:
    assert line("a\n\n b\tc\u2028d", 100) == "a b cd"


@given(st.text(max_size=300), st.integers(20, 200))
def test_no_text_gets_through_with_a_control_character(words: str, limit: int) -> None:
    found = plain(words, limit)
    assert len(found) <= limit
    assert not [char for char in found if char not in "\n\t" and unicodedata.category(char)[0] == "C"]
    assert plain(found, limit) == found
