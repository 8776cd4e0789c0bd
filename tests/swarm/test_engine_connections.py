"""What an engine that is closed leaves open: nothing."""

import sqlite3
from pathlib import Path

import pytest
import sqlalchemy as sa

from swarm.engine import let_go
from swarm.errors import StoreError


def test_a_connection_that_is_given_back_after_the_end_is_closed_and_no_new_one_is_opened(tmp_path: Path) -> None:
    """A thread that was still asking a server left its connection open in a pool that nobody closed any more."""
    database = sa.create_engine(f"sqlite:///{tmp_path / 'e.db'}")
    with database.connect() as late, database.connect() as early:
        early.close()
        raw = late.connection.dbapi_connection
        assert raw is not None
        let_go(database)
        assert late.execute(sa.text("SELECT 1")).scalar_one() == 1
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        raw.cursor()
    with pytest.raises(StoreError, match="closed"):
        database.connect()
