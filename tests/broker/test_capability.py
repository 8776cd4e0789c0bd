"""A holder can narrow a capability and do nothing else with it."""

from __future__ import annotations

import base64
import hmac
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretBytes

from broker.capability import VERBS, Caveat, Mint, Rights, narrow
from broker.errors import CapabilityError

MINT = Mint(SecretBytes(b"k" * 32))
RIGHTS = Rights(
    grant="0" * 32,
    repository="demo",
    base="main",
    base_commit="a" * 40,
    branch="swarm/t1",
    task="t1",
    uses=3,
    expires=1000.0,
    issue=7,
    reads=("docs", "lib"),
)
TOKEN = MINT.make(RIGHTS)


def check(token, verb="propose", now=0.0):
    return MINT.check(token, verb=verb, now=now)


def test_what_was_granted_comes_back():
    assert check(TOKEN) == RIGHTS


def test_another_key_takes_it_for_forged():
    with pytest.raises(CapabilityError, match="not made by this broker"):
        Mint(SecretBytes(b"j" * 32)).check(TOKEN, verb="propose", now=0)


def test_caveats_only_shrink():
    wider = narrow(TOKEN, Caveat(uses=99, expires=9e9))
    assert (check(wider).uses, check(wider).expires) == (3, 1000.0)
    smaller = narrow(narrow(TOKEN, Caveat(uses=1)), Caveat(uses=2, expires=5.0))
    assert (check(smaller).uses, check(smaller).expires) == (1, 5.0)


def test_verbs_shrink_to_what_all_caveats_allow():
    token = narrow(narrow(TOKEN, Caveat(verbs=("mirror", "propose"))), Caveat(verbs=("mirror", "explain")))
    assert check(token, "mirror").verbs == ("mirror",)
    for verb in ("propose", "explain"):
        with pytest.raises(CapabilityError, match="not good for"):
            check(token, verb)


def test_reads_shrink_to_what_all_caveats_allow():
    token = narrow(narrow(TOKEN, Caveat(reads=("lib", "secrets"))), Caveat(reads=("secrets", "lib", "docs")))
    assert check(token).reads == ("lib",)
    assert check(narrow(token, Caveat(reads=()))).reads == ()


def test_a_pinned_tree_cannot_be_pinned_again():
    token = narrow(narrow(TOKEN, Caveat(tree="1" * 40)), Caveat(tree="2" * 40))
    with pytest.raises(CapabilityError, match="two different values"):
        check(token)


def test_the_moment_of_expiry_is_too_late():
    assert check(TOKEN, now=999.9)
    with pytest.raises(CapabilityError, match="expired"):
        check(TOKEN, now=1000.0)


def test_a_caveat_cannot_be_taken_off():
    parts = narrow(TOKEN, Caveat(uses=1)).split(".")
    without = ".".join([*parts[:2], parts[-1]])
    with pytest.raises(CapabilityError, match="altered"):
        check(without)


def test_caveats_cannot_be_swapped_or_joined():
    one, two = narrow(TOKEN, Caveat(uses=1)).split("."), narrow(TOKEN, Caveat(uses=2)).split(".")
    for mixed in ([*one[:3], two[3]], [*one[:2], two[2], one[3]], [*one[:3], two[2], one[3]]):
        with pytest.raises(CapabilityError, match="altered"):
            check(".".join(mixed))


def test_rights_cannot_be_rewritten():
    parts = TOKEN.split(".")
    for field, value in {
        "uses": 99,
        "branch": "main",
        "repository": "other",
        "expires": 9e9,
        "base_commit": "b" * 40,
        "issue": 8,
        "reads": ["secrets"],
        "verbs": ["mirror", "merge"],
    }.items():
        block = json.loads(base64.urlsafe_b64decode(parts[1] + "=="))
        block[field] = value
        forged = base64.urlsafe_b64encode(json.dumps(block).encode()).decode().rstrip("=")
        with pytest.raises(CapabilityError, match="altered"):
            check(".".join([parts[0], forged, parts[2]]))


def test_a_caveat_that_is_not_known_is_refused_not_ignored():
    class Newer(Caveat):
        color: str = "red"

    with pytest.raises(CapabilityError, match="does not know"):
        check(narrow(TOKEN, Newer()))


def test_a_second_rights_block_is_no_caveat():
    blocks = TOKEN.split(".")
    fuller = narrow(TOKEN, Caveat()).split(".")
    assert check(".".join(fuller)) == RIGHTS
    fuller[2] = blocks[1]
    with pytest.raises(CapabilityError):
        check(".".join(fuller))


