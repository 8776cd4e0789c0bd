"""Pure judgement on made-up changes."""

from __future__ import annotations

import pytest

from broker.config.policy import Policy
from broker.judge.facts import Change
from broker.judge.policy import fingerprint, judge, matches

A, B = "a" * 40, "b" * 40


def change(path="src/a.py", old="100644", new="100644"):
    kind = "added" if old is None else "deleted" if new is None else "modified"
    return Change(path, kind, old, new, old and A, new and B)


def rules(changes, policy=None, sizes=None):
    return {finding.rule for finding in judge(changes, sizes or {}, policy or Policy())}


@pytest.mark.parametrize(
    ("path", "pattern", "covered"),
    [
        ("CODEOWNERS", "CODEOWNERS", True),
        ("docs/codeowners", "CODEOWNERS", True),
        (".github/workflows/x.yml", ".github", True),
        ("sub/.GitHub/x", ".github", True),
        ("notgithub/x", ".github", False),
        ("a/requirements-dev.txt", "requirements*.txt", True),
        ("src/api/x.py", "src/api", True),
        ("lib/src/api/x.py", "src/api", False),
        ("src/api.py", "src/api", False),
        (".idea/x", ".*/*", True),
        ("a/.idea/x", ".*/*", False),
        ("src/x.py", "/src/*", True),
        ("\uff23ODEOWNERS", "CODEOWNERS", True),
    ],
)
def test_patterns(path, pattern, covered):
    assert matches(path, pattern) is covered


def test_an_ordinary_change_passes():
    assert rules([change()], sizes={B: 100}) == set()


def test_removing_a_protected_file_is_refused():
    assert rules([change("pyproject.toml", new=None)]) == {"protected-path"}


@pytest.mark.parametrize(
    ("old", "new"), [(None, "120000"), ("100644", "120000"), ("120000", "100644"), ("120000", None)]
)
def test_a_link_may_not_come_change_or_go(old, new):
    assert rules([change(old=old, new=new)]) == {"symlink"}
    assert rules([change(old=old, new=new)], Policy(allow_symlinks=True)) == set()


def test_a_submodule_may_not_come():
    assert rules([change(old=None, new="160000")]) == {"submodule"}
    assert rules([change(old=None, new="160000")], Policy(allow_submodules=True)) == set()


def test_a_file_may_stay_but_not_become_executable():
    assert rules([change(old="100755", new="100755")]) == set()
    assert rules([change(old="100644", new="100755")]) == {"executable"}
    assert rules([change(old=None, new="100755")], Policy(allow_executables=True)) == set()


def test_every_limit_has_an_edge():
    policy = Policy(max_files=2, max_file_bytes=10, max_total_bytes=10)
    assert rules([change("a"), change("b", new=None)], policy, {B: 10}) == set()
    assert rules([change("a"), change("b"), change("c")], policy, {B: 1}) == {"too-many-files"}
    assert rules([change("a")], policy, {B: 11}) == {"file-too-large", "too-many-bytes"}


def test_nothing_changed_is_a_finding():
    assert rules([]) == {"no-change"}


def test_a_policys_fingerprint_follows_its_content():
    assert fingerprint(Policy()) == fingerprint(Policy())
    assert fingerprint(Policy()) != fingerprint(Policy(max_files=7))
