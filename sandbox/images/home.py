"""Carries HOME along with a workspace: as one tar in it, made and unpacked inside by the agent's user."""

from __future__ import annotations

import platform

from sandbox.base import Sandbox
from sandbox.errors import SetUpError
from sandbox.images.layer import HOME_TAR
from sandbox.line.programs import BORROWED, argv_of
from sandbox.types import Command, Outcome

SPARE = ".setup-tmp"  # below HOME, for what a set-up unpacks on its way; not kept
_TAIL = 20  # lines of output that are told
# Downloads that a package manager keeps are of no use without a network.
_PACK = (
    'cd -- "$HOME" 2>/dev/null || exit 0; [ -n "$(ls -A)" ] || exit 0; exec "$@" --create --format=gnu '
    "--exclude=./.cache/pip --exclude=./.cache/uv --exclude=./.npm/_cacache "
    f'--exclude=./{SPARE} --file="$OLDPWD/$home" .'
)
_UNPACK = '[ -f "$home" ] || exit 0; "$@" --extract --directory="$HOME" --file="$home" && rm -f -- "$home"'
# A stranger's image may have no tar; ours is lent to it.
_TAR = "home=$1; shift; if command -v tar >/dev/null 2>&1; then set -- tar; fi; "


async def pack_home(sandbox: Sandbox) -> None:
    """Put HOME into the workspace. Raises SetUpError."""
    await _run(sandbox, "HOME cannot be kept", _PACK)


async def unpack_home(sandbox: Sandbox) -> None:
    """Take it out again. Raises SetUpError."""
    await _run(sandbox, "what the set-up left in HOME cannot be unpacked", _UNPACK)


def last_lines(outcome: Outcome) -> str:
    """What a command said last, without control characters."""
    text = "\n".join(outcome.text.splitlines()[-_TAIL:])[-4000:]
    return "".join(c if c.isprintable() or c == "\n" else "?" for c in text) or "(nothing)"


async def _run(sandbox: Sandbox, what: str, script: str) -> None:
    lent = argv_of("tar", usr=BORROWED, machine=platform.machine())
    outcome = await sandbox.run(Command(argv=("/bin/sh", "-c", _TAR + script, "sh", HOME_TAR.decode(), *lent)))
    if outcome.exit_code:
        raise SetUpError(f"{what}: {last_lines(outcome)}")
