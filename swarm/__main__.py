"""`swarm` and `python -m swarm`."""

from __future__ import annotations

import sys

from swarm.cli import app


def main() -> None:
    """Run the command line and leave with its exit code."""
    sys.exit(app.main())


if __name__ == "__main__":
    main()
