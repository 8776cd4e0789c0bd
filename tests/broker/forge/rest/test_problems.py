"""Every shape of a forge's refusal becomes one reason with a mend, on one clean line."""

from __future__ import annotations

import json
import time

import pytest

from broker.forge.rest.problems import Reason, clean, of_push, read, said

DOCS = "https://docs.github.com/rest"


def github(message: str, *errors: object) -> bytes:
    return json.dumps({"message": message, "errors": list(errors), "documentation_url": DOCS}).encode()


CASES = {
    "github: bad token": (401, github("Bad credentials"), Reason.TOKEN),
    "github: hidden or absent": (404, github("Not Found"), Reason.ABSENT),
    "github: an App without the permission": (403, github("Resource not accessible by integration"), Reason.SCOPE),
    "github: a fine-grained token without it": (
        403,
        github("Resource not accessible by personal access token"),
        Reason.SCOPE,
    ),
    "github: archived": (403, github("Repository was archived so is read-only."), Reason.ARCHIVED),
    "github: blocked": (422, github("Validation Failed", {"message": "user is blocked"}), Reason.BLOCKED),
    "github: suspended": (403, github("Sorry. Your account was suspended."), Reason.BLOCKED),
    "github: single sign-on": (
        403,
        github("Resource protected by organization SAML enforcement. You must grant your token access."),
        Reason.SSO,
    ),
    "github: duplicate": (
        422,
        github("Validation Failed", {"code": "custom", "message": "A pull request already exists for o:b."}),
        Reason.DUPLICATE,
    ),
    "github: no difference": (
        422,
        github("Validation Failed", {"code": "custom", "message": "No commits between main and b"}),
        Reason.NO_DIFF,
    ),
    "github: bad head": (
        422,
        github("Validation Failed", {"resource": "PullRequest", "field": "head", "code": "invalid"}),
        Reason.BRANCH,
    ),
    "github: bad base": (
        422,
        github("Validation Failed", {"resource": "PullRequest", "field": "base", "code": "invalid"}),
        Reason.BRANCH,
    ),
    "github: no drafts": (422, github("Draft pull requests are not supported in this repository."), Reason.INVALID),
    "github: gone": (410, github("Issues are disabled for this repo"), Reason.ABSENT),
    "github: too many": (429, github("rate limit"), Reason.LIMIT),
    "a proxy that waited": (408, b"<html>", Reason.UNREACHABLE),
    "a proxy's own": (418, b"blocked", Reason.UNCLEAR),
    "a proxy's own, as if the call were wrong": (400, b"<html>", Reason.UNCLEAR),
    "github: unknown but about the content": (422, github("Validation Failed"), Reason.INVALID),
    "gitea: token": (401, b'{"message":"token is required","url":"http://x/swagger"}', Reason.TOKEN),
    "gitea: duplicate": (
        409,
        b'{"message":"pull request already exists for these targets [id: 5, issue_id: 7]","url":"u"}',
        Reason.DUPLICATE,
    ),
    "gitea: archived": (423, b'{"message":"Repo is archived: o/r","url":"u"}', Reason.ARCHIVED),
    "gitea: nothing changed": (
        422,
        b'{"message":"Invalid PullRequest: There are no changes between the head and the base","url":"u"}',
        Reason.NO_DIFF,
    ),
    "gitlab: list": (
        409,
        b'{"message":["Another open merge request already exists for this source branch: !5"]}',
        Reason.DUPLICATE,
    ),
    "gitlab: map": (400, b'{"message":{"target_branch":["does not exist"]}}', Reason.BRANCH),
    "gitlab: scope": (
        403,
        b'{"error":"insufficient_scope","error_description":"The request requires higher privileges than provided"}',
        Reason.SCOPE,
    ),
    "gitlab: expired": (
        401,
        b'{"error":"invalid_token","error_description":"Token is expired. You can either do re-authorization"}',
        Reason.TOKEN,
    ),
    "gitlab: plain 403": (403, b'{"message":"403 Forbidden"}', Reason.SCOPE),
    "a proxy's page": (502, b"<html><body>Bad Gateway</body></html>", Reason.BROKEN),
    "empty": (500, b"", Reason.BROKEN),
    "a redirect": (301, b"", Reason.MOVED),
    "a protected branch": (409, github("Required status check is expected: protected branch"), Reason.PROTECTED),
}


@pytest.mark.parametrize(("status", "body", "reason"), CASES.values(), ids=CASES.keys())
def test_a_refusal_has_its_reason(status, body, reason):
    problem = read(status, body, {}, "open the pull request")
    assert problem.reason == reason
    assert problem.message.startswith("open the pull request: ")
    assert "{" not in problem.message


