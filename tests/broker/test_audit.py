"""The log can be added to and not changed."""

from __future__ import annotations

import json
import resource

import pytest

from broker.audit import Audit, verify
from broker.chain import GENESIS, digest
from broker.errors import AuditError, FencedError
from broker.person_wire import LogEntry


@pytest.fixture
def log(tmp_path):
    audit = Audit(tmp_path / "audit.log", clock=lambda: 5.0)
    for number in range(5):
        audit.append("event", n=number)
    audit.close()
    return tmp_path / "audit.log"


def rewrite(log, change):
    lines = log.read_text().splitlines()
    change(lines)
    log.write_text("".join(f"{line}\n" for line in lines))


def test_a_chain_starts_at_genesis_and_holds(log):
    first = json.loads(log.read_text().splitlines()[0])
    assert first["previous"] == GENESIS
    assert verify(log).number == 5


def test_it_goes_on_after_a_restart(log):
    audit = Audit(log)
    assert audit.append("more").number == 6
    audit.close()
    assert verify(log).number == 6


def edited(lines):
    lines[2] = lines[2].replace('"n":"2"', '"n":"7"')


def removed(lines):
    del lines[2]


def swapped(lines):
    lines[2], lines[3] = lines[3], lines[2]


def doubled(lines):
    lines.insert(2, lines[2])


def garbled(lines):
    lines[2] = "{}"


@pytest.mark.parametrize("change", [edited, removed, swapped, doubled, garbled])
def test_a_change_in_the_middle_is_found_at_its_line(log, change):
    rewrite(log, change)
    with pytest.raises(AuditError, match=r"line [34] "):
        Audit(log)


def test_lines_cut_from_the_end_are_missed(log):
    rewrite(log, lambda lines: lines.pop())
    with pytest.raises(AuditError, match="line 5 is missing; 5 lines were written"):
        Audit(log)


def test_a_last_line_without_its_end_is_missed(log):
    log.write_bytes(log.read_bytes()[:-1])
    with pytest.raises(AuditError, match="line 5 is missing"):
        Audit(log)


def test_a_rewritten_tail_with_good_hashes_is_found(log):
    def forge(lines):
        entry = LogEntry.model_validate_json(lines[4]).model_copy(update={"fields": {"n": "forged"}})
        lines[4] = entry.model_copy(update={"hash": digest(entry)}).model_dump_json()

    rewrite(log, forge)
    with pytest.raises(AuditError, match="line 5 is not the line that was written"):
        Audit(log)


def test_a_line_torn_by_a_power_cut_is_cut_off_and_told(log):
    with log.open("ab") as file:
        file.write(b'{"number":6,"at":5.0,"ev')
    audit = Audit(log)
    audit.close()
    last = json.loads(log.read_text().splitlines()[-1])
    assert (last["number"], last["event"], last["fields"]) == (6, "log-mended", {"bytes": "24"})


def test_an_empty_head_as_a_power_cut_may_leave_it_stops_no_start_and_is_told(log):
    log.with_suffix(".head").write_bytes(b"")
    again = Audit(log)
    assert [entry.event for entry in again.page(0)][-2:] == ["event", "log-mended"]
    again.close()
    assert verify(log).number == 6


def test_a_log_that_is_being_written_can_be_verified(log):
    with log.open("ab") as file:
        file.write(b'{"number":6,"at":5.0,"ev')
    assert verify(log).number == 5


def test_a_second_broker_on_the_same_log_fences_the_first_and_the_chain_stays_whole(log):
    first = Audit(log)
    second = Audit(log)
    assert second.append("mine").number == 6
    with pytest.raises(FencedError, match="another broker writes"):
        first.append("late")
    with pytest.raises(FencedError):
        first.append("later")
    assert second.append("on").number == 7
    first.close()
    second.close()
    assert verify(log).number == 7


def test_others_cannot_read_it(log):
    assert log.stat().st_mode & 0o077 == 0


def test_fields_are_bounded(tmp_path):
    audit = Audit(tmp_path / "audit.log")
    assert len(audit.append("x", text="y" * 100_000).fields["text"]) == 2000
    audit.close()


def test_fields_are_few_and_hold_neither_control_characters_nor_secrets(tmp_path):
    audit = Audit(tmp_path / "audit.log", redact=lambda text: text.replace("hunter2", "[secret]"))
    entry = audit.append("x\n", text="a\x1b[2J\u202eb hunter2", **{f"f{number}": number for number in range(100)})
    audit.close()
    assert entry.event == "x\\n"
    assert entry.fields["text"] == "a\\x1b[2J\\u202eb [secret]"
    assert len(entry.fields) == 32
    assert b"hunter2" not in (tmp_path / "audit.log").read_bytes()
    assert verify(tmp_path / "audit.log").number == 1


def test_a_secret_beyond_the_cut_is_struck_before_it_is_cut(tmp_path):
    audit = Audit(tmp_path / "audit.log", redact=lambda text: text.replace("s" * 40, ""))
    assert "s" not in audit.append("x", text="y" * 1990 + "s" * 40).fields["text"]
    audit.close()


def test_a_page_far_down_a_long_log_is_right_before_and_after_a_restart(tmp_path):
    for _start in range(2):
        audit = Audit(tmp_path / "audit.log")
        for number in range(600):
            audit.append("e", n=number)
        last = audit.last
        for after in (0, 1, 499, 500, 501, last - 3, last - 1, last, last + 5):
            numbers = [entry.number for entry in audit.page(after, limit=3)]
            assert numbers == list(range(after + 1, last + 1))[:3]
        audit.close()


def test_pages_follow_a_number(log):
    audit = Audit(log)
    assert [entry.number for entry in audit.page(after=3)] == [4, 5]
    assert [entry.number for entry in audit.page(after=0, limit=2)] == [1, 2]
    audit.close()


def test_a_line_that_a_full_disk_cut_off_leaves_no_trace(log):
    audit = Audit(log)
    _soft, hard = limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (log.stat().st_size + 20, hard))  # the kernel takes 20 bytes, no more
    try:
        with pytest.raises(OSError, match="File too large"):
            audit.append("cut")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert audit.append("whole").number == 6
    audit.close()
    assert verify(log).number == 6
    assert b'"cut"' not in log.read_bytes()
