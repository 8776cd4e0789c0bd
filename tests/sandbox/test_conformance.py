"""The table of `make conformance`: what counts as kept, as failed and as not here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import conformance
from conformance import Column, cell, claims_of, gather, show, verdict


def told(folder: Path, *lines: tuple[str, str, str]) -> Path:
    path = folder / "told"
    rows = ({"backend": b, "claims": [c], "outcome": o, "test": "t", "why": ""} for b, c, o in lines)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_a_failed_attack_fails_the_claim_and_the_run(tmp_path: Path) -> None:
    columns = {
        "bwrap": Column(version="1", proved=("no ptrace",)),
        "docker": Column(version="2", proved=("no ptrace",)),
    }
    lines = [("bwrap", "no ptrace", "passed"), ("docker", "no ptrace", "passed"), ("docker", "no ptrace", "failed")]
    gather(columns, told(tmp_path, *lines, ("scripted", "no ptrace", "failed")))
    assert cell(columns["bwrap"], "no ptrace")[0] == "proved, 1 held"
    assert cell(columns["docker"], "no ptrace")[0] == "FAILS (1)"
    assert verdict(columns) == 1
    assert verdict({"bwrap": columns["bwrap"]}) == 0


def test_a_claim_that_the_self_test_misses_fails_though_all_attacks_held(tmp_path: Path) -> None:
    columns = {"bwrap": Column(version="1", failed=("no route out",))}
    gather(columns, told(tmp_path, ("bwrap", "no route out", "passed")))
    assert cell(columns["bwrap"], "no route out")[0] == "FAILS (self-test)"
    assert verdict(columns) == 1


def test_a_backend_on_which_nothing_ran_is_no_success(tmp_path: Path) -> None:
    columns = {"bwrap": Column(version="1", proved=("no ptrace",))}
    gather(columns, told(tmp_path, ("bwrap", "no ptrace", "skipped")))
    assert verdict(columns) == 1


def test_an_absent_backend_is_told_and_fails_only_where_it_must_be_here(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    columns = {"bwrap": Column(version="1"), "docker": Column(absent="no engine answers")}
    gather(columns, told(tmp_path, ("bwrap", "a claim of its own", "passed")))
    assert verdict(columns, no_skip=False) == 0
    assert verdict(columns, no_skip=True) == 1
    show(columns)
    out = capsys.readouterr().out
    assert "docker: not here: no engine answers" in out
    assert "a claim of its own" in out


def test_a_passed_test_of_the_self_test_stands_for_it_where_it_was_not_asked_from_here(tmp_path: Path) -> None:
    columns = {"bwrap-user": Column(version="1")}
    gather(columns, told(tmp_path, ("bwrap-user", conformance.PROVES_ALL, "passed")))
    assert cell(columns["bwrap-user"], "no ptrace")[0] == "proved"
    assert cell(columns["bwrap-user"], "really gVisor")[0] == "-"


def test_claims_come_in_the_order_of_the_self_test_and_new_ones_last(tmp_path: Path) -> None:
    columns = {"bwrap": Column(version="1", proved=("CPU limited", "no capability"))}
    gather(columns, told(tmp_path, ("bwrap", "zebra", "passed")))
    assert claims_of(columns) == ["no capability", "CPU limited", "zebra"]


def test_every_backend_of_the_contract_suite_has_a_column() -> None:
    source = (conformance.ROOT / "tests/contract/conftest.py").read_text()
    named = {line.split('"')[1] for line in source.splitlines() if line.strip().startswith("pytest.param(")}
    assert named <= set(conformance.NAMES)


@pytest.mark.parametrize("text", [None, "nonsense\n", '{"backend": "bwrap"}\n', "[]\n", "\x00\xff\n"])
def test_a_file_of_results_that_is_none_is_refused_in_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str | None
) -> None:
    path = tmp_path / "told"
    if text is not None:
        path.write_text(text, "latin-1")
    with pytest.raises(SystemExit) as end:
        conformance.main(["--from", str(path)])
    assert end.value.code == 2
    assert str(path) in capsys.readouterr().err


def test_a_last_line_that_was_cut_does_not_count(tmp_path: Path) -> None:
    path = told(tmp_path, ("bwrap", "no ptrace", "passed"), ("bwrap", "no ptrace", "failed"))
    whole = path.read_text()
    path.write_text(whole[:-20])
    assert len(conformance.lines_of(path)) == 1
    path.write_text(whole[:-1])
    assert len(conformance.lines_of(path)) == 2