_RULES = "remote: error: GH013: Repository rule violations found for refs/heads/x.\nremote: - "
_WORKFLOW = "refusing to allow a {} to create or update workflow `.github/workflows/ci.yml` without `{}` {}"

PUSHES = {
    "push protection": (_RULES + "Push cannot contain secrets", Reason.SECRET),
    "a ruleset": (_RULES + "Cannot create ref due to creations being restricted.", Reason.PROTECTED),
    "branch protection": ("remote: error: GH006: Protected branch update failed for x.", Reason.PROTECTED),
    "a stale base": (_WORKFLOW.format("GitHub App", "workflows", "permission"), Reason.WORKFLOWS),
    "an old token": (_WORKFLOW.format("Personal Access Token", "workflow", "scope"), Reason.WORKFLOWS),
    "no right": ("remote: Permission to o/r.git denied to bot.\nfatal: unable to access: 403", Reason.SCOPE),
    "wrong password": ("remote: Invalid username or token.\nfatal: Authentication failed for 'x'", Reason.TOKEN),
    "hidden": ("remote: Repository not found.\nfatal: repository 'https://x/' not found", Reason.ABSENT),
    "archived": ("remote: This repository was archived so it is read-only.\nfatal: 403", Reason.ARCHIVED),
    "too often": ("error: RPC failed; HTTP 429 curl 22 The requested URL returned error: 429", Reason.LIMIT),
    "too often, by the ref": ("remote rejected (rate limit exceeded)", Reason.LIMIT),
    "a branch of that name": ("! [remote rejected] swarm/rate-limit (Internal Server Error)", Reason.BROKEN),
    "a slow proxy": ("error: RPC failed; HTTP 408 curl 22 The requested URL returned error: 408", Reason.UNREACHABLE),
    "cut off": ("send-pack: unexpected disconnect\nfatal: the remote end hung up unexpectedly", Reason.UNREACHABLE),
    "cut off by curl": ("error: RPC failed; curl 56 Recv failure: Connection was reset", Reason.UNREACHABLE),
    "an old certificate": ("SSL certificate problem: certificate has expired", Reason.UNREACHABLE),
    "the forge's own fault": ("! [remote rejected] x -> x (unpacker error)", Reason.BROKEN),
    "anything else": ("fatal: whatever", Reason.BROKEN),
    "no way there": ("fatal: unable to access 'https://x/': Could not resolve host: x", Reason.UNREACHABLE),
    "gitlab's protected branch": (
        "remote: GitLab: You are not allowed to push code to protected branches on this project.",
        Reason.PROTECTED,
    ),
}


@pytest.mark.parametrize(("text", "reason"), PUSHES.values(), ids=PUSHES.keys())
def test_a_refused_push_has_its_reason(text, reason):
    """The stale base is wildfly.org 549: workflow files that differ from the default branch's, changed by nobody."""
    problem = of_push(text, "branch x could not be pushed")
    assert problem.reason == reason
    assert "\n" not in problem.message


def test_single_sign_on_is_known_by_its_header_too():
    assert read(403, github("Forbidden"), {"x-github-sso": "required; url=https://x"}).reason == Reason.SSO


def test_foreign_words_are_one_short_line_without_hidden_characters():
    told = clean("a\x1b[31m\r\nb\u202ec\u200bd\x00" + "e" * 10_000)
    assert len(told) == 300
    assert told.startswith("a [31m b c d e")


@pytest.mark.parametrize(
    "secret",
    [
        "ghp_0123456789abcdefghijABCDEFGHIJ",
        "github_pat_11ABC_def",
        "ghs_abc.def",
        "glpat-abcdefghij1234567890",
        "https://user:hunter2@forge.example/x",
        "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOjF9.c2ln",
    ],
)
def test_what_looks_like_a_token_is_hidden(secret):
    assert secret.rsplit("@", maxsplit=1)[0].split("//")[-1] not in clean(f"failed with {secret} here")


WIDE = json.dumps({"message": {"a": ["x" * 100_000] * 50}}).encode()


@pytest.mark.parametrize("body", [b"[" * 100_000, b'{"message":' * 20_000, WIDE, b"\xff" * 99])
def test_a_hostile_body_costs_little(body):
    began = time.thread_time()
    assert len(said(body)) <= 300
    assert time.thread_time() - began < 1


@pytest.mark.parametrize("before", [250, 260, 290, 2390])
def test_a_secret_is_struck_before_the_words_are_cut(before):
    token = "0123456789abcdef" * 2 + "01234567"
    for body in (json.dumps({"message": "y" * before + " " + token}).encode(), (" " * before + token).encode()):
        told = read(403, body, strike=lambda text: text.replace(token, "[hidden]")).message
        assert token[:6] not in told
