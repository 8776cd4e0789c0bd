"""A file of an attempt carries no secret, and a file of a stranger's is refused before it can do anything."""

from __future__ import annotations

import base64
import gzip
import io
import json
import re
import tarfile
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from sandbox.types import MIB
from swarm.errors import ConfigError, ReplayError
from swarm.replay import bundle
from swarm.replay.record import Recording
from swarm.telemetry.redaction import Redactor
from swarm.types import Attempt, Budget, Step, Task, TaskRequest

SECRET = "s3cret-of-the-house/+x"
CAPABILITY = "swc1." + "A" * 60
GITHUB = "ghp_" + "a1B2" * 9
FORMS = [
    SECRET,
    base64.b64encode(b"user:" + SECRET.encode()).decode(),
    SECRET.encode().hex(),
    quote(SECRET, safe=""),
    GITHUB,
    base64.b64encode(b"token " + GITHUB.encode()).decode(),
    CAPABILITY,
]


def _step(seq: int, kind: str, **data: Any) -> Step:
    return Step(task="t1", attempt="t1-1-abcd", seq=seq, at=1.0, kind=kind, data=data)


def recorded(*steps: Step) -> Recording:
    request = TaskRequest(repository="demo", instructions="mend it", capability=CAPABILITY)
    return Recording(
        task=Task(id="t1", request=request, budget=Budget(), created=0.0),
        attempt=Attempt(id="t1-1-abcd", task="t1", number=1, tier="small", strategy="agent", started=0.0),
        base="1" * 40,
        sealed="2" * 40,
        steps=steps,
    )


def test_what_is_written_is_read_again_and_is_the_same_each_time(tmp_path: Path) -> None:
    one = recorded(_step(1, "note", text="a\u2028b\udcff".encode("utf-8", "replace").decode(), messages=[]))
    content = bundle.packed(one, b"PACK")
    assert content == bundle.packed(one, b"PACK")
    bundle.write(tmp_path / "a.tar.gz", content)
    assert bundle.read(tmp_path / "a.tar.gz") == (one, b"PACK")
    assert (tmp_path / "a.tar.gz").stat().st_mode & 0o777 == 0o600
    with pytest.raises(ConfigError, match="exists"):
        bundle.write(tmp_path / "a.tar.gz", content)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("place", ["text", "message", "key"])
def test_no_secret_leaves_in_any_form_or_place(form: str, place: str) -> None:
    data: dict[str, Any] = {"text": {"text": f"so: {form} !"}, "key": {"x": {f"k {form}": 1}}}.get(
        place,
        {"message": {"role": "user", "content": f"see {form}", "tool_calls": [{"arguments": f'{{"a": "{form}"}}'}]}},
    )
    clean = bundle.redacted(recorded(_step(1, "note", **data)), Redactor({SECRET, CAPABILITY}))
    content = gzip.decompress(bundle.packed(clean, b"")).decode("utf-8", "replace")
    assert form not in content
    assert json.dumps(form)[1:-1] not in content
    assert clean.struck >= 1


def test_the_capability_is_in_no_file_and_the_ids_of_objects_stay(tmp_path: Path) -> None:
    tree = "3" * 40
    clean = bundle.redacted(recorded(_step(1, "sealed", tree=tree)), Redactor())
    assert clean.task.request.capability == ""
    assert (clean.base, clean.sealed, clean.steps[0].data["tree"]) == ("1" * 40, "2" * 40, tree)


