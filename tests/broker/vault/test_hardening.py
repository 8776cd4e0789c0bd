"""What a hardened process keeps from its own user's other processes."""

from __future__ import annotations

import subprocess
import sys

import pytest

_SELF = """
import os, resource
from pathlib import Path
from broker.vault.hardening import harden_process
os.umask(0o022)
harden_process()
status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
print(status["NoNewPrivs"].strip(), status["Umask"].strip(), *resource.getrlimit(resource.RLIMIT_CORE),
      resource.getrlimit(resource.RLIMIT_NOFILE)[1] <= 4096)
"""
_TRACED = """
import ctypes, os, signal, sys
libc = ctypes.CDLL(None, use_errno=True)
child = os.fork()
if child == 0:
    libc.ptrace(0, 0, 0, 0)  # PTRACE_TRACEME: the parent traces from now on
    from broker.errors import ConfigError
    from broker.vault.hardening import harden_process
    try:
        harden_process()
    except ConfigError as error:
        print(error, flush=True)
        os._exit(0)
    os._exit(1)
while True:
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status):
        sys.exit(os.WEXITSTATUS(status))
    libc.ptrace(7, child, 0, 0)  # PTRACE_CONT
"""


def run(program):
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.strip()


def test_a_hardened_process_gets_no_new_rights_leaves_no_core_and_opens_its_files_to_nobody():
    assert run(_SELF) == "1 0077 0 0 True"


def test_a_process_that_somebody_traces_already_refuses_to_begin():
    try:
        said = run(_TRACED)
    except subprocess.CalledProcessError as error:
        if "Operation not permitted" in error.stderr:
            pytest.skip("nothing may be traced here")
        raise
    assert "traces this one and can read every secret in it" in said


def test_with_too_few_open_files_it_does_not_start():
    script = """
import resource
from broker.vault.hardening import harden_process
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
harden_process()
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert "ConfigError: the broker may open 64 files and needs 1024" in done.stderr
