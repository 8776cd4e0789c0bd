"""Addresses come from broker.toml alone, and each kind of GitHub has its own."""

from __future__ import annotations

import pytest

from broker.config.repository import Repository
from broker.errors import ConfigError
from broker.forge.github.place import place_of


def place(url: str, **more: str):
    settings = {"forge": "github", "url": url, "credential": {"token": {"file": "/t"}}, **more}
    return place_of("web", Repository.model_validate(settings))


@pytest.mark.parametrize(
    ("url", "api", "repo", "graphql"),
    [
        ("https://github.com/team/web", "https://api.github.com", "/repos/team/web", "/graphql"),
        ("https://git.corp.example/team/web.git", "https://git.corp.example/api", "/v3/repos/team/web", "/graphql"),
        ("https://corp.ghe.com/team/web", "https://api.corp.ghe.com", "/repos/team/web", "/graphql"),
    ],
)
def test_the_api_follows_from_the_address(url, api, repo, graphql):
    found = place(url)
    assert (found.api.base, found.repo(), found.graphql) == (api, repo, graphql)
    assert found.git.address == url.removesuffix(".git")


def test_an_api_that_is_named_is_taken():
    found = place("https://github.com/team/web", api="https://proxy.example/api/v3", git="https://git.example/team/web")
    assert found.api.url(found.repo("pulls", 1)) == "https://proxy.example/api/v3/repos/team/web/pulls/1"
    assert found.git.origin == "https://git.example/"


@pytest.mark.parametrize(
    "url",
    ["https://github.com/team", "https://github.com/a/b/c", "https://github.com/a/..", "https://github.com/%2e/x"],
)
def test_what_is_no_repository_is_refused(url):
    with pytest.raises((ConfigError, ValueError)):
        place(url)


def test_no_piece_of_a_path_leads_out_of_the_repository():
    found = place("https://github.com/team/web")
    assert found.repo("collaborators", "../../user").endswith("/repos/team/web/collaborators/..%2F..%2Fuser")
    with pytest.raises(ValueError, match="no name"):
        found.ref("swarm/../../x")
    with pytest.raises(ValueError, match="no path"):
        found.api.url("/repos/a/../b")
