"""One profile, rendered for both backends from the same rules."""

from __future__ import annotations

import json

import pytest

from sandbox.bubblewrap.seccomp import compile_filter
from sandbox.rules.bwrap import bwrap_arguments
from sandbox.rules.calls import RULES
from sandbox.rules.docker import docker_seccomp, docker_settings
from sandbox.rules.profile import AGENT_UID, AGENT_UIDS, ENVIRONMENT, KEEPER_UID, profile_of, time_limit
from sandbox.types import MIB, Command, Limits, SandboxSpec

PROFILE = profile_of(SandboxSpec(limits=Limits(memory=64 * MIB, cpus=0.5, disk=8 * MIB, wall=10), env={"A": "1"}))


def test_docker_gets_no_network_no_capability_and_a_read_only_root() -> None:
    settings = docker_settings(PROFILE, "x86_64")
    assert settings["network_mode"] == "none"
    assert settings["cap_drop"] == ["ALL"]
    assert settings["read_only"] is True
    assert "no-new-privileges" in settings["security_opt"]
    assert settings["memswap_limit"] == settings["mem_limit"] == 64 * MIB
    assert settings["cpu_quota"] == 50_000
    assert settings["user"] not in {"0:0", f"{AGENT_UID}:{AGENT_UID}"}
    assert not {"volumes", "privileged", "cap_add", "ports", "devices", "pid_mode"} & set(settings)
    assert all("size=" in options for options in settings["tmpfs"].values())


@pytest.mark.parametrize(("machine", "name"), [("x86_64", "SCMP_ARCH_X86_64"), ("aarch64", "SCMP_ARCH_AARCH64")])
def test_the_filter_names_one_architecture_so_that_no_other_walks_around_it(machine: str, name: str) -> None:
    filtered = json.loads(docker_seccomp(machine))
    assert filtered["architectures"] == [name]
    denied = {call for rule in filtered["syscalls"] if not rule["args"] for call in rule["names"]}
    assert {"io_uring_setup", "ptrace", "unshare", "setns", "mount", "bpf", "keyctl", "clone3"} <= denied
    assert len(filtered["syscalls"]) == len(RULES)


def test_an_architecture_without_rules_is_refused() -> None:
    with pytest.raises(KeyError):
        docker_seccomp("riscv64")


def test_the_compiled_filter_grows_with_the_rules() -> None:
    assert len(compile_filter()) > len(compile_filter(())) > 0
    assert len(compile_filter()) % 8 == 0


def test_docker_learns_no_name_server_and_no_control_group_of_the_host() -> None:
    settings = docker_settings(PROFILE, "x86_64")
    assert settings["dns"] == ["127.0.0.1"]
    assert settings["dns_search"] == ["."]
    assert settings["cgroupns"] == settings["ipc_mode"] == "private"


def test_every_writable_place_has_a_size_a_number_of_files_and_no_device() -> None:
    tmpfs = docker_settings(PROFILE, "x86_64")["tmpfs"]
    assert set(tmpfs) == {"/work", "/home/agent", "/tmp"}
    for options in tmpfs.values():
        assert {"nosuid", "nodev", "exec"} <= set(options.split(","))
        assert "nr_inodes=" in options
    assert PROFILE.folder("/home/agent").size == PROFILE.folder("/work").size == 8 * MIB
    assert set(PROFILE.landlock.write) | set(PROFILE.landlock.write_data) == {folder.path for folder in PROFILE.folders}


def test_bubblewrap_hides_what_the_kernel_tells_everyone() -> None:
    argv = bwrap_arguments(PROFILE, [], held={}, environment={}, masked=["/proc/kcore"])
    at = argv.index("/proc/kcore")
    assert argv[at - 2 : at] == ["--ro-bind", "/dev/null"]
    assert argv.index("--proc") < at


def test_bubblewrap_gets_every_wall_and_the_read_only_root_last() -> None:
    argv = bwrap_arguments(PROFILE, ["--ro-bind", "/usr", "/usr"], held={"/work": "/w"}, environment={"X": "y z"})
    for flag in (
        "--unshare-all",
        "--unshare-user",
        "--disable-userns",
        "--die-with-parent",
        "--new-session",
        "--clearenv",
    ):
        assert flag in argv
    assert argv[argv.index("--cap-drop") + 1] == "ALL"
    assert argv[-2:] == ["--remount-ro", "/"]
    binds = [argv[at + 1] for at, word in enumerate(argv) if word == "--bind"]
    assert binds == ["/w"]
    assert argv[argv.index("--setenv") + 1 :][:2] == ["X", "y z"]
    tmpfs = [at for at, word in enumerate(argv) if word == "--tmpfs"]
    assert len(tmpfs) == 3
    assert all(argv[at - 2] == "--size" for at in tmpfs)


def test_the_allowlist_holds_nothing_of_this_process_and_keeps_programs_from_asking() -> None:
    assert {name: value for name, value in ENVIRONMENT.items() if name not in {"PATH", "LANG"}} == {
        "HOME": "/home/agent",
        "USER": "agent",
        "LOGNAME": "agent",
        "SHELL": "/bin/sh",
        "TERM": "dumb",
        "TMPDIR": "/tmp",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PAGER": "cat",
        "GIT_PAGER": "cat",
        "GIT_TERMINAL_PROMPT": "0",
        "DEBIAN_FRONTEND": "noninteractive",
        "PIP_NO_INPUT": "1",
    }


def test_a_command_cannot_ask_for_more_time_than_its_sandbox_has() -> None:
    assert time_limit(PROFILE, Command(argv=("x",))) == 10
    assert time_limit(PROFILE, Command(argv=("x",), timeout=3)) == 3
    assert time_limit(PROFILE, Command(argv=("x",), timeout=300)) == 10


def test_uids_are_nobodys_and_do_not_meet() -> None:
    assert AGENT_UID > 65535
    assert AGENT_UID + AGENT_UIDS <= KEEPER_UID < 100_000
