"""The database's address: no password in it, no word that names a file of others, and the way there protected."""

from __future__ import annotations

from pathlib import Path

import pytest

from swarm.config_database import Address, address_misfits
from swarm.config_file import load
from swarm.errors import ConfigError

GOOD = (
    "postgresql://swarm@127.0.0.1:5432/swarm",
    "postgres://swarm@localhost/swarm",
    "postgresql://swarm@[::1]/swarm",
    "postgresql:///swarm?host=/run/postgresql",
    "postgresql://swarm@db.example/swarm?sslmode=verify-full&sslrootcert=/etc/ssl/ca.pem",
    "postgresql://swarm@10.0.0.5/swarm?sslmode=disable",
)
BAD = {
    "mysql://swarm@localhost/swarm": "no address of a Postgres database",
    "postgresql://localhost": "no address of a Postgres database",
    "postgresql://localhost:port/x": "is no address",
    "postgresql://swarm@localhost:0/x": "no address of a Postgres database",
    "postgresql://swarm:hunter2@localhost/swarm": "holds a password",
    "postgresql://swarm@localhost/swarm?password=hunter2": "not taken here",
    "postgresql://localhost/swarm?service=other": "not taken here",
    "postgresql://localhost/swarm?passfile=/etc/shadow": "not taken here",
    "postgresql://localhost/swarm?options=-csearch_path=hunter2": "not taken here",
    "postgresql://localhost/swarm?sslmode": "is no address",
    "postgresql://swarm@db.example/swarm": "sslmode=verify-full",
    "postgresql://swarm@10.0.0.5/swarm": "sslmode=verify-full",
    "postgresql:///swarm?host=db.example": "sslmode=verify-full",
}


@pytest.mark.parametrize("url", GOOD)
def test_an_address_that_is_taken(url: str) -> None:
    assert list(address_misfits(url)) == []


@pytest.mark.parametrize(("url", "why"), BAD.items())
def test_an_address_that_is_turned_down_in_words_without_what_it_holds(url: str, why: str) -> None:
    found = [str(problem) for problem in address_misfits(url)]
    assert any(why in words for words in found), found
    assert "hunter2" not in "".join(found)


def settings(folder: Path, *lines: str, **environ: str) -> object:
    """Where the daemon's database is, by a swarm.toml with these lines in [daemon]."""
    text = "[daemon]\n" + "\n".join(lines) + "\n[pool.embedded]\nenabled = true\n"
    (folder / "swarm.toml").write_text(text, "utf-8")
    return load(folder / "swarm.toml", environ).settings.daemon.where()


URL = 'database = "postgresql://swarm@localhost/swarm"'


def test_without_the_setting_it_is_a_file_in_the_state_folder(tmp_path: Path) -> None:
    assert settings(tmp_path, 'state = "here"') == tmp_path / "here" / "swarm.db"


def test_the_password_comes_from_a_file_that_only_we_can_read(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("hunter2\n", "utf-8")
    (tmp_path / "password").chmod(0o600)
    where = settings(tmp_path, URL, 'database_password_file = "password"')
    assert where == Address("postgresql://swarm@localhost/swarm", "hunter2")
    assert "hunter2" not in f"{where!r} {where}"


def test_a_password_file_that_others_can_read_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("hunter2", "utf-8")
    (tmp_path / "password").chmod(0o644)
    with pytest.raises(ConfigError, match="was not found") as told:
        settings(tmp_path, URL, 'database_password_file = "password"')
    assert "nobody else" in told.value.mend
    assert "hunter2" not in str(told.value)


def test_the_password_comes_from_the_environment(tmp_path: Path) -> None:
    where = settings(tmp_path, URL, 'database_password_env = "PG"', PG="hunter2")
    assert where == Address("postgresql://swarm@localhost/swarm", "hunter2")


@pytest.mark.parametrize("line", ['database_password_env = "PG"', 'database_password_file = "nowhere"'])
def test_a_password_that_was_named_and_is_not_there_is_told_only_to_who_opens_the_database(
    tmp_path: Path, line: str
) -> None:
    with pytest.raises(ConfigError, match="was not found"):
        settings(tmp_path, URL, line)
    assert load(tmp_path / "swarm.toml", {}).settings.daemon.database_password is None


def test_an_address_with_a_password_is_refused_where_the_settings_are_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"line 2: daemon\.database: holds a password") as told:
        settings(tmp_path, 'database = "postgresql://swarm:hunter2@localhost/swarm"')
    assert "hunter2" not in str(told.value)


def test_settings_that_are_shown_hold_no_password(tmp_path: Path) -> None:
    settings(tmp_path, URL, 'database_password_env = "PG"', PG="hunter2")
    loaded = load(tmp_path / "swarm.toml", {"PG": "hunter2"})
    assert "hunter2" not in f"{loaded.settings!r} {loaded.settings.model_dump_json()}"
