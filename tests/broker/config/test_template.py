"""The template loads, shows every key, and its commented lines are the defaults."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from broker.config.loading import load
from broker.config.settings import BrokerConfig
from broker.config.showing import fields
from broker.config.template import render

USERS = {"person": [0], "coordinator": [4242]}
KINDS = ("local", "github", "gitea", "gitlab")
EXAMPLES = Path(__file__).parents[3] / "examples"
SETTING = re.compile(r"# (\w+ = (?!\.\.\.)|  |\])")


@pytest.mark.parametrize("forge", KINDS)
def test_the_template_loads_and_shows_every_key(write, forge):
    text = render(USERS, "demo", forge)
    loaded = load(write(text))
    assert loaded.repositories["demo"].forge == forge
    assert loaded == BrokerConfig.model_validate(loaded.model_dump())
    for name, _default, _meaning in fields():
        assert f"{name.rsplit('.', 1)[-1]} = " in text


@pytest.mark.parametrize("forge", KINDS)
def test_the_templates_commented_defaults_are_the_defaults(write, forge):
    text = render(USERS, "demo", forge)
    lines = text.splitlines()
    live = "\n".join([*lines[:6], *(line[2:] if SETTING.match(line) else line for line in lines[6:])])
    assert live.count("\n# ") < text.count("\n# ") - 50
    assert load(write(live)) == load(write(text))


@pytest.mark.parametrize("forge", KINDS)
def test_the_tables_that_are_off_load_once_they_are_on(write, forge):
    text = render(USERS, "demo", forge).replace("\n## ", "\n")
    loaded = load(write(text))
    assert loaded.webhook is not None
    assert loaded.canary is not None
    assert loaded.repositories["demo"].push_credential is not None


@pytest.mark.parametrize("forge", KINDS)
def test_the_example_is_the_template_and_loads(write, forge):
    local = forge == "local"
    example = (EXAMPLES / ("broker.toml" if local else f"broker-{forge}.toml")).read_text()
    assert example == render(None, "demo" if local else "web", forge), "write it anew from template.render"
    loaded = load(write(example.replace('["swarm"]', "[4242]")))
    assert [repository.forge for repository in loaded.repositories.values()] == [forge]


def test_what_is_given_replaces_the_sample(write):
    given = {**USERS, "url": "https://git.example.org/me/mine", "token": {"keyring": "swarm/me"}}
    mine = load(write(render(given, "mine", "gitea"))).repositories["mine"]
    assert mine.url == "https://git.example.org/me/mine"
    assert mine.credential is not None
    assert mine.credential.token is not None
    assert mine.credential.token.keyring == "swarm/me"
