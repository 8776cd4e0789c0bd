"""The system calls that are refused: what reaches past a sandbox, and nothing that ordinary programs need."""

from __future__ import annotations

import pytest

from sandbox.rules.calls import RULES, Condition

ALWAYS = {name for rule in RULES if rule.condition is None for name in rule.names}


def refused(name: str, **arguments: int) -> bool:
    """What the kernel's filter would say: any rule that fits."""
    values = {int(key.removeprefix("a")): value for key, value in arguments.items()}
    return any(name in rule.names and _fits(rule.condition, values) for rule in RULES)


def _fits(condition: Condition | None, values: dict[int, int]) -> bool:
    if condition is None:
        return True
    value = values.get(condition.argument, 0)
    return {
        "EQ": value == condition.value,
        "GE": value >= condition.value,
        "MASKED_EQ": value & condition.mask == condition.value,
    }[condition.compare]


@pytest.mark.parametrize(
    "name",
    [
        *("memfd_create", "pidfd_open", "pidfd_send_signal", "seccomp", "landlock_restrict_self", "prctl", "futex"),
        *("execve", "execveat", "openat2", "fchmodat2", "renameat2", "copy_file_range", "statx", "rseq", "membarrier"),
        *("sched_setaffinity", "mlock", "shmget", "mremap", "madvise", "getrandom", "inotify_init1", "epoll_pwait2"),
        *("signalfd4", "timerfd_create", "eventfd2", "close_range", "mseal", "setsid", "kill", "vfork", "faccessat2"),
    ],
)
def test_what_git_pip_pytest_node_cargo_and_the_jvm_use_is_allowed(name: str) -> None:
    assert not refused(name)


@pytest.mark.parametrize(
    "name",
    [
        *("io_uring_setup", "io_uring_enter", "io_uring_register", "ptrace", "process_vm_readv", "process_vm_writev"),
        *("pidfd_getfd", "keyctl", "add_key", "request_key", "bpf", "perf_event_open", "userfaultfd", "mount", "setns"),
        *("umount2", "fsopen", "fsconfig", "fsmount", "fspick", "move_mount", "open_tree", "pivot_root", "unshare"),
        *("kexec_load", "init_module", "open_by_handle_at", "clock_settime", "adjtimex", "personality", "chroot"),
        *("clone3", "syslog", "quotactl", "swapon", "reboot", "memfd_secret", "mbind", "modify_ldt", "vmsplice"),
    ],
)
def test_what_reaches_past_a_sandbox_is_refused(name: str) -> None:
    assert name in ALWAYS


def test_sockets_are_unix_and_inet_whatever_the_high_bits_say() -> None:
    allowed = {family for family in range(64) if not refused("socket", a0=family)}
    assert allowed == {1, 2, 10}
    for family in (1, 2, 10, 16, 40):
        assert refused("socket", a0=(1 << 32) + family)
    assert not refused("socketpair", a0=1)


@pytest.mark.parametrize("protocol", [33, 115, 132, 136, 262])
def test_rare_protocols_load_no_module(protocol: int) -> None:
    assert refused("socket", a0=2, a1=1, a2=protocol)
    assert refused("socket", a0=10, a1=1, a2=(7 << 32) + protocol)
    assert not refused("socket", a0=2, a1=1, a2=6)


def test_clone_makes_processes_and_threads_but_no_namespace() -> None:
    assert not refused("clone", a0=17)
    assert not refused("clone", a0=0x3D0F00)  # what pthread_create asks for
    for flag in (0x20000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000):
        assert refused("clone", a0=flag | 17)


def test_pipes_and_files_are_made_but_no_device() -> None:
    for name, key in (("mknod", "a1"), ("mknodat", "a2")):
        assert not refused(name, **{key: 0o010644})
        assert not refused(name, **{key: 0o100644})
        assert not refused(name, **{key: 0o140644})
        assert refused(name, **{key: 0o020644})
        assert refused(name, **{key: 0o060644})


def test_nothing_is_typed_into_a_terminal_whatever_the_high_bits_say() -> None:
    """CVE-2017-5226, CVE-2023-28100."""
    for request in (0x5412, 0x541C, 0x5423):
        assert refused("ioctl", a1=request)
        assert refused("ioctl", a1=(1 << 32) + request)
    assert not refused("ioctl", a1=0x5401)


def test_every_rule_tells_why() -> None:
    assert all(rule.why and rule.names and rule.errno > 0 for rule in RULES)
