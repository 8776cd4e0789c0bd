"""The swarm-broker command."""

from broker.cli.app import main

__all__ = ["main"]

if __name__ == "__main__":
    main()
