"""A pack read ahead of git: bombs, lies about sizes and hidden kinds are refused at once; honest packs pass."""

from __future__ import annotations

import os
import random
import time
import tracemalloc
import zlib

import pytest

from broker.config.policy import Policy
from broker.judge.crafted import Crafted, blob, commit, entry, pack, sealed, tree
from broker.judge.packing import Room, room_for, survey

ROOM = Room(objects=1000, one=1 << 20, all=4 << 20)
FILE = blob(b"x" * 100)


def rule(data, room=ROOM):
    found = survey(data, room, 20)
    assert found is None or found.severity == "fatal"
    return found.rule if found else None


def raw(*entries, count=None):
    body = b"PACK\0\0\0\2" + (len(entries) if count is None else count).to_bytes(4, "big") + b"".join(entries)
    return sealed(body)


def delta(source, result, kind=6, back=b"\x70"):
    """A delta that says it makes ``result`` bytes of ``source``; its base stands ``back`` bytes before."""
    said = b"".join(bytes([*(n >> 7 * at & 127 | 128 for at in range(5)), n >> 35]) for n in (source, result))
    return entry(kind, len(said)) + back + zlib.compress(said)


def test_a_pack_that_git_made_passes_deltas_and_all(agent):
    text = "".join(f"line {n}\n" for n in range(3000))
    old = agent.tree(None, {"a.txt": text.encode()})
    new = agent.tree(None, {"a.txt": text.replace("line 77\n", "changed\n").encode(), "b.bin": os.urandom(9000)})
    objects = agent.git("rev-list", "--objects", "--no-object-names", old, new).split()
    assert rule(agent.pack_of(*objects)) is None


def test_an_empty_pack_passes():
    assert rule(raw()) is None


@pytest.mark.parametrize("hidden", [commit(FILE.oid), Crafted("tag", b"object x\n")])
def test_a_commit_or_tag_is_refused_and_not_dropped(hidden):
    assert rule(pack([FILE, hidden])) == "hidden-object"


@pytest.mark.parametrize(
    "data",
    [
        b"", b"PACK", b"garbage" * 9, b"\0" * 100, pack([FILE])[:-30], pack([FILE])[:15], pack([FILE]) + b"more",
        b"PACK\0\0\0\2\xff\xff\xff\xff" + b"\0" * 64, raw(entry(5, 3) + zlib.compress(b"abc")),
        raw(entry(0, 3) + zlib.compress(b"abc")), raw(entry(3, 3) + b"not zlib at all"), raw(count=1),
        raw(b"\xff" * 40), raw(entry(3, 3) + zlib.compress(b"abc"), b"rest"),
        raw(delta(5, 5)), raw(delta(5, 5, back=b"\xff" * 30)), raw(entry(6, 0) + b"\x70" + zlib.compress(b"")),
    ],
)  # fmt: skip
def test_what_is_no_pack_is_refused(data):
    assert rule(data) == "pack-rejected"


@pytest.mark.parametrize("said", [0, 2, 4, 1000])
def test_an_object_of_another_size_than_declared_is_refused(said):
    assert rule(raw(entry(3, said) + zlib.compress(b"abc"))) == "pack-rejected"


def test_a_blob_bomb_costs_neither_time_nor_memory():
    bomb = pack([blob(bytes(128 << 20))])
    tracemalloc.start()
    began = time.process_time()
    assert rule(bomb, room_for(Policy())) == "pack-too-large"
    assert time.process_time() - began < 0.2
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()


def test_many_bombs_that_fit_one_by_one_are_refused_together():
    assert rule(pack([blob(bytes(900_000) + bytes([n])) for n in range(5)])) == "pack-too-large"


def test_a_delta_that_grows_is_refused_by_its_result():
    base = entry(3, 3) + zlib.compress(b"abc")
    assert rule(raw(base, delta(3, 1 << 30, back=bytes([len(base)])))) == "pack-too-large"


def test_a_delta_named_by_id_is_counted_by_its_result_too():
    assert rule(raw(delta(3, 1 << 30, kind=7, back=b"\x11" * 20))) == "pack-too-large"


def test_many_tiny_objects_are_refused_by_their_number():
    assert rule(pack([blob(b"%d" % n) for n in range(1001)])) == "pack-too-large"


def test_a_bomb_hidden_behind_a_small_size_is_not_inflated():
    bomb = raw(entry(3, 10) + zlib.compress(bytes(64 << 20), 9))
    began = time.process_time()
    assert rule(bomb) == "pack-rejected"
    assert time.process_time() - began < 0.1


def test_no_bytes_make_it_raise_or_hang():
    rng = random.Random(4)  # noqa: S311 - broken bytes, no secret
    honest = pack([FILE, tree(("100644", b"a", FILE.oid)), blob(os.urandom(500)), blob(b"")])
    began = time.process_time()
    for _ in range(2000):
        broken = bytearray(honest)
        for _ in range(rng.randint(1, 6)):
            broken[rng.randrange(len(broken))] = rng.randrange(256)
        cut = rng.choice([len(broken), rng.randrange(len(broken))])
        survey(bytes(broken[:cut]), ROOM, 20)
    assert time.process_time() - began < 5


def test_the_room_leaves_the_policy_its_own_word():
    policy = Policy()
    room = room_for(policy)
    assert room.objects > policy.max_files
    assert room.one > policy.max_file_bytes
    assert room.all > policy.max_total_bytes
