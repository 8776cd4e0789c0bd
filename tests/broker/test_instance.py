"""One broker per state folder, and a word to systemd."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import time

import pytest

from broker.errors import ConfigError
from broker.instance import alone, notify

pytestmark = pytest.mark.slow

_HOLD = """
import sys, time
from pathlib import Path
from broker.instance import alone
with alone(Path(sys.argv[1]), standby=len(sys.argv) > 2, waiting=lambda: print("waiting", flush=True)):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def hold(tmp_path):
    """Starts a process that holds the state folder, or waits for it."""
    made = []

    def start(*more):
        command = [sys.executable, "-c", _HOLD, str(tmp_path / "state"), *more]
        made.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        return made[-1]

    yield start
    for process in made:
        with process:
            process.kill()


def test_a_second_one_is_refused_with_both_mends(tmp_path, hold):
    assert hold().stdout.readline() == "held\n"
    with pytest.raises(ConfigError, match="another broker works in") as caught, alone(tmp_path / "state"):
        pass
    assert "--standby" in caught.value.mend


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_one_that_waits_takes_over_when_the_first_is_gone_however_it_ended(hold, number):
    first = hold()
    assert first.stdout.readline() == "held\n"
    second = hold("standby")
    assert second.stdout.readline() == "waiting\n"
    first.send_signal(number)
    begun = time.monotonic()
    assert second.stdout.readline() == "held\n"
    assert time.monotonic() - begun < 5


def test_of_two_that_wait_one_takes_over(hold):
    first = hold()
    assert first.stdout.readline() == "held\n"
    waiting = [hold("standby"), hold("standby")]
    assert [process.stdout.readline() for process in waiting] == ["waiting\n"] * 2
    first.kill()
    fds = [process.stdout.fileno() for process in waiting]
    ready, _, _ = select.select(fds, [], [], 5)
    time.sleep(1)
    assert select.select(fds, [], [], 0)[0] == ready
    assert [os.read(fd, 100) for fd in ready] == [b"held\n"]


def test_a_lock_file_that_is_left_holds_nobody_up(tmp_path, hold):
    first = hold()
    assert first.stdout.readline() == "held\n"
    first.kill()
    first.wait()
    assert (tmp_path / "state" / "lock").exists()
    with alone(tmp_path / "state"):
        pass


@pytest.mark.parametrize("place", ["path", "abstract"])
def test_systemd_is_told_where_it_asks_to_be(tmp_path, place):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        name = str(tmp_path / "notify") if place == "path" else f"\0swarm-test-{os.getpid()}"
        manager.bind(name)
        manager.settimeout(5)
        os.environ["NOTIFY_SOCKET"] = name.replace("\0", "@", 1)
        try:
            notify("READY=1")
            assert manager.recv(100) == b"READY=1"
        finally:
            del os.environ["NOTIFY_SOCKET"]


def test_without_systemd_nobody_is_told():
    os.environ.pop("NOTIFY_SOCKET", None)
    notify("READY=1")
