"""What keeps a socket from being opened is told with the mend that fits, and nothing of it is left behind."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest

from broker.door.listening import listening
from broker.errors import ConfigError


def complaint(path, group=None):
    with pytest.raises(ConfigError) as caught, listening(path, group, "person_group"):
        pass
    return f"{caught.value} | {caught.value.mend}"


def test_a_plain_file_in_its_place_is_named_and_left_alone(tmp_path):
    place = tmp_path / "person.sock"
    place.write_text("mine")
    assert f"remove {place}" in complaint(place)
    assert place.read_text() == "mine"


def test_an_unknown_group_leaves_no_socket_behind(tmp_path):
    assert "correct person_group" in complaint(tmp_path / "person.sock", "no-such-group")
    assert list(tmp_path.iterdir()) == []


def test_what_goes_wrong_while_it_is_open_keeps_its_own_words(tmp_path):
    with pytest.raises(FileNotFoundError, match="elsewhere"), listening(tmp_path / "b.sock", None, "socket_group"):
        raise FileNotFoundError("elsewhere")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.root
def test_a_group_without_the_brokers_user_is_mended_by_membership(tmp_path):
    os.chown(tmp_path, 65534, -1)
    for folder in (tmp_path, *tmp_path.parents):
        if folder.owner() == "root" and folder.name.startswith(("pytest", "popen")):
            folder.chmod(0o755)
    code = (
        "import sys, os; from pathlib import Path; from broker.door.listening import listening\n"
        "from broker.errors import ConfigError\n"
        "os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "try:\n"
        "    with listening(Path(sys.argv[1]), 'root', 'person_group'): pass\n"
        "except ConfigError as error: print(error, error.mend)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, f"{tmp_path}/p.sock"], capture_output=True, text=True, check=False
    )
    assert "usermod -aG root nobody" in done.stdout, done
    assert list(tmp_path.iterdir()) == []


def test_it_takes_over_what_a_dead_broker_left(tmp_path):
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / "b.sock"))
    with listening(tmp_path / "b.sock", None, "socket_group") as listener, socket.socket(socket.AF_UNIX) as caller:
        caller.connect(str(tmp_path / "b.sock"))
        listener.accept()[0].close()
