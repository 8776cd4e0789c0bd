"""Pure judgement on made-up changes."""

from __future__ import annotations

import time
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.config.policy import Policy
from broker.judge.facts import Change
from broker.judge.policy import fingerprint, judge, matches, may_aim_at, permits

A, B = "a" * 40, "b" * 40


def change(path="src/a.py", old="100644", new="100644"):
    kind = "added" if old is None else "deleted" if new is None else "modified"
    return Change(path, kind, old, new, old and A, new and B)


def found(changes, policy=None, sizes=None):
    return {finding.rule: finding.severity for finding in judge(changes, sizes or {}, policy or Policy())}


def rules(changes, policy=None, sizes=None):
    return set(found(changes, policy, sizes))


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
        ("src/api/v1/x.py", "src/api/", True),
        ("lib/src/api/x.py", "src/api", False),
        ("lib/src/api/x.py", "**/src/api", True),
        ("src/api/x.py", "**/src/api", True),
        ("src/api.py", "src/api", False),
        (".idea/x", ".*/*", True),
        (".idea/a/b", ".*/*", True),
        ("a/.idea/x", ".*/*", False),
        ("src/x.py", "/src/*", True),
        ("src/a/x.sql", "src/**/*.sql", True),
        ("src/x.sql", "src/**/*.sql", True),
        ("src/a/b/x.sql", "src/*.sql", False),
        ("a/b/c", "**", True),
        ("a/b/c", "a/**", True),
        ("a", "a/**", True),
        ("ab/c", "a/**", False),
        ("\uff23ODEOWNERS", "CODEOWNERS", True),
        ("\uff0egithub\uff0fworkflows", ".github", True),
    ],
)
def test_patterns(path, pattern, covered):
    assert matches(path, pattern) is covered


@pytest.mark.parametrize(
    ("path", "pattern"),
    [
        ("SRC/x.py", "src"),
        ("src/X.PY", "src/*.py"),
        ("src\uff0fx.py", "src/*"),
        ("\uff53rc/x.py", "src"),
        ("docs/a/x.md", "docs/*.md"),
    ],
)
def test_what_only_looks_like_an_allowed_path_is_not_allowed(path, pattern):
    assert not permits(path, pattern)
    assert rules([change(path)], Policy(allowed_paths=(pattern,), protected_paths=())) == {"path-not-allowed"}


@pytest.mark.parametrize("path", ["src/x.py", "src/a/b.py"])
def test_what_an_allowed_folder_holds_is_allowed(path):
    assert rules([change(path)], Policy(allowed_paths=("src",))) == set()
    assert rules([change(path)], Policy(allowed_paths=("src/**/*.py",))) == set()


def test_a_pattern_of_many_stars_takes_no_time():
    started = time.thread_time()
    assert not matches("/".join("a" * 60), "/".join(["**", "a"] * 50 + ["b"]))
    assert time.thread_time() - started < 0.5


@given(st.text(alphabet=st.characters(codec="utf-8", exclude_characters="/\0"), min_size=1, max_size=6))
def test_no_spelling_that_folds_to_a_protected_name_gets_past(noise):
    folded = unicodedata.normalize("NFKC", noise).casefold()
    if folded == unicodedata.normalize("NFKC", folded).casefold() and not set(folded) & set("*?[]"):
        assert matches(f"{noise}/x", folded) or "/" in folded


def test_an_ordinary_change_passes():
    assert rules([change()], sizes={B: 100}) == set()


def test_removing_a_protected_file_is_refused():
    assert found([change("pyproject.toml", new=None)]) == {"protected-path": "block"}


@pytest.mark.parametrize(
    ("reaction", "expected"),
    [
        ("block", {"protected-path": "block"}),
        ("ask", {"protected-path": "ask"}),
        ("warn", {"protected-path": "warn"}),
        ("allow", {}),
    ],
)
def test_the_reaction_to_protected_files_is_a_setting(reaction, expected):
    assert found([change("go.mod")], Policy(protected=reaction)) == expected


