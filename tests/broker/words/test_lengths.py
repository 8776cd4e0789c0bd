"""The lengths that the settings name are kept, and what the broker itself says is never what is cut."""

from __future__ import annotations

from broker.config.repository import Repository
from broker.wire import Evidence
from broker.words.clean import title
from broker.words.dialect import dialect_of
from broker.words.pull_request import Page, pull_request_body


def dialect(**policy):
    return dialect_of(Repository.model_validate({"forge": "local", "path": "/srv/demo.git", "policy": policy}))


def test_a_title_is_cut_with_its_prefix():
    assert len(title("word " * 100, dialect(), "[agent] ")) <= 120
    cut = title("word " * 100, dialect(title_chars=40), "[agent] ")
    assert len(cut) <= 40
    assert cut.startswith("[agent] word")


def test_a_description_is_cut_and_what_the_broker_says_stays():
    page = Page(body="word " * 20_000, evidence=Evidence(), proposal="p1", facts={"base": "a" * 40})
    text = pull_request_body(page, dialect(body_chars=1000))
    own = text.split("###", maxsplit=1)[0]
    assert len(own) <= 1002
    assert "is left out" in own
    assert "a" * 40 in text
    assert len(pull_request_body(page, dialect())) <= 60_000
