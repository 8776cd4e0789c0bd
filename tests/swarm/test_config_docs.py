"""Every setting is explained, and the ones in force tell where they come from."""

from __future__ import annotations

import tomllib

from swarm.config import Settings
from swarm.config_docs import HIDDEN, effective, explain
from swarm.config_text import keys_of

TEXT = """
[daemon]
state = "/s"
socket = "/d"
[broker]
socket = "/b"
[[pool.endpoints]]
name = "a"
url = "http://127.0.0.1:1"
api_key = "geheim-123"
[repositories.web]
tier = "default"
"""


def test_every_setting_has_a_description_and_a_type() -> None:
    docs = explain(Settings)
    assert {doc.key for doc in docs} == set(keys_of(Settings))
    assert not [doc.key for doc in docs if not doc.description or not doc.type]
    types = {doc.key: doc.type for doc in docs}
    assert types["pool.virtual.NAME.tiers"] == "list of text, at least 1 entry, at most 8 entries"
    assert (
        types["agents.NAME.success_exit_codes"]
        == "list of whole numbers, each at least 0, at most 255, at least 1 entry"
    )
    assert types["scheduling.fleet"].startswith("whole number, at least ")
    inside = ("Annotated", "Literal", "tuple", "Union", "Optional", "NoneType")
    assert not [(key, told) for key, told in types.items() if any(word in told for word in inside)]


def test_origins_tell_file_from_default() -> None:
    raw = tomllib.loads(TEXT)
    rows = {row.key: row for row in effective(Settings.model_validate(raw), raw)}
    assert rows["daemon.state"].origin == "file"
    assert rows["daemon.workers"].origin == "default"
    assert rows["pool.endpoints[0].url"].origin == "file"
    assert rows["pool.endpoints[0].tools"].origin == "default"
    assert rows["repositories.web.tier"].origin == "file"
    assert rows["repositories.web.base"].origin == "default"


def test_a_key_is_never_among_the_values() -> None:
    raw = tomllib.loads(TEXT)
    rows = list(effective(Settings.model_validate(raw), raw))
    assert "geheim" not in repr(rows)
    assert next(row for row in rows if row.key.endswith("api_key")).value == HIDDEN


def test_bounds_and_choices_are_in_the_type() -> None:
    types = {doc.key: doc.type for doc in explain(Settings)}
    assert types["daemon.workers"] == "whole number, at least 1, at most 4096"
    assert types["sandbox.backend"] == 'one of "auto", "docker", "bwrap"'