@pytest.mark.parametrize(
    "path",
    [
        ".github/workflows/ci.yml", ".GITHUB/Workflows/ci.yml", ".gitlab-ci.yml", "ci/build.gitlab-ci.yml",
        ".gitea/workflows/x", ".forgejo/workflows/x", ".circleci/config.yml", "Jenkinsfile", "sub/Jenkinsfile.release",
        ".travis.yml", ".woodpecker.yaml", "tools/act/action.yml", ".github/actions/setup/action.yml",
        "azure-pipelines-nightly.yml", ".\uff47ithub/workflows/ci.yml",
    ],
)  # fmt: skip
def test_no_setting_but_allow_workflows_lets_a_file_of_the_ci_change(path):
    lax = Policy(protected="allow", protected_paths=(), allowed_paths=("**",), watched="allow")
    assert found([change(path)], lax).get("workflow") == "fatal"
    assert found([change(path, new=None)], lax).get("workflow") == "fatal"
    open_to_it = lax.model_copy(update={"allow_workflows": True, "allowed_paths": ()})
    assert found([change(path)], open_to_it) == {}


def test_allow_workflows_leaves_them_to_the_other_rules():
    assert found([change(".github/workflows/ci.yml")], Policy(allow_workflows=True)) == {"protected-path": "block"}


@pytest.mark.parametrize(
    "path", ["README.md", "docs/readme.rst", "Dockerfile.dev", "Makefile", "LICENCE", "conftest.py"]
)
def test_what_deserves_a_second_look_is_told_and_passes(path):
    assert found([change(path)]) == {"watched-path": "warn"}
    assert found([change(path)], Policy(watched="ask")) == {"watched-path": "ask"}


def test_an_excluded_path_is_refused_even_where_it_is_allowed():
    policy = Policy(allowed_paths=("src",), excluded_paths=("src/generated",))
    assert rules([change("src/a.py")], policy) == set()
    assert found([change("src/generated/a.py")], policy) == {"path-excluded": "block"}
    assert found([change("SRC/Generated/a.py")], policy) == {"path-excluded": "block"}
    assert found([change("lib/a.py")], policy) == {"path-not-allowed": "block"}


def test_all_that_is_wrong_with_one_file_is_said_at_once():
    policy = Policy(allowed_paths=("src",), max_file_bytes=1)
    assert rules([change(".github/workflows/x", "100644", "100755")], policy, {B: 9}) == {
        "workflow", "protected-path", "path-not-allowed", "executable", "file-too-large",
    }  # fmt: skip


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


def test_nothing_changed_never_passes():
    assert found([]) == {"no-change": "fatal"}


@pytest.mark.parametrize(
    ("base", "allowed"),
    [
        ("main", True),
        ("release/1.0", True),
        ("release/1.0/hot", False),
        ("Release/1.0", False),
        ("releases/1.0", False),
        ("develop", False),
    ],
)
def test_only_named_branches_are_aimed_at(base, allowed):
    assert may_aim_at(base, "main", Policy(bases=("release/*",))) is allowed
    assert may_aim_at(base, "main", Policy()) is (base == "main")


def test_a_policys_fingerprint_follows_its_content():
    assert fingerprint(Policy()) == fingerprint(Policy())
    assert fingerprint(Policy()) != fingerprint(Policy(max_files=7))


@pytest.mark.parametrize("path", ["a/Makefile", "x/y.lock", "docs/a/b.md", "src/main.py", "A\uff0fB/c", "a/b\uff0fc"])
@pytest.mark.parametrize("pattern", ["makefile", "*.lock", "docs/**", "src/*", "a\uff0fb", "b/c", "**", "*"])
def test_many_patterns_at_once_say_what_each_says_alone(path, pattern):
    policy = Policy(protected_paths=("nothing.here", pattern, "nor/there"), workflow_paths=(), watched_paths=())
    change = Change(path, "modified", "100644", "100644", "a" * 40, "b" * 40)
    rules = {finding.rule for finding in judge([change], {}, policy)}
    assert ("protected-path" in rules) == matches(path, pattern)
