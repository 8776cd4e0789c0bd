"""Who runs what, from where: the users of a stack and their two installations, the daemon's without the broker's code.

As root there are three users: the person (root itself), `swarm` for the daemon and `swarm-broker` for the broker, and
each process gets an installation that its user can read and not write. Otherwise all is one user's, from the checkout.
"""

from __future__ import annotations

import os
import pwd
import shutil
import stat
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import distribution
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
DAEMON_USER = "swarm"
BROKER_USER = "swarm-broker"
ROOMS = ("swarm", "pool", "sandbox", "broker")
LEFT_TO_THE_DAEMON = ("__init__.py", "wire.py")
# Tools of development, and whatever would lead an installation back into the checkout.
LEFT_OUT = shutil.ignore_patterns(
    "__pycache__", "*agent_swarm*", "*editable*", "mypy*", "ruff*", "pip", "pip-*", "pytest*", "_pytest", "hypothesis*",
    "setuptools*", "distutils-precedence.pth", "_distutils_hack", "grimp*", "importlinter*", "import_linter*",
)  # fmt: skip


class HouseError(Exception):
    """Something this machine lacks; the message says what and how to mend it."""


@dataclass(frozen=True)
class Account:
    """A user that a process runs as."""

    name: str
    uid: int
    gid: int


@dataclass(frozen=True)
class House:
    """Three accounts and the commands they use. ``parted`` says whether the accounts are three users or one."""

    person: Account
    daemon: Account
    broker: Account
    swarm: tuple[str, ...]
    swarm_broker: tuple[str, ...]
    parted: bool


def account(name: str) -> Account | None:
    """The system's user of that name."""
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        return None
    return Account(entry.pw_name, entry.pw_uid, entry.pw_gid)


def make_users(names: Iterable[str]) -> list[str]:
    """Make the system users that are missing; the names of those it made. Raises HouseError."""
    made = []
    for name in names:
        if account(name):
            continue
        command = ["useradd", "--system", "--user-group", "--no-create-home", "--shell", "/usr/sbin/nologin", name]
        try:
            subprocess.run(command, check=True, capture_output=True, text=True)
        except (OSError, subprocess.CalledProcessError) as error:
            raise HouseError(f"the user {name} could not be made: {getattr(error, 'stderr', '') or error}") from error
        made.append(name)
    return made


def remove_users(names: Iterable[str]) -> None:
    """Remove system users again; those that are not there are no fault."""
    for name in names:
        if account(name):
            subprocess.run(["userdel", name], check=False, capture_output=True)


def here() -> Account:
    """The user who runs this."""
    uid = os.getuid()
    return Account(pwd.getpwuid(uid).pw_name, uid, os.getgid())


def of_one_user() -> House:
    """All of it as this user, from the checkout's own .venv."""
    me = here()
    binaries = CHECKOUT / ".venv" / "bin"
    return House(me, me, me, (str(binaries / "swarm"),), (str(binaries / "swarm-broker"),), parted=False)


def of_three_users(base: Path) -> tuple[House, list[str]]:
    """The users `swarm` and `swarm-broker`, with an installation each under ``base``, and the names of users it made.

    Needs root. Raises HouseError.
    """
    interpreter = _readable_interpreter()
    if not _others_can_reach(base):
        raise HouseError(f"{base} lies in a folder that is closed to other users; choose one that they can enter")
    made = make_users((DAEMON_USER, BROKER_USER))
    daemon, broker = account(DAEMON_USER), account(BROKER_USER)
    if daemon is None or broker is None:
        raise HouseError("the users were made and are not to be found; look into /etc/passwd")
    libraries = _libraries(base / "lib")
    swarm = _installation(base / "swarm-app", interpreter, libraries, ROOMS, entry="swarm")
    swarm_broker = _installation(base / "broker-app", interpreter, libraries, ("broker",), entry="broker")
    return House(here(), daemon, broker, (str(swarm),), (str(swarm_broker),), parted=True), made


