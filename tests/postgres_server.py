"""A private Postgres server for a run of tests, and an empty database of it for each that asks."""

from __future__ import annotations

import re
import secrets
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import sqlalchemy as sa

from swarm.config_database import Address
from swarm.store.postgres import url_of

SCRIPT = Path(__file__).resolve().parent.parent / "scripts" / "postgres"
CANNOT = 69  # how scripts/postgres ends where there is no server to be had


@dataclass(frozen=True)
class Server:
    """A running server in a folder of its own."""

    folder: Path
    address: Address

    def call(self, verb: str, *words: str) -> str:
        """One call of scripts/postgres."""
        return called(verb, str(self.folder), *words)

    def database(self, name: str) -> Address:
        """The address of another of its databases."""
        return Address(re.sub(r"/postgres\?", f"/{name}?", self.address.url), self.address.password)

    def sql(self, *statements: str, database: Address | None = None) -> list[tuple[object, ...]]:
        """Run statements as the server's owner, each for itself; the rows of the last one."""
        engine = sa.create_engine(url_of(database or self.address), isolation_level="AUTOCOMMIT")
        try:
            with engine.connect() as connection:
                for statement in statements:
                    result = connection.exec_driver_sql(statement)
                return [tuple(row) for row in result] if result.returns_rows else []
        finally:
            engine.dispose()


def called(verb: str, *words: str) -> str:
    """One call of scripts/postgres; its output. Skips the test where there is no server to be had."""
    done = subprocess.run([SCRIPT, verb, *words], capture_output=True, text=True, timeout=100, check=False)
    if done.returncode == CANNOT:
        pytest.skip(f"no Postgres: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@contextmanager
def a_server(*words: str) -> Iterator[Server]:
    """A server of one's own, to be stopped and crashed at will; ``words`` go to its start."""
    # Not in pytest's folders, which other runs close to other users; and Postgres is one where we are root.
    with tempfile.TemporaryDirectory(prefix="swarm-postgres-") as base:
        Path(base).chmod(0o711)
        folder = Path(base) / "server"
        url = called("start", str(folder), "--throwaway", *words)
        server = Server(folder, Address(url, (folder / "password").read_text("utf-8")))
        try:
            yield server
        finally:
            server.call("stop", "--crash")


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Server]:
    """One server for the session, which nobody may stop."""
    with a_server() as server:
        yield server


@pytest.fixture
def postgres(postgres_server: Server) -> Iterator[Address]:
    """An empty database."""
    name = f"t{secrets.token_hex(6)}"
    postgres_server.sql(f"CREATE DATABASE {name}")
    yield postgres_server.database(name)
    postgres_server.sql(f"DROP DATABASE {name} WITH (FORCE)")
