"""A swarm.toml is found, read and judged; whatever is wrong with it is a ConfigError with its mend."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest
from pydantic import BaseModel

from swarm.config import Settings, missing_keys
from swarm.config_file import SHOWN, SYSTEM, find, load, load_parts
from swarm.config_text import models_in
from swarm.errors import ConfigError

GOOD = """
[daemon]
state = "state"
socket = "~/d.sock"
[broker]
socket = "/run/b.sock"
[pool]
default_tier = "fast"
[[pool.endpoints]]
name = "a"
url = "http://127.0.0.1:8000/v1"
tier = "fast"
api_key_env = "MODEL_KEY"
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "swarm.toml"
    path.write_text(text)
    return path


def test_the_order_of_the_search(tmp_path: Path) -> None:
    here = written(tmp_path, GOOD)
    assert find(Path("x.toml"), {"SWARM_CONFIG": "y.toml"}, tmp_path) == Path("x.toml")
    assert find(None, {"SWARM_CONFIG": "y.toml"}, tmp_path) == Path("y.toml")
    assert find(None, {}, tmp_path) == here


@pytest.mark.skipif(SYSTEM.exists(), reason=f"this machine has a {SYSTEM}")
def test_nothing_found_names_every_place_and_the_mend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    with pytest.raises(ConfigError, match=r"home.*/etc/agent-swarm/swarm\.toml") as caught:
        find(None, {}, tmp_path / "empty")
    assert "swarm init" in caught.value.mend


def test_paths_are_taken_from_the_folder_of_the_file(tmp_path: Path) -> None:
    settings = load(written(tmp_path, GOOD), {}).settings
    assert settings.daemon.state == tmp_path / "state"
    assert settings.daemon.socket == Path.home() / "d.sock"
    assert settings.broker.socket == Path("/run/b.sock")