def python_for_all(base: Path) -> Path:
    """A Python with all four rooms that every user may run: the .venv's own where others can read it, else a copy.

    Raises HouseError.
    """
    if others_can_read(CHECKOUT / "pyproject.toml") and others_can_read(CHECKOUT / ".venv" / "pyvenv.cfg"):
        return CHECKOUT / ".venv" / "bin" / "python"
    target = base / "app"
    _installation(target, _readable_interpreter(), _libraries(base / "lib"), ROOMS, entry="broker")
    return target / "bin" / "python"


def others_can_read(path: Path) -> bool:
    """Whether a user without rights of their own can reach and read ``path``."""
    real = path.resolve()
    return _others_can_reach(real) and bool(real.stat().st_mode & stat.S_IROTH)


def _others_can_reach(path: Path) -> bool:
    return all(parent.stat().st_mode & stat.S_IXOTH for parent in path.resolve().parents)


def _readable_interpreter() -> Path:
    real = Path(sys.executable).resolve()
    if not others_can_read(real):
        raise HouseError(
            f"the Python behind .venv, {real}, lies where other users cannot read it; install one that they can "
            "(on Debian: apt-get install python3-venv), remove .venv and run: make setup"
        )
    return real


def _libraries(target: Path) -> Path:
    """A copy of the .venv's libraries that every user can read, made anew when the .venv was changed."""
    stamp, made_from = CHECKOUT / ".venv" / ".stamp", target / ".stamp"
    wanted = stamp.read_text("utf-8") if stamp.exists() else "unstamped"
    if made_from.exists() and made_from.read_text("utf-8") == wanted:
        return target
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(sysconfig.get_paths()["purelib"], target, ignore=LEFT_OUT)
    _open_to_all(target)
    subprocess.run([sys.executable, "-m", "compileall", "-q", "-j2", str(target)], check=False, capture_output=True)
    made_from.write_text(wanted, "utf-8")
    return target


def _installation(target: Path, interpreter: Path, libraries: Path, rooms: tuple[str, ...], entry: str) -> Path:
    """A virtual environment of its own with the given rooms; the path of its command."""
    shutil.rmtree(target, ignore_errors=True)
    subprocess.run([str(interpreter), "-m", "venv", "--without-pip", str(target)], check=True)
    for room in rooms:
        keep = LEFT_TO_THE_DAEMON if room == "broker" and entry != "broker" else None
        _copy_room(CHECKOUT / room, target / "rooms" / room, keep)
    site = next((target / "lib").glob("python3*/site-packages"))
    about = distribution("agent-swarm")
    described = site / f"agent_swarm-{about.version}.dist-info"
    described.mkdir()
    (described / "METADATA").write_text(about.read_text("METADATA") or "", "utf-8")  # for --version; nothing of where
    (site / "agent-swarm.pth").write_text(f"{target / 'rooms'}\n{libraries}\n", "utf-8")
    command = target / "bin" / ("swarm" if entry == "swarm" else "swarm-broker")
    start = f"#!{target}/bin/python\nimport sys\n\nfrom {entry}.__main__ import main\n\nsys.exit(main())\n"
    command.write_text(start, "utf-8")
    _open_to_all(target)
    command.chmod(0o755)
    python = str(target / "bin" / "python")
    subprocess.run([python, "-m", "compileall", "-q", str(target / "rooms")], check=True, capture_output=True)
    return command


def _copy_room(source: Path, target: Path, keep: tuple[str, ...] | None) -> None:
    if keep is None:
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        return
    target.mkdir(parents=True)
    for name in keep:
        shutil.copy(source / name, target / name)


def _open_to_all(folder: Path) -> None:
    """Let every user read what lies under ``folder``, whatever this user's umask is."""
    for path in (folder, *_below(folder)):
        if not path.is_symlink():
            path.chmod(path.stat().st_mode | (0o755 if path.is_dir() else 0o644))


def _below(folder: Path) -> Iterator[Path]:
    yield from folder.rglob("*")
