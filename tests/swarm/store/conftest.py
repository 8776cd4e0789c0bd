"""Both kinds of database, for whatever holds of either."""

from __future__ import annotations

from pathlib import Path

import pytest

from swarm.config_database import Address


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> Path | Address:
    """Where a new database is: a file, or a database of a Postgres server."""
    if request.param == "sqlite":
        return tmp_path / "swarm.db"
    found: Address = request.getfixturevalue("postgres")
    return found