def places(model: type[BaseModel], prefix: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The way to every setting of a model that is a path."""
    for name, field in model.model_fields.items():
        if field.annotation is Path or Path in get_args(field.annotation):
            yield (*prefix, name)
        for way, child in models_in(field.annotation):
            assert way == "" or not list(places(child)), (
                f"{name}: a path in a list or table needs a line of its own here"
            )
            if way == "":
                yield from places(child, (*prefix, name))


def test_every_path_of_the_settings_is_taken_from_the_folder_of_the_file(tmp_path: Path) -> None:
    """Walks the model, so that a path that is added later is found too. Short names, since some are of sockets."""
    found = list(places(Settings))
    assert {("daemon", "state"), ("daemon", "tcp", "key"), ("daemon", "database_password_file")} <= set(found)
    text = [
        "pool.embedded.enabled = true",
        'daemon.tcp.address = "127.0.0.1:7420"',
        *(f'{".".join(way)} = "by/{number}"' for number, way in enumerate(found)),
    ]
    settings = load(written(tmp_path, "\n".join(text)), {}).settings
    for number, way in enumerate(found):
        value = functools.reduce(getattr, way, settings)
        assert value == tmp_path / "by" / str(number)


def test_a_key_comes_from_the_environment_and_stays_hidden(tmp_path: Path) -> None:
    settings = load(written(tmp_path, GOOD), {"MODEL_KEY": "geheim-456"}).settings
    key = settings.pool.endpoints[0].api_key
    assert key is not None
    assert key.get_secret_value() == "geheim-456"
    assert "geheim" not in repr(settings) + settings.model_dump_json()
    assert not missing_keys(settings)


def test_a_key_that_is_not_set_is_told_to_who_needs_it(tmp_path: Path) -> None:
    (missing,) = missing_keys(load(written(tmp_path, GOOD), {}).settings)
    assert "MODEL_KEY" in missing.message


@pytest.mark.parametrize(
    ("change", "line", "words"),
    [
        (
            ('default_tier = "fast"', 'default_tier = "fats"'),
            8,
            'no endpoint serves the tier "fats"; did you mean "fast"',
        ),
        (('name = "a"', 'name = "a"\nurl = "http://x"\n[[pool.endpoints]]\nname = "a"'), 13, '"a" is taken by'),
        (("http://127", "http://me:pass@127"), 11, "holds a name or password"),
        (("http://127", "ftp://me:pass@127"), 11, "is no http:// or https:// address"),
        (("http://", "me:pass@"), 11, "holds a name or password"),
        (("http://", ""), 11, "did you mean http://127"),
        (("/run/b.sock", "/run/" + "b" * 110), 6, "115 bytes long"),
        (("[pool]", f'[pool.gateway]\nsocket = "/run/{"g" * 110}"\n[pool]'), 8, "115 bytes long"),
        (('name = "a"', 'name = "a"\nkv_events = "127.0.0.1:5557"'), 11, "write tcp://127.0.0.1:5557"),
        (('name = "a"', 'name = "A b"'), 10, "must be 1 to 64 of a-z"),
        (
            ("[[pool.endpoints]]", '[repositories.web]\ntier = "slow"\n[[pool.endpoints]]'),
            10,
            'the tier "slow"; served are: fast',
        ),
    ],
)
def test_impossible_settings_are_refused_at_their_line(
    tmp_path: Path, change: tuple[str, str], line: int, words: str
) -> None:
    path = written(tmp_path, GOOD.replace(*change, 1))
    with pytest.raises(ConfigError) as caught:
        load(path, {})
    assert f"line {line}: " in str(caught.value)
    assert words in str(caught.value)
    assert str(path) in str(caught.value)
    assert "pass" not in str(caught.value).replace("password", "")


def test_no_endpoint_at_all_is_refused_unless_embedded(tmp_path: Path) -> None:
    bare = GOOD.partition("[pool]")[0]
    with pytest.raises(ConfigError, match="there is no endpoint"):
        load(written(tmp_path, bare), {})
    assert load(written(tmp_path, bare + "[pool.embedded]\nenabled = true\n"), {}).settings.pool.tiers == ("embedded",)


def test_text_that_looks_like_a_number_is_none(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r'line 3: daemon\.workers: must be a whole number, not "2"'):
        load(written(tmp_path, GOOD.replace("[daemon]", '[daemon]\nworkers = "2"')), {})


def test_many_mistakes_stay_on_one_screen(tmp_path: Path) -> None:
    path = written(tmp_path, "\n".join(f"wrong{number} = 1" for number in range(100)))
    with pytest.raises(ConfigError) as caught:
        load(path, {})
    assert len(str(caught.value).splitlines()) == SHOWN + 2


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"[daemon\n", "is not TOML"), (b"state = '\xff'\n", "byte 9 is not UTF-8"), (b"a = 1\na = 2\n", "line 2")],
)
def test_files_that_are_no_toml(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "swarm.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=words):
        load(path, {})


def test_the_gateways_socket_is_taken_from_the_folder_of_the_file_too(tmp_path: Path) -> None:
    settings = load(written(tmp_path, GOOD + '[pool.gateway]\nsocket = "pool.sock"\n'), {"MODEL_KEY": "k"}).settings
    assert settings.pool.gateway.socket == str(tmp_path / "pool.sock")


def test_a_folder_and_nothing_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is a folder"):
        load(tmp_path, {})
    with pytest.raises(ConfigError, match="no such file") as caught:
        load(tmp_path / "none.toml", {})
    assert "swarm init" in caught.value.mend


def test_a_file_in_the_way_of_a_folder(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="Not a directory"):
        load(written(tmp_path, GOOD) / "swarm.toml", {})


VIRTUAL = (
    GOOD
    + """[pool.virtual.best]
kind = "vote"
tiers = ["fast"]
"""
)


def test_tiers_of_every_kind_may_be_the_default(tmp_path: Path) -> None:
    text = VIRTUAL.replace('default_tier = "fast"', 'default_tier = "best"\ntier_order = ["fast"]\nauto = { calm = 9 }')
    pool = load(written(tmp_path, text), {}).settings.pool
    assert pool.askable == ("fast", "best", "auto")
    assert pool.auto.calm == 9


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (('tiers = ["fast"]', 'tiers = ["fsat"]'), "line 14: pool.virtual.best"),
        (("virtual.best", "virtual.fast"), "is the name of a tier"),
        (('kind = "vote"', 'kind = "vot"'), "line 15: pool.virtual.best.kind"),
        (('default_tier = "fast"', 'tier_order = ["fast", "slow"]'), "line 8: pool.tier_order"),
    ],
)
def test_tiers_that_cannot_work_are_refused_at_their_line(tmp_path: Path, change: tuple[str, str], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(written(tmp_path, VIRTUAL.replace(*change, 1)), {})
    assert words in str(caught.value)


SANDBOX_MISTAKES = """
[sandbox]
image = "nope!"
[sandbox.egress.packages]
hosts = ["pypi.org", "https://pypi.org/simple"]
mirrors = ["pypi org"]
port = 9000
[sandbox.egress.model]
port = 9000
[repositories."odd.name"]
setup = [""]
setup_inputs = ["/etc/*", "../x", "", "requirements*.txt"]
[agents.mine]
setup = [" "]
command = ["mine", "{taks}"]
"""


def test_what_a_sandbox_could_not_be_made_with_is_told_at_load_all_at_once_each_with_its_line(tmp_path: Path) -> None:
    """A newcomer's tries: config check passed each of these, and the daemon or the first task fell over it."""
    with pytest.raises(ConfigError) as caught:
        load(written(tmp_path, GOOD + SANDBOX_MISTAKES), {})
    lines = str(caught.value).splitlines()
    for wanted in (
        "line 16: sandbox.image: 'nope!' is no image name",
        "line 18: sandbox.egress.packages.hosts[1]: 'https://pypi.org/simple' is no host",
        "line 19: sandbox.egress.packages.mirrors[0]: 'pypi org' is no host",
        "line 22: sandbox.egress.model.port: 9000 is the port of sandbox.egress.packages as well",
        "line 24: repositories.odd.name.setup[0]: is no command",
        'line 25: repositories.odd.name.setup_inputs[0]: "/etc/*" fits no tracked file',
        'line 25: repositories.odd.name.setup_inputs[1]: "../x" fits',
        'line 25: repositories.odd.name.setup_inputs[2]: "" fits',
        "line 27: agents.mine.setup[0]: is no command",
        "line 28: agents.mine.command: nothing is put in for {taks}; did you mean {task}?",
    ):
        assert any(line.strip().startswith(wanted) for line in lines), (wanted, lines)
    assert len(lines) == 11  # and nothing else is found wrong


def test_a_sandbox_alone_is_judged_as_the_daemons_is(tmp_path: Path) -> None:
    path = written(tmp_path, '[sandbox.egress.packages]\nhosts = ["*"]\n')
    with pytest.raises(ConfigError, match=r"line 2: sandbox\.egress\.packages\.hosts\[0\]: '\*' is no host"):
        load_parts(path, {"sandbox"})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[agents.mine]\ncommand = "x"\nsuccess_exit_codes = [0, 300]', "must be at most 255, not 300"),
        ('[agents.Bad_Name]\ncommand = "x"', "agents.Bad_Name: its name must be 1 to 64 of a-z"),
        ('[sandbox.egress.model]\ngateway = "http://10.0.0.1"', "must be unix:/path/of/its.sock, or http:// with"),
        ('[sandbox]\ncgroup = "../up"', "must be the name of a control group"),
        ('[sandbox]\nbackend = "podman"', "must be one of 'auto', 'docker' or 'bwrap', not \"podman\""),
    ],
)
def test_a_refused_value_is_told_in_words_without_a_pattern_of_ours(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(written(tmp_path, GOOD + text), {})
    assert words in str(caught.value)
    assert "^" not in str(caught.value)
    assert "[key]" not in str(caught.value)
