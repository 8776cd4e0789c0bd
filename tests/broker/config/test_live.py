"""A changed broker.toml is taken over whole or not at all, once, and the last good one stays."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from broker.config.live import LIVE, LIVE_IN_A_REPOSITORY, Live, differences
from broker.config.loading import load
from broker.config.repository import Repository
from broker.config.settings import BrokerConfig

POLICY = "[repositories.demo.policy]\n"


class Stage:
    """Live settings with their file, a clock that goes when told, and what was told of changes."""

    def __init__(self, write: Callable[..., Path], text: str) -> None:
        self.write = write
        self.good = text
        self.now = 0.0
        self.heard: list[tuple[str, dict[str, str]]] = []
        self.path = write(text)
        self.live = self.opened(load(self.path))

    def opened(self, config: BrokerConfig) -> Live:
        live = Live(self.path, config, lambda: self.now)
        live.listen(lambda event, fields: self.heard.append((event, fields)))
        return live

    def look(self, live: Live | None = None) -> BrokerConfig:
        """The settings a second later."""
        self.now += 1.0
        return (live or self.live).current()

    def events(self) -> list[str]:
        return [event for event, _ in self.heard]


@pytest.fixture
def stage(write, good) -> Stage:
    return Stage(write, good)


def limit(config):
    return config.repositories["demo"].policy.max_files


def test_a_changed_policy_is_in_force_within_a_second_and_told_once(stage):
    assert limit(stage.look()) == 100
    stage.write(stage.good + POLICY + "max_files = 7")
    assert limit(stage.live.current()) == 100  # looked at in this second already
    assert limit(stage.look()) == 7
    stage.look()
    assert stage.events() == ["config-reloaded"]
    assert stage.heard[0][1]["changed"] == "repositories.demo.policy"


def test_a_change_between_the_first_reading_and_the_first_look_is_not_missed(stage):
    before = load(stage.path)
    stage.write(stage.good + POLICY + "max_files = 7")
    assert limit(stage.look(stage.opened(before))) == 7


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("not toml", "is not TOML"),
        ("", "socket: Field required"),
        ("GOOD" + POLICY + "max_fils = 1", "did you mean max_files?"),
        ("GOOD" + POLICY + 'hours = ["never"]', "is no time span"),
    ],
)
def test_a_wrong_file_is_kept_out_and_told_once_with_the_reason(stage, text, words):
    stage.write(text.replace("GOOD", stage.good))
    for _ in range(3):
        assert limit(stage.look()) == 100
    assert stage.events() == ["config-kept"]
    assert words in stage.heard[0][1]["reason"]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o666])
def test_a_file_that_others_can_reach_is_kept_out(stage, mode):
    stage.write(stage.good + POLICY + "max_files = 7", mode)
    assert limit(stage.look()) == 100
    assert "can be read by other users" in stage.heard[0][1]["reason"]


def test_a_link_put_in_its_place_is_kept_out(stage, tmp_path):
    path = stage.write(stage.good)
    (tmp_path / "other.toml").write_text(stage.good + POLICY + "max_files = 7")
    (tmp_path / "other.toml").chmod(0o600)
    path.unlink()
    path.symlink_to(tmp_path / "other.toml")
    assert limit(stage.look()) == 100
    assert stage.events() == ["config-kept"]


def test_a_file_that_is_gone_is_told_once_and_taken_over_when_it_comes_back(stage, tmp_path):
    (tmp_path / "broker.toml").unlink()
    for _ in range(3):
        assert limit(stage.look()) == 100
    stage.write(stage.good + POLICY + "max_files = 7")
    assert limit(stage.look()) == 7
    assert stage.events() == ["config-kept", "config-reloaded"]


def test_a_mended_file_comes_into_force_after_a_wrong_one(stage):
    stage.write(stage.good + POLICY + "max_files = 0")
    assert limit(stage.look()) == 100
    stage.write(stage.good + POLICY + "max_files = 7")
    assert limit(stage.look()) == 7
    assert stage.events() == ["config-kept", "config-reloaded"]


@pytest.mark.parametrize(
    ("old", "new", "name"),
    [
        ('"/run/b/b.sock"', '"/run/c/b.sock"', "socket"),
        ('"/var/b"', '"/var/c"', "state"),
        ("[4242]", "[4243]", "roles"),
        ('["root"]', '["root", 4242]', "roles"),
        ('path = "/srv/demo.git"', 'path = "/srv/other.git"', "repositories.demo.path"),
        ("[repositories.demo]", "[repositories.other]", "repositories.demo, repositories.other"),
        ('forge = "local"', 'branch_prefix = "x/"\nforge = "local"', "repositories.demo.branch_prefix"),
        ('state = "/var/b"', 'state = "/var/b"\nmax_body_bytes = 9', "max_body_bytes"),
    ],
)
def test_what_a_running_broker_was_built_with_keeps_the_whole_file_out(stage, old, new, name):
    stage.write(stage.good.replace(old, new) + "enabled = false\n")
    after = stage.look()
    assert after.repositories["demo"].enabled
    assert stage.heard[0][0] == "config-kept"
    assert f"cannot change {name};" in stage.heard[0][1]["reason"]
    assert "restart" in stage.heard[0][1]["mend"]


@pytest.mark.parametrize("name", ["policy", "x.policy", "enabled"])
def test_a_repository_is_not_taken_for_a_live_part_by_its_name(write, good, name):
    stage = Stage(write, good + f'[repositories."{name}"]\nforge = "local"\npath = "/srv/x.git"')
    write(good)
    assert name in stage.look().repositories
    assert stage.events() == ["config-kept"]


def test_a_file_that_is_put_back_to_what_is_in_force_is_told(stage):
    stage.write("wrong")
    stage.look()
    stage.write(stage.good)
    for _ in range(3):
        stage.look()
    assert stage.events() == ["config-kept", "config-reloaded"]
    assert "nothing" in stage.heard[1][1]["changed"]


def test_a_wrong_file_that_is_only_touched_is_not_told_again(stage):
    stage.write("wrong")
    stage.look()
    for at in (1, 2):
        os.utime(stage.path, (at, at))
        stage.look()
    assert stage.events() == ["config-kept"]


def test_a_hook_that_others_could_change_keeps_the_file_out(stage, tmp_path):
    hook = tmp_path / "hook"
    hook.write_text("#!/bin/sh\n")
    hook.chmod(0o777)
    stage.write(stage.good + POLICY + f'hook = ["{hook}"]')
    assert stage.look().repositories["demo"].policy.hook == ()
    assert "chmod go-w" in stage.heard[0][1]["reason"]
    stage.look()
    hook.chmod(0o755)  # what was wrong lies outside the file, so the file need not be written again
    assert stage.look().repositories["demo"].policy.hook == (str(hook),)
    assert stage.events() == ["config-kept", "config-reloaded"]


def test_what_is_live_are_keys_that_there_are():
    assert set(BrokerConfig.model_fields) > LIVE
    assert set(Repository.model_fields) > LIVE_IN_A_REPOSITORY


def test_every_key_of_a_credential_or_an_address_needs_a_restart():
    built_in = set(Repository.model_fields) - LIVE_IN_A_REPOSITORY
    assert {
        "forge",
        "path",
        "url",
        "api",
        "git",
        "ca_file",
        "credential",
        "push_credential",
        "branch_prefix",
    } == built_in


def test_no_value_is_told(write, good):
    path = write(good)
    before = load(path)
    after = load(write(good + '[repositories.demo.credential]\ntoken = { command = ["/bin/echo", "canary-word"] }'))
    assert differences(before, after) == (("repositories", "demo", "credential"),)


def test_threads_see_one_whole_setting_or_the_other_and_the_change_is_told_once(stage):
    seen, stop = set(), threading.Event()

    def ask() -> None:
        while not stop.is_set():
            policy = stage.live.current().repositories["demo"].policy
            seen.add((policy.max_files, policy.max_per_hour))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    fresh = stage.path.with_suffix(".new")
    fresh.write_text(stage.good + POLICY + "max_files = 7\nmax_per_hour = 8")
    fresh.chmod(0o600)
    fresh.replace(stage.path)
    stage.now += 5
    while limit(stage.live.current()) != 7:
        pass
    stop.set()
    for thread in threads:
        thread.join()
    assert seen <= {(100, 20), (7, 8)}
    assert stage.events() == ["config-reloaded"]


def test_fixed_settings_stay(write, good):
    live = Live.fixed(load(write(good)))
    write("broken")
    assert live.current().repositories["demo"].forge == "local"