def _tar(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for info, content in members:
            info.size = len(content) if info.isreg() else 0
            archive.addfile(info, io.BytesIO(content))
    return gzip.compress(out.getvalue())


def _named(name: str, kind: bytes = tarfile.REGTYPE, to: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, to
    return info


def _good() -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(bundle.packed(recorded(), b"")), mode="r:gz") as archive:
        return {each.name: archive.extractfile(each).read() for each in archive}  # type: ignore[union-attr]


def _with(**parts: bytes | None) -> bytes:
    whole = {name.replace(".", "_"): (name, content) for name, content in _good().items()}
    for key, content in parts.items():
        name = whole[key][0]
        whole[key] = (name, content if content is not None else b"")
    return _tar(*((_named(name), content) for name, content in whole.values()))


def _bomb() -> bytes:
    info = _named("objects.pack")
    info.size = 5 * 2**30
    return gzip.compress(info.tobuf() + bytes(1_000_000))


def _deep() -> bytes:
    return _with(manifest_json=b'{"version": 1, "task": ' + b"[" * 100_000 + b"]" * 100_000 + b"}")


HOSTILE: dict[str, Callable[[], bytes]] = {
    "a path that climbs": lambda: _tar((_named("../manifest.json"), b"{}")),
    "an absolute path": lambda: _tar((_named("/etc/passwd"), b"x")),
    "a symbolic link": lambda: _tar((_named("journal.jsonl", tarfile.SYMTYPE, "/etc/shadow"), b"")),
    "a hard link": lambda: _tar((_named("objects.pack", tarfile.LNKTYPE, "manifest.json"), b"")),
    "a device": lambda: _tar((_named("manifest.json", tarfile.CHRTYPE), b"")),
    "a folder": lambda: _tar((_named("manifest.json", tarfile.DIRTYPE), b"")),
    "the same part twice": lambda: _tar((_named("manifest.json"), b"{}"), (_named("manifest.json"), b"{}")),
    "a size that is too large": _bomb,
    "no part at all": _tar,
    "no gzip": lambda: b"PK\x03\x04 and so on",
    "cut short": lambda: bundle.packed(recorded(), b"x" * 100_000)[:400],
    "nothing": lambda: b"",
    "another version": lambda: _with(manifest_json=_good()["manifest.json"].replace(b'"version": 1', b'"version": 2')),
    "a field that is none": lambda: _with(manifest_json=_good()["manifest.json"].replace(b'"base"', b'"exec"')),
    "a base that is an option": lambda: _with(
        manifest_json=_good()["manifest.json"].replace(b"1" * 40, b"--upload-pack=x")
    ),
    "a manifest without an end": _deep,
    "a journal of other lines": lambda: _with(journal_jsonl=b'{"a": 1}\n'),
    "a journal that is no JSON": lambda: _with(journal_jsonl=b"\xff\xfe\n"),
    "a list for a manifest": lambda: _with(manifest_json=b"[]"),
}


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_file_is_refused_in_words(tmp_path: Path, content: Callable[[], bytes]) -> None:
    path = tmp_path / "x.tar.gz"
    path.write_bytes(content())
    with pytest.raises(ReplayError) as refused:
        bundle.read(path)
    assert str(path) in str(refused.value)
    assert refused.value.mend
    assert sorted(each.name for each in tmp_path.iterdir()) == ["x.tar.gz"]


def _extended(kind: bytes) -> bytes:
    """A header that has its reader take in 256 MiB of a name."""
    info = _named("././@Long", kind)
    info.size = 256 * MIB
    return info.tobuf(tarfile.GNU_FORMAT) + b"a" * (4 * MIB)


def _part_of(name: str, size: int) -> bytes:
    info = _named(name)
    info.size = size
    return info.tobuf(tarfile.GNU_FORMAT)


BOMBS: dict[str, tuple[Callable[[], bytes], str]] = {
    "a long name": (lambda: _extended(tarfile.GNUTYPE_LONGNAME), "no part of a recorded attempt"),
    "a long link": (lambda: _extended(tarfile.GNUTYPE_LONGLINK), "no part of a recorded attempt"),
    "a pax header": (lambda: _extended(tarfile.XHDTYPE), "no part of a recorded attempt"),
    "a global pax header": (lambda: _extended(tarfile.XGLTYPE), "no part of a recorded attempt"),
    "a file with holes": (lambda: _extended(tarfile.GNUTYPE_SPARSE), "no part of a recorded attempt"),
    "a journal of 512 MiB": (lambda: _part_of("journal.jsonl", 512 * MIB), "536870912 bytes, more than"),
    "a size below zero": (lambda: _part_of("journal.jsonl", -512), "more than"),
    "a part that is cut short": (lambda: _part_of("journal.jsonl", 4 * MIB) + b"x", "cut short"),
    "values": (lambda: gzip.decompress(_with(journal_jsonl=b"[" + b"{}," * 2_000_001 + b"{}]")), "values in its JSON"),
    "a long line": (lambda: gzip.decompress(_with(past_jsonl=b"{}\n" + b" " * (9 * MIB))), "a line of its past.jsonl"),
    "lines": (lambda: gzip.decompress(_with(past_jsonl=b"1\n" * 200_001)), "more than 200000 lines"),
}


@pytest.mark.parametrize(("content", "words"), BOMBS.values(), ids=BOMBS.keys())
def test_a_bomb_is_refused_before_it_is_in_memory(tmp_path: Path, content: Callable[[], bytes], words: str) -> None:
    """300 KB of a file had its reader take a GiB for one extended header, 31 KB the same for JSON."""
    path = tmp_path / "x.tar.gz"
    path.write_bytes(gzip.compress(content(), 1))
    tracemalloc.start()
    try:
        with pytest.raises(ReplayError, match=re.escape(words)):
            bundle.read(path)
        assert tracemalloc.get_traced_memory()[1] < 40 * MIB
    finally:
        tracemalloc.stop()


def test_what_could_not_be_read_again_is_not_written() -> None:
    with pytest.raises(ReplayError, match="does not fit into a file: a line of its journal") as told:
        bundle.packed(recorded(_step(1, "note", text="x" * (9 * MIB))), b"")
    assert "swarm replay TASK" in told.value.mend


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(ReplayError, match="cannot be read"):
        bundle.read(tmp_path / "none.tar.gz")
