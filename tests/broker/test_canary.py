"""The planted credential: made, planted, and seen in whatever form it comes back."""

from __future__ import annotations

import base64
import binascii
import codecs
import os
import stat
import time
import zlib
from urllib.parse import quote

import pytest

from broker import canary
from broker.config.canary import Canary as Settings
from broker.errors import ConfigError


@pytest.fixture
def settings(tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    return Settings(file=home / ".git-credentials")


@pytest.fixture
def state(tmp_path):
    folder = tmp_path / "state"
    folder.mkdir(mode=0o700)
    return folder


@pytest.fixture
def told():
    return []


@pytest.fixture
def planted(settings, state, told):
    """The watch for a planted one, and its value."""
    canary.plant(settings, state, "github")
    watch = canary.watch(settings, state, lambda event, **fields: told.append((event, fields)))
    return watch, (state / "canary").read_text().strip()


def test_it_lies_as_a_git_credential_for_the_owner_of_the_home_alone(settings, state):
    made = canary.plant(settings, state, "github")
    info = settings.file.stat()
    assert stat.S_IMODE(info.st_mode) == 0o600
    assert info.st_uid == settings.file.parent.stat().st_uid
    value = (state / "canary").read_text().strip()
    assert settings.file.read_text() == f"https://x-access-token:{value}@github.com\n"
    assert stat.S_IMODE((state / "canary").stat().st_mode) == 0o600
    assert value not in repr(made)
    assert len(made.hash) == 12


@pytest.mark.root
def test_it_belongs_to_whose_home_it_is(settings, state):
    os.chown(settings.file.parent, 4242, 4243)
    os.chown(state, 4244, 4244)
    canary.plant(settings, state, "gitlab")
    assert (settings.file.stat().st_uid, settings.file.stat().st_gid) == (4242, 4243)
    assert (state / "canary").stat().st_uid == 4244


@pytest.mark.parametrize("shape", ["github", "gitea", "gitlab"])
def test_it_has_the_shape_of_the_forge_s_own(shape):
    made = canary.token(shape)
    shapes = {"github": ("ghp_", 40), "gitea": ("", 40), "gitlab": ("glpat-", 26)}
    assert made.startswith(shapes[shape][0])
    assert len(made) == shapes[shape][1]
    assert canary.token(shape) != made


def test_its_checksum_is_right_so_that_a_thief_who_checks_believes_it():
    """The rule of github.blog/2021-04-05-behind-githubs-new-authentication-token-formats, computed the other way."""
    digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
    for _ in range(50):
        made = canary.token("github")
        number = 0
        for letter in made[-6:]:
            number = number * 62 + digits.index(letter)
        assert number == zlib.crc32(made[4:-6].encode())


def test_a_file_of_somebody_s_own_is_never_replaced(settings, state):
    settings.file.write_text("https://me:real@github.com\n")
    with pytest.raises(ConfigError, match="no canary"):
        canary.plant(settings, state, "github")
    assert "real" in settings.file.read_text()
    settings.file.unlink()
    settings.file.symlink_to("/etc/hostname")
    with pytest.raises(ConfigError, match="no canary"):
        canary.plant(settings, state, "github")


def test_it_can_be_planted_anew_and_the_old_one_is_forgotten(settings, state):
    canary.plant(settings, state, "github")
    first = (state / "canary").read_text()
    canary.plant(settings, state, "github")
    assert (state / "canary").read_text() != first
    assert first.strip() not in settings.file.read_text()


def test_a_start_without_one_is_refused_with_the_mend(settings, state):
    with pytest.raises(ConfigError) as caught:
        canary.watch(settings, state, print)
    assert caught.value.mend == "swarm-broker canary plant"


FORMS = {
    "plain": lambda v: v,
    "in a sentence": lambda v: f"the token is {v}, use it",
    "base64": lambda v: base64.b64encode(v.encode()).decode(),
    "base64 of user and token": lambda v: base64.b64encode(f"user:{v}".encode()).decode(),
    "base64 in a longer text": lambda v: base64.b64encode(f"export GH={v}\nls\n".encode()).decode(),
    "base64 in lines": lambda v: base64.encodebytes(f"some words before {v} and after".encode()).decode(),
    "base64 for addresses": lambda v: base64.urlsafe_b64encode(v.encode()).decode(),
    "base64 reversed": lambda v: base64.b64encode(v[::-1].encode()).decode(),
    "base32": lambda v: base64.b32encode(v.encode()).decode(),
    "hex": lambda v: binascii.hexlify(v.encode()).decode(),
    "hex in capitals": lambda v: v.encode().hex().upper(),
    "hex with colons": lambda v: v.encode().hex(":"),
    "reversed": lambda v: v[::-1],
    "percent": lambda v: "".join(f"%{ord(c):02X}" for c in v),
    "percent in part": lambda v: quote(v).replace("_", "%5f"),
    "lower case": lambda v: v.lower(),
    "spaced": " ".join,
    "over lines": lambda v: f"{v[:15]}\n{v[15:]}",
    "utf-16": lambda v: v.encode("utf-16").decode("latin-1"),
    "escaped": lambda v: "".join(f"\\x{ord(c):02x}" for c in v),
}


@pytest.mark.parametrize("form", FORMS)
def test_it_is_seen_in_every_form(planted, told, form):
    watch, value = planted
    assert watch("a test", f"before {FORMS[form](value)} after".encode("latin-1"))
    assert [event for event, _ in told] == ["canary-seen"]
    assert value not in str(told)
    assert told[0][1]["where"] == "a test"


def test_other_tokens_and_other_bytes_are_not_it(planted, told):
    watch, value = planted
    for other in (canary.token("github"), value[:-1], codecs.encode(value, "rot13"), "x" * 100):
        assert not watch("a test", other.encode())
    assert not watch("a test", os.urandom(1 << 20))
    assert told == []


def test_a_megabyte_is_looked_through_in_well_under_a_second(planted):
    watch, _ = planted
    text = base64.b64encode(os.urandom(3 << 18))
    begun = time.process_time()
    assert not watch("a test", text)
    assert time.process_time() - begun < 0.5


def test_it_stops_everything_and_calls_the_command_with_where(tmp_path, settings, state, told):
    script = tmp_path / "alarm"
    script.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/called; env > {tmp_path}/env\n')
    script.chmod(0o700)
    settings = settings.model_copy(update={"command": (str(script), "--now")})
    canary.plant(settings, state, "github")
    watch = canary.watch(settings, state, lambda event, **fields: told.append((event, fields)))
    stops = []
    watch.stop_by(stops.append)
    value = (state / "canary").read_text().strip()
    for _ in range(3):
        assert watch("the body of POST /v1/propose", value.encode())
    until = time.monotonic() + 10
    while not any(event == "canary-command" for event, _ in told):
        assert time.monotonic() < until
        time.sleep(0.02)
    assert (tmp_path / "called").read_text() == "--now the body of POST /v1/propose\n"
    assert len(stops) == 3
    assert [event for event, _ in told].count("canary-command") == 1  # once a minute at most
    assert value not in (tmp_path / "env").read_text()


def test_without_stop_it_only_alarms(settings, state, told):
    settings = settings.model_copy(update={"stop": False})
    canary.plant(settings, state, "github")
    watch = canary.watch(settings, state, lambda event, **fields: told.append((event, fields)))
    stops = []
    watch.stop_by(stops.append)
    assert watch("a test", (state / "canary").read_bytes())
    assert stops == []


def test_whoever_holds_it_cannot_fill_the_disk_with_alarms(planted, told):
    watch, value = planted
    for _ in range(300):
        assert watch("a test", value.encode())
    assert len(told) == 200
