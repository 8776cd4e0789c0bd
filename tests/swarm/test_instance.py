"""One daemon per folder and one socket that is surely ours."""

from __future__ import annotations

import os
import resource
import socket
from pathlib import Path

import pytest

from swarm.config import DaemonConfig
from swarm.errors import DaemonError
from swarm.instance import alone, listening


def config(folder: Path, **more: str) -> DaemonConfig:
    return DaemonConfig.model_validate({"state": folder, "socket": folder / "d.sock"} | more)


def test_the_lock_is_held_by_one_and_names_its_pid(tmp_path: Path) -> None:
    with alone(tmp_path / "state"):
        with pytest.raises(DaemonError, match=f"process {os.getpid()}") as told, alone(tmp_path / "state"):
            pass
        assert str(os.getpid()) in told.value.mend
    with alone(tmp_path / "state"):
        pass


def test_a_state_folder_that_is_a_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("")
    with pytest.raises(DaemonError, match="cannot be used"), alone(tmp_path / "state"):
        pass


def test_the_state_folder_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    with alone(tmp_path / "state"):
        assert (tmp_path / "state").stat().st_mode & 0o077 == 0


def test_a_socket_that_nobody_answers_at_is_replaced(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / "d.sock"))
    with listening(config(tmp_path)), socket.socket(socket.AF_UNIX) as peer:
        peer.connect(str(tmp_path / "d.sock"))
    assert not (tmp_path / "d.sock").exists()


def test_a_socket_that_somebody_answers_at_is_left_alone(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(tmp_path / "d.sock"))
        other.listen()
        with pytest.raises(DaemonError, match="somebody answers"), listening(config(tmp_path)):
            pass
        assert (tmp_path / "d.sock").exists()


def test_a_socket_that_another_daemon_bound_meanwhile_is_left_alone(tmp_path: Path) -> None:
    """Also where the file system gives it the same inode."""
    path = tmp_path / "d.sock"
    with listening(config(tmp_path)) as listener, socket.socket(socket.AF_UNIX) as other:
        listener.close()
        path.unlink()
        other.bind(str(path))
    assert path.exists()


@pytest.mark.parametrize("kind", ["file", "folder", "link"])
def test_what_is_no_socket_is_never_removed(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "d.sock"
    if kind == "file":
        path.write_text("precious")
    elif kind == "folder":
        path.mkdir()
    else:
        (tmp_path / "precious").write_text("x")
        path.symlink_to(tmp_path / "precious")
    with pytest.raises(DaemonError, match="no socket"), listening(config(tmp_path)):
        pass
    assert path.is_symlink() or path.exists()


def test_the_socket_is_for_its_owner_alone_unless_a_group_is_named(tmp_path: Path) -> None:
    with listening(config(tmp_path)):
        assert (tmp_path / "d.sock").stat().st_mode & 0o777 == 0o600


def test_a_group_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(DaemonError, match="no group"), listening(config(tmp_path, socket_group="no-such-group")):
        pass


def test_a_state_folder_on_a_full_disk_is_told(tmp_path: Path) -> None:
    _soft, hard = limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))  # no file may grow
    try:
        with pytest.raises(DaemonError, match="cannot be written to: File too large"), alone(tmp_path):
            pass
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
