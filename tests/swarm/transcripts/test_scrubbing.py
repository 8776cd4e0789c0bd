"""What leaves the house: no secret in any field, no name in a path, and still a transcript."""

from __future__ import annotations

import base64
import json

import pytest

from swarm.telemetry.redaction import STRUCK, Redactor
from swarm.transcripts import atif, journal, lines
from swarm.transcripts.scrubbing import scrubbed
from swarm.transcripts.shape import Step, Transcript
from tests.swarm.transcripts.conftest import HEADER, asked, line

KNOWN = "correct-horse-battery"
LOOKS = "ghp_" + "a1B2" * 9


def told() -> Transcript:
    hidden = base64.b64encode(f"x{KNOWN}x".encode()).decode()
    secret = json.dumps({"command": f"curl -H 'Authorization: Bearer {LOOKS}' x", "password": "hunter2-hunter2"})
    steps = [
        line(1, "note", about="opening", native=True, messages=[{"role": "system", "content": f"key {KNOWN}"}]),
        line(2, "model_call", reasoning=f"it is {LOOKS}", model="m", message=asked(KNOWN, (LOOKS, "shell", secret))),
        line(3, "command", tool="shell", message={"role": "tool", "content": hidden, "tool_call_id": LOOKS}),
        line(4, "output", text="/home/ann/w /Users/Bob C:\\Users\\eve\\x ann@example.com /home/ann"),
    ]
    return journal.transcript(HEADER.model_copy(update={"title": KNOWN, "extra": {"token": "abc-def-ghi"}}), steps)


def test_no_secret_is_left_in_any_field_and_it_stays_a_transcript() -> None:
    clean = scrubbed(told(), Redactor([KNOWN]))
    text = lines.dumps(clean.transcript)
    for secret in (KNOWN, LOOKS, "hunter2", base64.b64encode(KNOWN.encode()).decode()[:20]):
        assert secret not in text
    assert lines.loads(text.encode()) == clean.transcript
    assert atif.document(clean.transcript)
    assert clean.secrets == text.count(STRUCK) >= 6


def test_result_stays_with_its_call_though_the_calls_id_was_struck() -> None:
    step = next(step for step in scrubbed(told(), Redactor([])).transcript.steps if step.source == "agent")
    assert step.observation is not None
    assert step.observation.results[0].source_call_id == step.tool_calls[0].tool_call_id == STRUCK


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (r"C:\Users\Bob Smith\x", r"C:\Users\user\x"),
        (r"C:\\Users\\Bob van der Smith\\x", r"C:\\Users\\user\\x"),
        (r"C:\Documents and Settings\Bob Smith\x", r"C:\Documents and Settings\user\x"),
        ("/Users/Bob Smith/x y/z", "/Users/user/x y/z"),
        (r"cd /Users/Bob\ Smith/x", "cd /Users/user/x"),
        ("'/Users/Bob Smith'", "'/Users/user'"),
        ("see /Users/bob and /etc/x", "see /Users/user and /etc/x"),
        ('"see /Users/bob for this"', '"see /Users/user for this"'),
        ("cp /home/ann src/x.py", "cp /home/user src/x.py"),
    ],
)
def test_a_name_with_blanks_in_it_goes_whole_and_what_stands_beside_it_stays(said: str, told: str) -> None:
    transcript = Transcript(header=HEADER, steps=(Step(step_id=1, source="agent", message=said),))
    assert scrubbed(transcript, Redactor()).transcript.steps[0].message == told


def test_names_in_homes_and_addresses_are_made_general_unless_they_are_to_stay() -> None:
    clean = scrubbed(told(), Redactor([]))
    words = clean.transcript.steps[-1].message
    assert words == "/home/user/w /Users/user C:\\Users\\user\\x someone@example.org /home/user"
    assert clean.paths == 5
    kept = scrubbed(told(), Redactor([]), paths=False)
    assert "/home/ann/w" in kept.transcript.steps[-1].message
    assert kept.paths == 0


def test_transcript_without_secrets_is_left_as_it_is(made: Transcript) -> None:
    clean = scrubbed(made, Redactor([KNOWN]))
    assert (clean.transcript, clean.secrets, clean.paths) == (made, 0, 0)
