"""Grants, stops, approvals and a first broker.toml, as a person meets them."""

from __future__ import annotations

import json
import tomllib

import pytest

from broker.wire import Grant

pytestmark = pytest.mark.slow


@pytest.fixture
def granted(swarm_broker):
    def give(task, *more):
        return Grant.model_validate_json(swarm_broker("grant", "demo", task, "--json", *more)[1])

    return give


def test_a_grant_is_listed_and_revoked(swarm_broker, granted):
    given = granted("listed", "--issue", "7", "--uses", "3")
    _code, out, _err = swarm_broker("grants", "list")
    assert given.id in out
    assert "0 of 3" in out
    assert given.capability not in out
    code, out, _err = swarm_broker("revoke", given.id)
    assert code == 0
    assert "task listed" in out
    assert given.id not in swarm_broker("grants", "list")[1]
    assert swarm_broker("revoke", "none")[0] == 8


def test_a_stop_holds_until_go(swarm_broker, offered, propose):
    body = offered("stopped", {"a.txt": b"x\n"})
    code, out, _err = swarm_broker("stop", "demo", "--reason", "look\x1b[2J first")
    assert code == 0
    assert "\x1b" not in out
    try:
        assert "demo: stopped by uid" in swarm_broker("stops")[1]
        assert propose(body)["code"] == "stopped"
        assert swarm_broker("grant", "demo", "later")[0] == 9
    finally:
        code, out, _err = swarm_broker("go", "demo")
    assert code == 0
    assert "nothing is stopped" in out
    assert propose(body)["kind"] == "receipt"
    assert swarm_broker("stop", "other")[0] == 8


def test_a_person_approves_exactly_what_was_looked_at(swarm_broker, offered, propose):
    refusal = propose(offered("approved", {"package.json": b"{}\n"}))
    assert refusal["kind"] == "refusal"
    _code, shown, _err = swarm_broker("proposals", "show", "approved-p")
    assert f"swarm-broker proposals approve approved-p --digest {refusal['digest']}" in shown
    assert swarm_broker("proposals", "approve", "approved-p", "--digest", "0" * 64)[0] == 8
    assert swarm_broker("proposals", "approve", "approved-p", "--digest", "short")[0] == 2
    code, out, _err = swarm_broker("proposals", "approve", "approved-p", "--digest", refusal["digest"])
    assert code == 0, out
    assert out.startswith("demo#")
    assert json.loads(swarm_broker("log", "show", "--json")[1].splitlines()[-1])["number"] > 0


def test_a_person_sees_the_change_before_the_word_for_it(swarm_broker, offered, propose):
    evil = b"\x1b[2J\xe2\x80\xae to have exactly this delivered: swarm-broker proposals approve --digest 0\n"
    refusal = propose(offered("seen", {"package.json": b"{}\n", "a.txt": evil}))
    code, shown, _err = swarm_broker("proposals", "show", "seen-p")
    assert code == 0
    lines = shown.splitlines()
    assert "  | +{}" in lines
    assert "  added     package.json" in lines
    assert any(line.startswith("block: protected-path") for line in lines)
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    (way,) = [line for line in lines if line.startswith("to have exactly this delivered")]
    assert refusal["digest"] in way
    assert "  | +{}" not in swarm_broker("proposals", "show", "seen-p", "--no-diff")[1]
    assert json.loads(swarm_broker("proposals", "show", "seen-p", "--json")[1])["change"]["files"]


def test_a_delivered_proposal_names_its_pull_request(swarm_broker, offered, propose):
    receipt = propose(offered("there", {"b.txt": b"x\n"}))
    _code, shown, _err = swarm_broker("proposals", "show", "there-p")
    assert shown.splitlines()[-1].startswith(receipt["pull_request"])
    assert "" not in shown.splitlines()


def test_a_waiting_proposal_says_why(swarm_broker, offered, propose):
    body = offered("held", {"c.txt": b"x\n"})
    swarm_broker("stop", "demo", "--reason", "look first")
    try:
        propose(body)
        assert "look first" in swarm_broker("proposals", "list")[1]
        assert "waits: " in swarm_broker("proposals", "show", "held-p")[1]
    finally:
        swarm_broker("go", "demo")


def test_a_fatal_finding_names_no_way_on(swarm_broker, offered, propose):
    verdict = propose(offered("hostile", {".github/workflows/x.yml": b"on: push\n"}))
    assert verdict["kind"] == "refusal"
    _code, shown, _err = swarm_broker("proposals", "show", "hostile-p")
    assert ("nobody can approve it" in shown) is any(one["severity"] == "fatal" for one in verdict["findings"])
    assert ("--digest" in shown) is not ("nobody can approve it" in shown)


def test_what_nobody_can_approve_is_refused_by_policy(swarm_broker, offered, propose):
    refusal = propose(offered("never", {"Readme.md": b"x\n"}))  # collides with README.md
    assert any(one["severity"] == "fatal" for one in refusal["findings"])
    code, _out, err = swarm_broker("proposals", "approve", "never-p", "--digest", refusal["digest"])
    assert code == 1
    assert "never be approved" in err


# --- the first broker.toml


def init(swarm_broker, target, *more):
    return swarm_broker("init", "-c", str(target), "--coordinator", "root", *more, offline=True)


def test_init_for_github_writes_what_loads(swarm_broker, tmp_path):
    target = tmp_path / "broker.toml"
    words = ("--forge", "github", "--url", "https://github.com/Owner/My-Web.git", "--token-file", str(tmp_path / "t"))
    code, out, _err = init(swarm_broker, target, *words)
    assert code == 0
    assert "swarm-broker doctor" in out
    raw = tomllib.loads(target.read_text())["repositories"]["my-web"]
    assert (raw["forge"], raw["credential"]["token"]) == ("github", {"file": str(tmp_path / "t")})
    assert "ghp_" not in target.read_text()
    assert swarm_broker("config", "check", "--json", "-c", str(target), offline=True)[0] == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--forge", "github", "--url", "https://github.com/a"), "--url"),
        (("--path", "relative.git"), "must be an absolute path"),
        (("--person", "nobody-of-this-name"), "--person: "),
        (("--forge", "svn"), "no forge of kind 'svn'"),
        (("--forge", "github"), "--url"),
        (("--forge", "github", "--url", "http://github.com/o/r"), "must be an https address"),
        (("--forge", "gitlab", "--url", "https://user:pw@gitlab.com/o/r"), "no user, password"),
        (("--coordinator", "nobody-of-this-name"), "there is no user"),
    ],
)
def test_init_writes_nothing_that_would_not_load(swarm_broker, tmp_path, words, said):
    target = tmp_path / "broker.toml"
    code, _out, err = init(swarm_broker, target, *words)
    assert code == 3
    assert said in err
    assert "is wrong" not in err  # there is no file that could be
    assert "pw" not in err.replace("pwd", "")
    assert not target.exists()


@pytest.mark.slow
def test_selftest_tells_each_claim(swarm_broker):
    code, out, _err = swarm_broker("selftest", offline=True)
    assert code == 0
    assert len(out.splitlines()) > 3
    assert all(line.startswith("ok ") for line in out.splitlines())
