"""`swarm transcript`: good to read, safe to print, of files and of what lies on this machine's disk."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from sandbox.trees.keeping import Keeping
from swarm.cli import app
from swarm.cli.exits import Code
from swarm.cli.transcript_view import Wish, shown
from swarm.salvage import entries
from swarm.salvage.entries import About
from swarm.transcripts import journal, lines
from swarm.transcripts.shape import Transcript
from tests.swarm.transcripts.conftest import HEADER, MINI_2, NATIVE, USAGE, asked, line, made

__all__ = ["made"]  # a fixture
HOSTILE = "\x1b]0;owned\x07\x1b[2J\u202eevil\r\x00"


@pytest.fixture
def file(tmp_path: Path, made: Transcript) -> Path:
    path = tmp_path / "a.jsonl"
    lines.write(path, made)
    return path


def run(*words: str | Path) -> int:
    return app.main(["transcript", *map(str, words)])


def read(told: Transcript, **wish: object) -> str:
    return "\n".join(text.plain for text in shown(told, Wish(**wish)))  # type: ignore[arg-type]


def test_view_tells_who_said_what_and_what_it_cost(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("view", file) == 0
    out = capsys.readouterr().out
    for words in (
        "agent-swarm 1",
        "tier small",
        "qwen · 100 (80 cached) → 20 tokens · 1.5 s",
        "┊ a sign?",
        "→ view path=a.py",
    ):
        assert words in out
    for words in ("← exit 2 · 0.2 s", "│ 1: a - b", "{broken", "sealed 1 changed file: a.py", "── finished: done"):
        assert words in out


def test_brief_is_one_line_a_step(file: Path, capsys: pytest.CaptureFixture[str], made: Transcript) -> None:
    assert run("view", file, "--brief") == 0
    told = [text for text in capsys.readouterr().out.splitlines() if text[4:5].isdigit()]
    assert len(told) == len(made.steps)
    assert any("view a.py" in text and "exit 2" in text for text in told)


def test_long_output_is_folded_and_shown_whole_where_it_is_asked_for() -> None:
    output = "\n".join(f"line {number}" for number in range(100))
    steps = [
        line(1, "model_call", **USAGE, message=asked("", ("c1", "shell", json.dumps({"script": output})))),
        line(2, "command", message={"role": "tool", "content": output, "tool_call_id": "c1"}),
    ]
    told = journal.transcript(HEADER, steps)
    folded = read(told)
    assert folded.count("84 lines more: --step 1") == 2
    assert "│ line 0" in folded
    assert "│ line 99" in folded
    assert "│ line 50" not in folded
    for whole in (read(told, full=True), read(told, steps=range(1, 2))):
        assert whole.count("line 50") == 2


def test_search_shows_the_steps_that_hold_it_wherever_it_stands(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in ("A SIGN", "a - b", "broken", "hurry"):
        assert run("view", file, "--search", words) == 0
        out, err = capsys.readouterr()
        assert words.lower() in out.lower()
        assert "no step" not in err
    assert run("view", file, "-s", "nowhere at all") == 0
    assert "no step holds 'nowhere at all'" in capsys.readouterr().err


@pytest.mark.parametrize(("words", "message"), [("99", "no step 99"), ("x", "is no step"), ("5-2", "no step 5-2")])
def test_step_that_is_not_there_is_told(
    file: Path, words: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("view", file, "--step", words) == Code.CONFIG
    assert message in capsys.readouterr().err


def test_hostile_text_steers_no_terminal_wherever_it_stands() -> None:
    steps = [
        line(1, "note", text=HOSTILE),
        line(
            2,
            "model_call",
            reasoning=HOSTILE,
            model=HOSTILE,
            message=asked(HOSTILE, (HOSTILE, HOSTILE, json.dumps({HOSTILE: HOSTILE}))),
        ),
        line(3, "command", exit_code=HOSTILE, message={"role": "tool", "content": HOSTILE, "tool_call_id": HOSTILE}),
        line(4, "output", text=HOSTILE),
        line(5, "model_call", message=asked("", ("c", "f", HOSTILE))),
    ]
    header = HEADER.model_copy(update={"title": HOSTILE, "task": HOSTILE, "strategy": HOSTILE})
    told = journal.transcript(header, steps, ending=HOSTILE, reason=HOSTILE)
    for text in (read(told), read(told, full=True), read(told, brief=True)):
        assert "evil" in text
        assert not set(text) & {"\x1b", "\x07", "\x00", "\r", "\u202e"}


def test_raw_lines_are_those_of_the_file(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("view", file, "--raw", "--step", "2") == 0
    out = capsys.readouterr().out.splitlines()
    assert [json.loads(each)["type"] for each in out] == ["header", "step"]
    assert out[1] in file.read_text()


def test_export_strikes_secrets_and_tells_how_many(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    key = "ghp_" + "a1B2" * 9
    told = journal.transcript(HEADER, [line(1, "output", text=f"{key} in /home/ann/x")])
    lines.write(tmp_path / "a.jsonl", told)
    for form, name in (("jsonl", "b.jsonl"), ("atif", "b.json"), ("messages", "c.json")):
        assert run("export", tmp_path / "a.jsonl", "-o", tmp_path / name, "--format", form, "--json") == 0
        facts = json.loads(capsys.readouterr().out)
        assert (facts["struck"], facts["paths"], facts["unknown_secrets"]) == (1, 1, [])
        assert key not in (tmp_path / name).read_text()
        assert "/home/ann" not in (tmp_path / name).read_text()
    assert run("validate", tmp_path / "b.jsonl") == 0
    assert run("validate", tmp_path / "b.json", "--from", "atif") == 0
    assert run("export", tmp_path / "a.jsonl", "-o", tmp_path / "b.jsonl") == Code.CONFIG
    assert "File exists" in capsys.readouterr().err
    assert run("export", tmp_path / "a.jsonl", "-o", tmp_path / "b.jsonl", "--force", "--keep-paths") == 0
    assert "/home/ann" in (tmp_path / "b.jsonl").read_text()
    assert run("export", tmp_path / "a.jsonl", "-o", "-", "--format", "messages") == 0


def test_export_strikes_the_secrets_that_the_settings_name_and_warns_of_those_that_are_not_to_be_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "swarm.toml"
    pool = '[[pool.endpoints]]\nname = "{0}"\nurl = "http://127.0.0.1:1"\ntier = "small"\napi_key_env = "KEY_OF_{0}"\n'
    config.write_text(pool.format("a") + pool.format("b"))
    monkeypatch.setenv("KEY_OF_a", "plain-words-are-a-key")
    monkeypatch.delenv("KEY_OF_b", raising=False)
    lines.write(tmp_path / "a.jsonl", journal.transcript(HEADER, [line(1, "output", text="plain-words-are-a-key")]))
    assert run("export", tmp_path / "a.jsonl", "-o", tmp_path / "b.jsonl", "--config", config) == 0
    assert "plain-words" not in (tmp_path / "b.jsonl").read_text()
    out = " ".join("".join(capsys.readouterr()).split())
    assert "WARNING: secrets that this user does not have were not looked for" in out
    assert "KEY_OF_b" in out


def test_file_is_never_named_by_what_another_says_of_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: Transcript
) -> None:
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    header = made.header.model_copy(update={"attempt": "../out", "task": "/tmp/x"})
    lines.write(folder / "a.jsonl", made.model_copy(update={"header": header}))
    assert run("export", "a.jsonl") == 0
    assert sorted(path.name for path in folder.iterdir()) == ["a.jsonl", "a.transcript.jsonl"]
    assert [path.name for path in tmp_path.iterdir()] == ["here"]


def test_trajectory_of_others_is_taken_and_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, out = tmp_path / "x.traj.json", tmp_path / "x.jsonl"
    source.write_text(json.dumps(MINI_2))
    assert run("import", source, "-o", out) == 0
    assert run("validate", out) == 0
    assert run("view", source) == run("view", out) == 0
    assert "→ bash command=ls" in capsys.readouterr().out
    assert run("import", source, "--from", "swe-agent", "-o", tmp_path / "y") == Code.CONFIG
    assert "does not look like what swe-agent writes" in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["view", "validate", "import", "export"])
def test_file_that_is_none_is_an_error_in_words(verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, content in (("a.jsonl", b"[" * 100_000), ("b.json", b"\x00"), ("missing.jsonl", None)):
        path = tmp_path / name
        if content is not None:
            path.write_bytes(content)
        assert run(verb, path) == Code.CONFIG
        assert "error: " in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir() if "transcript" in path.name] == []


@pytest.mark.parametrize(
    ("name", "content", "told", "mend"),
    [
        ("missing.jsonl", None, "missing.jsonl is not there", "see whether its name is right"),
        ("empty.jsonl", b" \n", "empty.jsonl is empty", "name a file that holds"),
        ("odd.json", b"{}", "odd.json: nothing that is read here looks like it", "--from"),
        ("folder.json", b"", "folder.json is a folder", "name a file in it"),
        ("bad.json", b"{,", "bad.json: it is no transcript and no JSON", "docs/transcripts.md"),
    ],
)
def test_what_is_wrong_with_a_file_is_told_with_its_name_and_a_mend_that_fits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, content: bytes | None, told: str, mend: str
) -> None:
    path = tmp_path / name
    if content:
        path.write_bytes(content)
    elif content is not None:
        path.mkdir()
    assert run("view", path) == Code.CONFIG
    said = " ".join(capsys.readouterr().err.split())
    assert told in said
    assert mend in said.partition("mend: ")[2]


def test_step_that_is_not_there_is_told_with_those_that_are(
    file: Path, capsys: pytest.CaptureFixture[str], made: Transcript
) -> None:
    assert run("view", file, "--step", "99") == Code.CONFIG
    said = " ".join(capsys.readouterr().err.split())
    assert "a.jsonl has no step 99" in said
    assert f"mend: its steps are 1 to {len(made.steps)}" in said


def test_file_whose_last_line_was_cut_off_is_shown_so_far_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], made: Transcript
) -> None:
    kept = "".join(each.model_dump_json() + "\n" for each in NATIVE)
    for name, text in (("journal.jsonl", kept), ("ours.jsonl", lines.dumps(made))):
        path = tmp_path / name
        path.write_text(text[:-20])
        assert run("view", path) == 0
        out = capsys.readouterr().out
        assert "→ view path=a.py" in out
        assert "cut off     the last line of the file was, and is left out" in out
        assert run("validate", path, "--from", "auto") == Code.CONFIG, "it is not whole"
        path.write_text(text[:200] + "\n" + text[-20:])
        assert run("view", path) == Code.CONFIG, "what is wrong further up was not cut off"
        capsys.readouterr()


def test_journal_is_no_transcript_but_one_can_be_made_of_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = tmp_path / "journal.jsonl", tmp_path / "out.jsonl"
    begun = line(1, "attempt", strategy="auto", tier="small", title="Mend add")
    report = line(99, "report", verdict="passed", reason="", ending="finished")
    path.write_text("".join(each.model_dump_json() + "\n" for each in (begun, *NATIVE[1:], report)))
    assert run("validate", path) == Code.CONFIG
    said = " ".join(capsys.readouterr().err.split())
    assert "journal.jsonl: it is a journal" in said
    assert "swarm transcript export" in said
    assert run("export", path, "-o", out) == run("validate", out) == 0
    assert "it has no end" not in capsys.readouterr().out
    told = lines.loads(out.read_bytes())
    assert told.end is not None
    assert (told.end.ending, told.header.strategy, told.header.title) == ("finished", "auto", "Mend add")


@pytest.mark.slow
async def test_task_is_shown_from_what_lies_beside_its_salvage_without_database(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    about = About(task="t1", attempt="t1-1-abcd", repository="demo", number=1, ended=2.0, ending="gave_up", last=10)
    keeping = Keeping(tmp_path / "git" / "demo.git")
    await keeping.create(sha256=False)
    files = {entries.ABOUT: about.model_dump_json().encode(), "journal/000000000001.jsonl": entries.part(NATIVE)}
    await keeping.append("refs/transcripts/t1-1-abcd", files, entries.words(about), anew=True)
    config = tmp_path / "swarm.toml"
    config.write_text(
        f'[daemon]\nstate = "{tmp_path}"\nsocket = "{tmp_path}/none.sock"\n'
        '[[pool.endpoints]]\nname = "box"\nurl = "http://127.0.0.1:1"\ntier = "small"\n'
    )
    assert await asyncio.to_thread(app.main, ["--config", str(config), "transcript", "view", "t1"]) == 0
    out = capsys.readouterr().out
    assert "→ view path=a.py" in out
    assert "── gave_up" in out
    words = ["--config", str(config), "transcript", "view", "t9"]
    assert await asyncio.to_thread(app.main, words) == Code.NOT_FOUND
