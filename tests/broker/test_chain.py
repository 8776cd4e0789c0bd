"""A part of the log is whole if every line follows from the one before; where it begins is named, not trusted."""

from __future__ import annotations

import pytest

from broker.audit import Audit
from broker.chain import GENESIS, Head, verify_part
from broker.errors import AuditError


@pytest.fixture
def lines(tmp_path):
    audit = Audit(tmp_path / "audit.log", clock=lambda: 5.0)
    for number in range(6):
        audit.append("event", n=number)
    audit.close()
    return (tmp_path / "audit.log").read_bytes().splitlines(keepends=True)


def test_a_part_says_what_it_follows_and_where_it_ends(lines):
    whole = verify_part(lines, "x")
    assert whole[0] == Head(0, GENESIS)
    before, last = verify_part(lines[2:5], "x")
    assert (before.number, last.number) == (2, 5)
    assert verify_part(lines[:2], "x")[1] == before
    assert verify_part([], "x") == (Head(), Head())


@pytest.mark.parametrize(
    "change",
    [
        lambda lines: lines[:2] + lines[3:],
        lambda lines: lines[::-1],
        lambda lines: [*lines[:1], lines[1].replace(b'"n":"1"', b'"n":"9"'), *lines[2:]],
        lambda lines: [*lines[:3], b"{}\n"],
        lambda lines: [b"null\n"],
        lambda lines: [lines[0].replace(GENESIS.encode(), b"1" * 64)],
        lambda lines: [*lines, lines[-1]],
    ],
)
def test_a_part_that_was_touched_is_told_with_its_line(lines, change):
    with pytest.raises(AuditError, match=r"export: line \d "):
        verify_part(change(lines), "export")