@pytest.mark.parametrize(
    "token",
    ["", ".", "swc2", "swc2..", "swc3" + TOKEN[4:], TOKEN + ".", TOKEN * 30, "swc2.ä.ö", "swc2.!!.??", TOKEN + "\n"],
)
def test_what_is_no_capability_is_refused(token):
    with pytest.raises(CapabilityError):
        check(token)


@given(st.integers(min_value=5, max_value=len(TOKEN) - 1), st.sampled_from("ABCxyz019-_."))
def test_no_changed_character_is_accepted(at, char):
    changed = TOKEN[:at] + char + TOKEN[at + 1 :]
    if changed == TOKEN:
        return
    try:
        rights = check(changed)
    except CapabilityError:
        return
    assert rights == RIGHTS  # the unused bits of a last base64 digit


def test_too_many_caveats_are_refused():
    token = TOKEN
    for _ in range(20):
        token = narrow(token, Caveat(uses=3)) if token.count(".") < 18 else token + ".e30"
    with pytest.raises(CapabilityError):
        check(token)


@pytest.mark.parametrize("token", ["swc1" + TOKEN[4:], "swc1.e30.AAAA", "swc1", "swc1." + "x" * 40])
def test_a_capability_of_an_earlier_version_is_told_apart_from_a_forged_one(token):
    with pytest.raises(CapabilityError, match="earlier version") as caught:
        check(token)
    assert "swarm-broker grant" in caught.value.mend


def test_rights_as_an_earlier_version_kept_them_still_load():
    kept = RIGHTS.model_dump(mode="json", exclude={"issue", "reads"}) | {"verbs": ["mirror", "propose", "explain"]}
    loaded = Rights.model_validate_json(json.dumps(kept))
    assert (loaded.issue, loaded.reads) == (None, ())


@pytest.mark.parametrize(
    "text", ['{"expires": NaN}', '{"expires": Infinity}', '{"uses": -1}', '{"uses": 1.5}', "[]", "null"]
)
def test_a_caveat_that_is_no_number_of_ours_is_refused(text):
    blocks = TOKEN.split(".")
    forged = [base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")]
    tail = base64.urlsafe_b64decode(blocks[-1] + "==")
    link = base64.urlsafe_b64encode(hmac.digest(tail, text.encode(), "sha256")).decode().rstrip("=")
    with pytest.raises(CapabilityError, match="does not know"):
        check(".".join([*blocks[:-1], *forged, link]))


names = st.sampled_from(["docs", "lib", "secrets", "demo"])
caveats = st.builds(
    Caveat,
    expires=st.none() | st.floats(allow_nan=False, allow_infinity=False, min_value=-1e12, max_value=1e12),
    uses=st.none() | st.integers(min_value=0, max_value=200),
    verbs=st.none() | st.lists(st.sampled_from(VERBS), max_size=6).map(tuple),
    reads=st.none() | st.lists(names, max_size=8).map(tuple),
    tree=st.none() | st.sampled_from(["1" * 40, "2" * 40]),
    proposal=st.none() | st.sampled_from(["p1", "p2"]),
)
BOUND = ("grant", "repository", "base", "base_commit", "branch", "task", "issue")


@given(st.lists(caveats, max_size=8), st.sampled_from(VERBS), st.floats(min_value=0, max_value=2000))
def test_whatever_caveats_are_appended_rights_never_grow(appended, verb, now):
    token, before = TOKEN, RIGHTS
    for caveat in appended:
        token = narrow(token, caveat)
        try:
            after = check(token, verb, now)
        except CapabilityError:
            continue
        assert all(getattr(after, name) == getattr(RIGHTS, name) for name in BOUND)
        assert after.expires <= before.expires
        assert after.uses <= before.uses
        assert set(after.verbs) <= set(before.verbs)
        assert set(after.reads) <= set(before.reads)
        for name in ("tree", "proposal"):
            assert getattr(before, name) in {None, getattr(after, name)}
        before = after


@given(st.lists(caveats, min_size=1, max_size=6), st.data())
def test_no_rearrangement_of_blocks_gives_what_a_holder_was_not_given(appended, data):
    token = TOKEN
    for caveat in appended:
        token = narrow(token, caveat)
    head, *blocks = token.split(".")
    picked = data.draw(st.lists(st.sampled_from(blocks), min_size=2, max_size=len(blocks) + 1))
    mixed = ".".join([head, *picked])
    if mixed == token:
        return
    with pytest.raises(CapabilityError):
        check(mixed, "mirror")
